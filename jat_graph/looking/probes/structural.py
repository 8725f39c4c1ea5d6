"""The structural probe of Hewitt and Manning: trees by layer, against what cannot know them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import ReduceLROnPlateau

from jat_graph.core.extras import import_extra
from jat_graph.core.files import replacing
from jat_graph.core.numbers import check_flag, check_indices, check_integer
from jat_graph.core.progress import track_progress
from jat_graph.hf import attached_config, disabled
from jat_graph.looking.data.reading import digest
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.drawing import QUIET, add_legend, draw_lines
from jat_graph.looking.probes.findings import (
    Findings,
    Floats,
    resampled,
    resampled_ratio,
    with_ends,
)
from jat_graph.looking.probes.treebank import Sentence
from jat_graph.looking.probes.words import (
    WordReader,
    check_layers,
    random_weights,
    read_states,
    readable,
)
from jat_graph.looking.viz.figures import PAGE, Figure, new_figure

# States [B, L, D] of sentences of about one length; their distances [B, L, L] or depths [B, L]; and
# 1 over how many pairs or words a sentence has, 0 in padding.
Batch: TypeAlias = tuple[Tensor, Tensor, Tensor]

DISTANCE, DEPTH = "distance", "depth"
# As in the source's code.
LEARNING_RATE, DROP, BATCH_SIZE, START = 1e-3, 0.1, 20, 0.05
MARGIN, PATIENCE = 1e-4, 5  # by how much the loss must fall, and for how many epochs it may not

MODEL, OFF, RANDOM, CHAIN = "model", "jumps off", "random weights", "words in a line"
UUAS, DSPR, ROOT, NSPR = MEASURES = ("UUAS", "DSpr", "root accuracy", "NSpr")
LENGTHS = np.arange(5, 51)  # of sentences whose correlations count

VERSION = 2  # of how probes are trained

CAPTION = (
    "Trees in the distances between words, found by linear maps of a model's states. Layer 0 has "
    "words and their order alone, and random weights have learned nothing: what counts is what is "
    "above both, and above words in a line. Low and high are the ends of 95 % intervals over "
    "sentences; scores are means over seeds. A map that finds trees does not show that the model "
    "uses them."
)


def structural_probe(
    reader: WordReader,
    train: Sequence[Sentence],
    dev: Sequence[Sentence],
    test: Sequence[Sentence],
    *,
    layers: Sequence[int] | None = None,
    rank: int | None = 128,
    epochs: int = 30,
    seeds: Sequence[int] = (0,),
    controls: bool = True,
) -> Findings:
    """Ask how much of dependency trees is in the distances between states of words.

    For each layer a linear map B is trained under which ‖B(h_i − h_j)‖² is the number of edges
    between two words, and another one under which ‖B h_i‖² is a word's depth. UUAS is the share of
    edges in the spanning tree of least distances, punctuation aside; DSpr Spearman's correlation
    of the distances of each word, and NSpr that of depths, means over sentences of one length and
    then over lengths 5 to 50; root accuracy the share of sentences whose word of least depth,
    punctuation aside, is the root. Beside the model stand one with random weights, the words in a
    line, and a model with jump heads without its jumps, and the difference to that.

    Args:
        reader: A model, and where its states and trained probes are kept.
        train: Sentences to train on, from :func:`read_treebank`.
        dev: Sentences by which training stops.
        test: Sentences that are scored.
        layers: After which layers, 0 for the embeddings. (default: None, all)
        rank: Dimensions that B maps to, no more than states have; None for all of them, as in the
            source's code, while its paper sees no gain above 64 or 128. (default: 128)
        epochs: At most so many. (default: 30)
        seeds: A probe is trained for each; scores are means over them. (default: (0,))
        controls: Whether random weights and the model without its jumps are asked as well; each
            takes as long as the model. (default: True)

    Returns:
        Rows for models and layers, 95 % intervals over sentences, and a picture ``tree-layers``.

    Raises:
        ValueError: If a set is empty, or a number is not in its range.

    Reference:
        Hewitt and Manning, *A Structural Probe for Finding Syntax in Word Representations*, 2019.
    """
    asked = check_layers(reader, layers)
    chosen = check_indices("seeds", seeds)
    check_flag("controls", controls)
    sets = {"train": train, "dev": dev, "test": test}
    study = TreeStudy(reader, sets, rank, epochs)
    studies = {MODEL: study}
    if controls and attached_config(reader.model) is not None:
        with disabled(reader.model):
            studies[OFF] = TreeStudy(reader, sets, rank, epochs)
    if controls:
        twin = replace(reader, model=random_weights(reader.model))
        studies[RANDOM] = TreeStudy(twin, sets, rank, epochs)
    scores: dict[tuple[str, int | None], Floats] = {}
    for name, own in studies.items():
        for layer in track_progress(asked, f"Training probes, {name}", len(asked)):
            scores[name, layer] = own.scores(layer, chosen)
    trees = study.trees[-1]
    lines = [np.arange(len(tree), dtype=float) for tree in trees]
    both = zip(trees, lines, strict=True)
    chain = [tree_scores(tree, np.abs(line[:, None] - line), line) for tree, line in both]
    scores[CHAIN, None] = np.array(chain)
    for layer in asked if OFF in studies else ():
        scores[f"{MODEL} − {OFF}", layer] = scores[MODEL, layer] - scores[OFF, layer]
    rows = [
        {"model": name, "layer": layer, **score_row(trees, own)}
        for (name, layer), own in scores.items()
    ]
    table = pd.DataFrame(rows).astype({"layer": "Int64"})
    settings = study.settings | {"layers": list(asked), "seeds": list(chosen)}
    figures = {"tree-layers": _draw(table)}
    return Findings("tree", CAPTION, table, settings, figures)


class TreeStudy:
    """What a model makes of trees to train on, to stop by and to score, and the probes of it."""

    def __init__(
        self, reader: WordReader, sets: dict[str, Any], rank: int | None, epochs: int
    ) -> None:
        self.reader = reader
        self.epochs = check_integer("epochs", epochs, least=1)
        width = reader.model.config.hidden_size
        self.rank = width if rank is None else min(check_integer("rank", rank, least=1), width)
        self.trees = readable(reader, **sets)
        self.rows = [read_states(reader, own) for own in self.trees]
        sizes = dict(zip(sets, map(len, self.trees), strict=True))
        left_out = {name: len(own) - sizes[name] for name, own in sets.items()}
        self.settings: dict[str, Any] = {"sentences": sizes, "left_out": left_out}
        self.settings |= {"rank": self.rank, "epochs": epochs}  # in JSON types

    def points(self, part: int, layer: int, projection: Tensor | None = None) -> list[Tensor]:
        """Return the states of each tree of a set after a layer, or these in a probe's space."""
        states = torch.tensor(self.rows[part][layer], device=self.reader.model.device)
        states = states if projection is None else states @ projection
        return list(torch.split(states, list(map(len, self.trees[part]))))  # [n, D] or [n, R]

    def probe(self, kind: str, layer: int, seed: int) -> Tensor:  # [D, R]
        """Return the trained probe, from the folder if it is there."""
        made_of = [VERSION, self.epochs, self.rank, kind, layer, seed]
        trees = [[tree.heads for tree in own] for own in self.trees[:2]]
        name = digest([made_of, trees, [Path(rows.filename).stem for rows in self.rows[:2]]])[:16]
        path = Path(self.reader.folder) / f"probe-{name}.npy"
        if path.exists():
            return torch.from_numpy(np.load(path, allow_pickle=False)).to(self.reader.model.device)
        train, dev = (
            tree_batches(self.points(part, layer), self.trees[part], kind, seed) for part in (0, 1)
        )
        found = train_probe(train, dev, self.rank, self.epochs, seed)
        with replacing(path) as temporary:
            np.save(temporary, found.cpu().numpy())
        return found

    def scores(self, layer: int, seeds: Sequence[int]) -> Any:  # [S, 4]
        """Return the scores of a layer's two probes on the test set, means over seeds."""
        values = []
        for seed in seeds:
            near, deep = (
                self.points(-1, layer, self.probe(kind, layer, seed)) for kind in (DISTANCE, DEPTH)
            )
            found = []
            for tree, one, other in zip(self.trees[-1], near, deep, strict=True):
                both = squared_distances(one), other.square().sum(-1)
                found.append(tree_scores(tree, *(part.double().cpu().numpy() for part in both)))
            values.append(found)
        return np.mean(values, axis=0)


