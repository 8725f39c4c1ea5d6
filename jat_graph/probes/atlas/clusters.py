"""Parts of a cloud of uses, the words that tell them apart, and what else they go with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from jat_graph.probes.atlas.layouts import Floats
from jat_graph.probes.atlas.search import Uses, plain
from jat_graph.probes.intervals import CONFIDENCE

Labels: TypeAlias = NDArray[np.intp]

MOST_CLUSTERS = 8
STARTS, DIRECTIONS = 5, 30  # of k-means
PRIOR = 50.0  # words that every cluster is thought to have had before, drawn from all
LEAST_SENTENCES = 2  # with a word that tells
SURELY = 1.96  # standard deviations from no difference
TELLING = 6  # words of a cluster


@dataclass(frozen=True)
class Purity:
    """How far a cluster is of one kind: its share, of so many whose kind is known."""

    kind: str
    known: int
    share: float
    low: float
    high: float


def find_clusters(points: Floats, seed: int) -> tuple[Labels, float]:
    """Part points by k-means into as many clusters as give the best silhouette, and return it.

    What has no parts that could be told apart is one cluster, without a silhouette.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import pairwise_distances, silhouette_score

    most = min(MOST_CLUSTERS, len(np.unique(points.round(4), axis=0)) - 1)
    labels, best = np.zeros(len(points), np.intp), float("nan")
    if most < 2:
        return labels, best
    points, distances = _main_part(points), pairwise_distances(points)
    for number in range(2, most + 1):
        found = KMeans(number, n_init=STARTS, random_state=seed).fit_predict(points)
        score = float(silhouette_score(distances, found, metric="precomputed"))
        if not score <= best:
            labels, best = found.astype(np.intp), score
    return _by_size(labels), best


def _main_part(points: Floats) -> Floats:
    """What points are along the directions of most spread, for k-means to take less time."""
    from sklearn.decomposition import PCA

    kept = PCA(min(DIRECTIONS, *points.shape), svd_solver="full")
    found: Floats = kept.fit_transform(points)
    return found


def _by_size(labels: Labels) -> Labels:
    """Let clusters be numbered from the largest one."""
    order = np.argsort(-np.bincount(labels), kind="stable")
    found: Labels = np.argsort(order)[labels]
    return found


def renamed(labels: Labels, below: Labels) -> Labels:
    """Give clusters the numbers of those below whose points they have, and others new ones."""
    from scipy.optimize import linear_sum_assignment

    size = 1 + max(labels.max(), below.max())
    shared = np.zeros((size, size), np.intp)
    np.add.at(shared, (labels, below), 1)
    own, other = linear_sum_assignment(shared, maximize=True)
    found: Labels = other[np.argsort(own)][labels]
    return found


def telling_words(uses: Uses, labels: Labels) -> dict[int, list[str]]:
    """Name the words of sentences that tell each cluster from all others, the surest first.

    Reference:
        Monroe et al., *Fightin' Words*, Political Analysis, 2008, equations 15 to 22: the log-odds
        with a prior, in standard deviations; of sentences with a word, not of its occurrences.
    """
    words, present = _words(uses)
    counts = np.stack([present[labels == own].sum(0) for own in np.unique(labels)])
    if len(counts) == 1 or len(words) < 2:
        return {int(own): [] for own in np.unique(labels)}
    everywhere = counts.sum(0)
    prior = PRIOR * everywhere / everywhere.sum()
    own, rest = counts + prior, everywhere - counts + prior
    difference = _log_odds(own) - _log_odds(rest)
    surety = difference / np.sqrt(1 / own + 1 / rest)
    surest = np.argsort(-surety, axis=1, kind="stable")[:, :TELLING]
    return {
        int(label): [words[word] for word in chosen if row[word] > SURELY]
        for label, row, chosen in zip(np.unique(labels), surety, surest, strict=True)
    }


def _log_odds(counts: Floats) -> Floats:
    found: Floats = np.log(counts) - np.log(counts.sum(1, keepdims=True) - counts)
    return found


def _words(uses: Uses) -> tuple[list[str], NDArray[Any]]:
    """The words beside the one that was searched, and which sentences have them."""
    own = plain(uses.word)
    sets = [
        {word for word in map(plain, context.words) if word != own and word[:1].isalpha()}
        for context in uses.contexts
    ]
    often = Counter(word for some in sets for word in some)
    words = sorted(word for word, number in often.items() if number >= LEAST_SENTENCES)
    return words, np.array([[word in some for word in words] for some in sets], np.float64)


def purities(labels: Labels, kinds: Sequence[str | None]) -> dict[int | None, Purity | None]:
    """Say what each cluster is most of, and under None how much of all is of its cluster's kind.

    A cluster has None where no kind of its points is known.
    """
    pairs = list(zip(labels.tolist(), kinds, strict=True))
    inside = {
        label: Counter(kind for own, kind in pairs if own == label and kind is not None)
        for label in sorted(set(labels.tolist()))
    }
    known = sum(counts.total() for counts in inside.values())
    right = sum(max(counts.values(), default=0) for counts in inside.values())
    found: dict[int | None, Purity | None] = {}
    for label, counts in inside.items():
        kind, most = counts.most_common(1)[0] if counts else ("", 0)
        found[label] = _purity(kind, most, counts.total())
    return found | {None: _purity("", right, known)}


def _purity(kind: str, most: int, known: int) -> Purity | None:
    from scipy.stats import binomtest

    if not known:
        return None
    interval = binomtest(most, known).proportion_ci(CONFIDENCE, method="wilson")
    return Purity(kind, known, most / known, float(interval.low), float(interval.high))
