"""The structural probe of Hewitt and Manning: trees by layer, against what cannot know them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from jat_graph.checks.numbers import check_flag, check_indices, check_integer
from jat_graph.data.storage import digest
from jat_graph.files import replacing
from jat_graph.hf import attached_config, disabled
from jat_graph.probes.findings import Findings, Floats, resampled, resampled_ratio
from jat_graph.probes.pictures import QUIET, add_legend, draw_layers
from jat_graph.probes.tree_maps import DEPTH, DISTANCE, train_probe, tree_batches
from jat_graph.probes.treebank import Sentence
from jat_graph.probes.trees import (
    Tree,
    draw_tree_arcs,
    draw_tree_plane,
    spanning_tree,
    squared_distances,
)
from jat_graph.probes.words import Rows, WordReader, check_layers, random_weights
from jat_graph.progress import track_progress
from jat_graph.viz.figures import new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MODEL, OFF, RANDOM, CHAIN = "model", "jumps off", "random weights", "words in a line"
UUAS, DSPR, ROOT, NSPR = MEASURES = ("UUAS", "DSpr", "root accuracy", "NSpr")
LENGTHS = np.arange(5, 51)  # of sentences whose correlations count
DRAWN = range(8, 15)  # words of a sentence that is drawn

VERSION = 1  # of how probes are trained

CAPTION = (
    "Trees in the distances between words, found by linear maps of a model's states. Layer 0 knows "
    "words and their order alone, and random weights nothing that was learnt: what counts is what "
    "is above both, and above words in a line. Low and high are the ends of intervals of 95 % over "
    "sentences; scores are means over seeds. A map that finds trees does not show that the model "
    "uses them."
)


def structural_probe(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[Sentence],
    dev: Sequence[Sentence],
    test: Sequence[Sentence],
    folder: str | Path,
    *,
    layers: Sequence[int] | None = None,
    rank: int | None = 128,
    epochs: int = 30,
    seeds: Sequence[int] = (0,),
    controls: bool = True,
) -> Findings:
    """Ask how much of dependency trees is in the distances between states of words.

    For each layer a linear map B is trained under which ‖B(h_i − h_j)‖² is the number of edges
    between two words, and another one under which ‖B h_i‖² is a word's depth, by the absolute
    error over squared length (over length for depths), Adam at 1e-3, a tenth of that after each
    epoch without a new least loss on ``dev``, and an end after five. The sentences of ``test`` are
    scored: UUAS, the share of edges in the spanning tree of least distances, punctuation aside;
    DSpr, Spearman's correlation of the distances of each word, and NSpr that of depths, means over
    sentences of one length and then over lengths 5 to 50; root accuracy, the share of sentences
    whose word of least depth, punctuation aside, is the root.

    Beside the model stand one with random weights, the words in a line (distance
    :math:`|i - j|`, depth i), and a model with jump heads without its jumps, and the difference to
    that on the same sentences. Intervals are of 95 % over the sentences of ``test``.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        train: Sentences to train on, from :func:`read_treebank`.
        dev: Sentences by which training stops.
        test: Sentences that are scored.
        folder: Where states and trained probes are kept; the same call finds them again.
        layers: After which layers, 0 for the embeddings. (default: None, all)
        rank: Dimensions that B maps to, no more than states have; None for all of them, as in the
            source's code, while its paper sees no gain above 64 or 128. (default: 128)
        epochs: At most so many. (default: 30)
        seeds: A probe is trained for each; scores are means over them. (default: (0,))
        controls: Whether random weights and, of a model with jump heads, the model without its
            jumps are asked as well; each takes as long as the model. (default: True)

    Returns:
        A row for each model and layer; pictures ``tree-layers``, and of a sentence of 8 to 14 words
        of which as many edges are found as of all ``tree-arcs`` and ``tree-plane``.

    Raises:
        ValueError: If a set is empty, or a number is not in its range.

    Reference:
        Hewitt and Manning, *A Structural Probe for Finding Syntax in Word Representations*, 2019.
    """
    import pandas as pd

    asked, chosen = check_layers(model, layers), check_indices("seeds", seeds)
    means: dict[tuple[str, int | None], Scores] = {}
    studies: dict[str, TreeStudy] = {}
    for name, own in _compared(model, check_flag("controls", controls)):
        reader = WordReader(own, tokenizer, folder)
        study = TreeStudy.read(reader, train, dev, test, rank=rank, epochs=epochs)
        studies[name] = study
        for layer in track_progress(asked, f"Training probes, {name}", len(asked)):
            means[name, layer] = study.scores(layer, chosen)
    study = studies[MODEL]
    rows = means | {(CHAIN, None): chain_scores(study.test.trees)}
    for layer in asked if OFF in studies else ():
        change = means[MODEL, layer].values - means[OFF, layer].values
        rows[f"{MODEL} − {OFF}", layer] = Scores(study.test.trees, change)
    table = pd.DataFrame(
        [{"model": name, "layer": layer, **own.to_row()} for (name, layer), own in rows.items()]
    ).astype({"layer": "Int64"})
    best = max(asked, key=lambda layer: means[MODEL, layer].uuas)
    row = _usual_row(study.test.trees, means[MODEL, best])
    points = study.points(best, study.probe(DISTANCE, best, chosen[0]))[row]
    sentence = study.test.trees[row].sentence
    figures = {
        "tree-layers": _draw(table),
        "tree-arcs": draw_tree_arcs(sentence, squared_distances(points)),
        "tree-plane": draw_tree_plane(sentence, points),
    }
    settings = study.settings | {"layers": list(asked), "seeds": list(chosen)}
    return Findings("tree", CAPTION, table, settings, figures, ("model", "layer"))


def _compared(model: PreTrainedModel, controls: bool) -> Iterator[tuple[str, PreTrainedModel]]:
    """Yield a model; as controls itself without its jumps, and one that knows nothing."""
    yield MODEL, model
    if controls and attached_config(model) is not None:
        with disabled(model):
            yield OFF, model
    if controls:
        yield RANDOM, random_weights(model)


@dataclass(frozen=True)
class TreeStates:
    """The trees of the sentences that a model can read, and its states of their words."""

    trees: list[Tree]
    rows: Rows
    indices: list[int]  # of the trees in the rows

    def after(self, layer: int, device: torch.device) -> list[Tensor]:  # [n, D] each
        """Those after a layer, 0 for the embeddings."""
        own, starts = np.asarray(self.rows.values[layer]), self.rows.starts
        return [
            torch.tensor(own[starts[row] : starts[row + 1]], device=device) for row in self.indices
        ]


@dataclass(frozen=True)
class TreeStudy:
    """What a model makes of three sets of trees, and the probes of it in a folder."""

    folder: Path
    device: torch.device
    train: TreeStates
    dev: TreeStates
    test: TreeStates
    rank: int
    epochs: int

    @classmethod
    def read(
        cls,
        reader: WordReader,
        *sets: Sequence[Sentence],  # to train on, to stop by, and to score
        rank: int | None,
        epochs: int,
    ) -> TreeStudy:
        """Read all sentences."""
        check_integer("epochs", epochs, least=1)
        width = reader.model.config.hidden_size
        rank = width if rank is None else min(check_integer("rank", rank, least=1), width)
        found = []
        for name, own in zip(("train", "dev", "test"), sets, strict=True):
            if not own:
                raise ValueError(f"{name} must hold a sentence, got none")
            rows = reader.read_states([sentence.words for sentence in own])
            kept = [row for row in range(len(own)) if row not in rows.left_out]
            found.append(TreeStates([Tree(own[row]) for row in kept], rows, kept))
        train, dev, test = found
        return cls(Path(reader.folder), reader.model.device, train, dev, test, rank, epochs)

    @property
    def settings(self) -> dict[str, Any]:
        """What numbers depend on, in JSON types."""
        parts = {"train": self.train, "dev": self.dev, "test": self.test}
        return {
            "sentences": {name: len(part.trees) for name, part in parts.items()},
            "left_out": {name: len(part.rows.left_out) for name, part in parts.items()},
            "rank": self.rank,
            "epochs": self.epochs,
        }

    def probe(self, kind: str, layer: int, seed: int, power: float = 2.0) -> Tensor:  # [D, R]
        """Return the trained probe, from the folder if it is there."""
        sets = [self.train, self.dev]
        made_of = [VERSION, self.epochs, self.rank, kind, layer, seed, power]
        trees = [[tree.sentence.heads for tree in part.trees] for part in sets]
        name = digest([made_of, trees, [part.rows.name for part in sets]])[:16]
        path = self.folder / f"probe-{name}.npy"
        if path.exists():
            return torch.from_numpy(np.load(path, allow_pickle=False)).to(self.device)
        batches = [
            tree_batches(part.after(layer, self.device), part.trees, kind, seed) for part in sets
        ]
        found = train_probe(batches[0], batches[1], kind, power, self.rank, self.epochs, seed)
        with replacing(path) as temporary:
            np.save(temporary, found.cpu().numpy())
        return found

    def points(self, layer: int, projection: Tensor | None) -> list[Tensor]:  # [n, R] each
        """Return the words of each sentence of the test set in the space of a probe, or in none."""
        own = self.test.after(layer, self.device)
        return own if projection is None else [states @ projection for states in own]

    def scores(self, layer: int, seeds: Sequence[int]) -> Scores:
        """Return the scores of a layer's two probes on the test set, means over seeds."""
        values = []
        for seed in seeds:
            near, deep = (
                self.points(layer, self.probe(kind, layer, seed)) for kind in (DISTANCE, DEPTH)
            )
            values.append(
                [
                    tree_scores(
                        tree,
                        squared_distances(one).double().cpu().numpy(),
                        other.square().sum(-1).double().cpu().numpy(),
                    )
                    for tree, one, other in zip(self.test.trees, near, deep, strict=True)
                ]
            )
        return Scores(self.test.trees, np.mean(values, axis=0))