def tree_batches(
    states: Sequence[Tensor], trees: Sequence[Sentence], kind: str, seed: int
) -> list[Batch]:
    """Batch sentences of about one length, which of them together is left to chance."""
    chance = np.random.default_rng(seed).random(len(trees))
    order = np.lexsort((chance, np.array([len(tree) for tree in trees])))
    found = []
    for rows in np.split(order, range(BATCH_SIZE, len(order), BATCH_SIZE)):
        padded = pad_sequence([states[row] for row in rows], batch_first=True)
        targets, weights = [], []
        for tree in (trees[row] for row in rows):
            numbers = tree.distances if kind == DISTANCE else tree.distances[tree.root]
            target = torch.from_numpy(numbers).float()
            # A word and itself are no pair.
            asked = target > 0 if kind == DISTANCE else torch.ones_like(target)
            padding = (0, padded.shape[1] - len(tree)) * target.dim()
            targets.append(F.pad(target, padding))
            weights.append(F.pad(asked / target.numel(), padding))
        device = padded.device
        found.append((padded, torch.stack(targets).to(device), torch.stack(weights).to(device)))
    return found


def tree_loss(batch: Batch, projection: Tensor) -> Tensor:
    """Return the sum over sentences of the mean absolute error."""
    states, target, weight = batch
    points = states @ projection
    found = points.square().sum(-1) if target.dim() == 2 else squared_distances(points)
    return ((found - target).abs() * weight).sum()


