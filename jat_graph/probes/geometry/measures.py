"""How well distances and depths of a probe fit trees: UUAS, DSpr, root accuracy and NSpr."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jat_graph.probes.geometry.trees import Floats, Tree, spanning_tree
from jat_graph.probes.intervals import resampled, resampled_ratio

UUAS, DSPR, ROOT, NSPR = MEASURES = ("UUAS", "DSpr", "root accuracy", "NSpr")
LENGTHS = range(5, 51)  # of sentences whose correlations count


def tree_scores(tree: Tree, distances: Floats) -> tuple[float, float]:
    """Count the edges that the spanning tree of distances has right; correlate distances.

    The correlation is the mean over words of Spearman's, between the distances of a word to all
    words and those in the tree, punctuation too.
    """
    hits = len(tree.edges & spanning_tree(distances, tree.shown))
    return float(hits), float(rank_correlation(distances, tree.distances).mean())


def depth_scores(tree: Tree, depths: Floats) -> tuple[float, float]:
    """Return whether the least deep word is the root, punctuation aside; correlate depths."""
    found = tree.shown[int(depths[tree.shown].argmin())] if tree.shown else None
    return float(found == tree.sentence.root), float(rank_correlation(depths, tree.depths))


def rank_correlation(one: Floats, other: Floats) -> Floats:  # [..., n] -> [...]
    """Spearman's correlation along the last axis; 0 where a side is the same everywhere."""
    from scipy.stats import rankdata

    ranks = [rankdata(side, axis=-1) for side in (one, other)]
    first, second = (side - side.mean(-1, keepdims=True) for side in ranks)
    scale = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    found: Floats = (first * second).sum(-1) / np.where(scale > 0, scale, 1.0)
    return found


@dataclass(frozen=True)
class Scores:
    """The scores of S sentences: edges found, mean correlation, root found, correlation.

    Differences of two are scores, too.
    """

    trees: tuple[Tree, ...]
    values: Floats  # [S, 4], as in MEASURES

    def __sub__(self, other: Scores) -> Scores:
        """By how much these are better on the same sentences."""
        return Scores(self.trees, self.values - other.values)

    @property
    def uuas(self) -> float:
        """The share of all edges that are found."""
        return float(self.values[:, 0].sum()) / max(sum(len(tree.edges) for tree in self.trees), 1)

    def to_row(self) -> dict[str, Any]:
        """Each measure with the ends of its interval over sentences."""
        row: dict[str, Any] = {}
        for name, values in zip(MEASURES, self.values.T, strict=True):
            found = self._by_length(values) if name in (DSPR, NSPR) else self._share(name, values)
            row |= dict(zip((name, f"{name} low", f"{name} high"), found, strict=True))
        return row

    def _share(self, name: str, values: Floats) -> tuple[float, float, float]:
        """Of all edges, or of all sentences that are more than punctuation."""
        totals = [len(tree.edges) if name == UUAS else bool(tree.shown) for tree in self.trees]
        value, low, high = resampled_ratio(values, totals)
        return float(value), float(low), float(high)

    def _by_length(self, values: Floats) -> tuple[float, float, float]:
        """The mean over lengths of the mean over sentences of that length."""
        lengths = np.array([len(tree) for tree in self.trees])
        own: NDArray[np.bool_] = lengths[:, None] == np.array(LENGTHS)
        return _mean_ratio(values[:, None] * own, own)


def _mean_ratio(above: Floats, below: NDArray[np.bool_]) -> tuple[float, float, float]:
    """The mean of the columns' ratios, of those that have one."""

    def mean(sums: Floats) -> Floats:
        ratios = sums[..., 0] / sums[..., 1]
        there = ~np.isnan(ratios)
        found: Floats = np.where(there, ratios, 0.0).sum(-1) / there.sum(-1)
        return found

    value, low, high = resampled(np.stack([above, below], -1), mean)
    return float(value), float(low), float(high)