def tree_scores(tree: Tree, distances: Floats, depths: Floats) -> tuple[float, ...]:
    """Return edges that the spanning tree finds, DSpr, whether the root is found, and NSpr."""
    hits = len(tree.edges & spanning_tree(distances, tree.shown))
    near = rank_correlation(distances, tree.distances).mean()
    found = tree.shown[int(depths[tree.shown].argmin())] if tree.shown else None
    deep = rank_correlation(depths, tree.depths)
    return float(hits), float(near), float(found == tree.sentence.root), float(deep)


def chain_scores(trees: Sequence[Tree]) -> Scores:
    """Return the scores of trees that are lines from the first word to the last."""
    lines = [np.arange(len(tree), dtype=float) for tree in trees]
    values = [
        tree_scores(tree, np.abs(line[:, None] - line), line)
        for tree, line in zip(trees, lines, strict=True)
    ]
    return Scores(trees, np.array(values))


def rank_correlation(one: Floats, other: Floats) -> Floats:  # [..., n] -> [...]
    """Return Spearman's correlation along the last axis; 0 where a side is the same everywhere.

    scipy's spearmanr would correlate every row with every other, and has NaN for such sides.
    """
    from scipy.stats import rankdata

    ranks = [rankdata(side, axis=-1) for side in (one, other)]
    first, second = (side - side.mean(-1, keepdims=True) for side in ranks)
    scale = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    found: Floats = (first * second).sum(-1) / np.where(scale > 0, scale, 1.0)
    return found