def train_probe(
    train: Sequence[Batch], dev: Sequence[Batch], rank: int, epochs: int, seed: int
) -> Tensor:  # B transposed, [D, R]
    """Train a probe as Hewitt and Manning 2019 do, until the loss on ``dev`` falls no more."""
    generator = torch.Generator().manual_seed(seed)
    states = train[0][0]
    start = torch.empty(states.shape[-1], rank).uniform_(-START, START, generator=generator)
    projection = start.to(states.device).requires_grad_()
    optimizer = torch.optim.Adam([projection], lr=LEARNING_RATE)
    scheduler = ReduceLROnPlateau(optimizer, factor=DROP, patience=0)
    best = projection.detach().clone()
    least = math.inf
    waited = 0
    for _ in range(epochs):
        for index in torch.randperm(len(train), generator=generator).tolist():
            optimizer.zero_grad()
            loss = tree_loss(train[index], projection) / len(train[index][0])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            total = sum(float(tree_loss(batch, projection)) for batch in dev)
        mean = total / sum(len(states) for states, _, _ in dev)
        scheduler.step(mean)
        if mean < least - MARGIN:
            best = projection.detach().clone()
            least = mean
            waited = 0
        elif (waited := waited + 1) == PATIENCE:
            break
    return best


def squared_distances(points: Tensor) -> Tensor:  # [..., L, R] -> [..., L, L]
    """Return ‖p_i − p_k‖² of all pairs; around their mean, where rounding is least."""
    centred = points - points.mean(-2, keepdim=True)
    norms = centred.square().sum(-1)
    found = norms[..., :, None] + norms[..., None, :] - 2 * centred @ centred.mT
    return found.clamp(min=0.0)


def tree_scores(tree: Sentence, distances: Floats, depths: Floats) -> tuple[float, ...]:
    """Return edges that the spanning tree finds, DSpr, whether the root is found, and NSpr."""
    minimum_spanning_tree = import_extra("scipy.sparse.csgraph").minimum_spanning_tree
    # A distance of 0 is no edge there. All trees have as many edges: a constant changes none.
    own = distances[np.ix_(tree.shown, tree.shown)] + 1.0
    rows, columns = np.sort(np.take(tree.shown, minimum_spanning_tree(own).nonzero()), axis=0)
    hits = len(tree.shown_edges.intersection(zip(rows.tolist(), columns.tolist(), strict=True)))
    near = rank_correlation(distances, tree.distances).mean()
    found = tree.shown[int(depths[tree.shown].argmin())] if tree.shown else None
    deep = rank_correlation(depths, tree.distances[tree.root])
    return float(hits), float(near), float(found == tree.root), float(deep)


def rank_correlation(one: Floats, other: Floats) -> Any:  # [..., n] -> [...]
    """Return Spearman's correlation along the last axis; 0 where a side is the same everywhere."""
    # scipy's spearmanr would correlate every row with every other, and has NaN for such sides.
    ranks = [import_extra("scipy.stats").rankdata(side, axis=-1) for side in (one, other)]
    first, second = (side - side.mean(-1, keepdims=True) for side in ranks)
    scale = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    return (first * second).sum(-1) / np.where(scale > 0, scale, 1.0)


def score_row(trees: Sequence[Sentence], values: Floats) -> dict[str, float]:  # [S, 4]
    """Return each measure of scores, or of their differences, with the ends of its interval."""
    own = np.array([len(tree) for tree in trees])[:, None] == LENGTHS  # [S, lengths]

    def mean_of_lengths(sums: Floats) -> Any:  # [n, lengths, 2] -> [n]
        ratios = sums[..., 0] / sums[..., 1]
        there = ~np.isnan(ratios)
        return np.where(there, ratios, 0.0).sum(-1) / there.sum(-1)

    row: dict[str, float] = {}
    totals: dict[str, Any] = {
        UUAS: [len(tree.shown_edges) for tree in trees],
        ROOT: [bool(tree.shown) for tree in trees],
    }
    for name, column in zip(MEASURES, values.T, strict=True):
        if name in totals:
            row |= with_ends(name, resampled_ratio(column, totals[name]))
        else:
            sums = np.stack([column[:, None] * own, own], -1)
            row |= with_ends(name, resampled(sums, mean_of_lengths))
    return row


def _draw(table: pd.DataFrame) -> Figure:
    figure = new_figure(PAGE, 4.6)
    axes = figure.subplots(2, 2).ravel()
    models, line = (table[table["model"].isin(own)] for own in ((MODEL, OFF, RANDOM), (CHAIN,)))
    for axis, measure in zip(axes, MEASURES, strict=True):
        draw_lines(axis, models, measure)
        axis.axhline(line[measure].item(), color=QUIET, linestyle="--", label=CHAIN)
        axis.set_ylabel(f"{measure} (95 %)", fontsize=9)
    return add_legend(figure, axes[0])