@dataclass(frozen=True)
class Scores:
    """The scores of S sentences, ``[S, 4]`` as in MEASURES; differences of two are scores, too."""

    trees: Sequence[Tree]
    values: Floats

    @property
    def uuas(self) -> float:
        """The share of all edges that are found."""
        return float(self.values[:, 0].sum()) / max(sum(len(tree.edges) for tree in self.trees), 1)

    def to_row(self) -> dict[str, float]:
        """Return each measure with the ends of its interval over sentences."""
        lengths = np.array([len(tree) for tree in self.trees])
        own = lengths[:, None] == LENGTHS  # [S, lengths]
        totals: dict[str, Any] = {
            UUAS: [len(tree.edges) for tree in self.trees],
            ROOT: [bool(tree.shown) for tree in self.trees],
        }
        row: dict[str, float] = {}
        for name, values in zip(MEASURES, self.values.T, strict=True):
            if name in totals:
                found = resampled_ratio(values, totals[name])
            else:
                found = resampled(np.stack([values[:, None] * own, own], -1), _mean_of_ratios)
            ends = (name, f"{name} low", f"{name} high")
            row |= dict(zip(ends, map(float, found), strict=True))
        return row


def _mean_of_ratios(sums: Floats) -> Floats:  # [n, lengths, 2] -> [n]
    """The mean over lengths of the mean over sentences of that length."""
    ratios = sums[..., 0] / sums[..., 1]
    there = ~np.isnan(ratios)
    found: Floats = np.where(there, ratios, 0.0).sum(-1) / there.sum(-1)
    return found


def _usual_row(trees: Sequence[Tree], scores: Scores) -> int:
    """The sentence to draw, which is like all."""

    def oddness(row: int) -> tuple[bool, float]:
        share = scores.values[row, 0] / max(len(trees[row].edges), 1)
        return len(trees[row].shown) not in DRAWN, abs(share - scores.uuas)

    return min(range(len(trees)), key=oddness)


def _draw(table: pd.DataFrame) -> Figure:
    """Draw the four measures over layers, and those of words in a line."""
    figure = new_figure(9.5, 6.5)
    axes = figure.subplots(2, 2).ravel()
    models = [name for name in (MODEL, OFF, RANDOM) if (table["model"] == name).any()]
    line = table[table["model"] == CHAIN].iloc[0]
    for axis, measure in zip(axes, MEASURES, strict=True):
        for style, name in enumerate(models):
            draw_layers(axis, table[table["model"] == name], "layer", measure, style, name)
        axis.axhline(line[measure], color=QUIET, linestyle="--", label=CHAIN)
        axis.set_title(measure, fontsize=10)
    add_legend(figure, axes[0])
    return figure
