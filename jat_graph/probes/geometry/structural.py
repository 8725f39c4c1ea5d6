"""The structural probe of Hewitt and Manning: trees by layer, against what cannot know them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from jat_graph.checks.numbers import check_flag, check_indices, check_integer
from jat_graph.probes.findings import Findings
from jat_graph.probes.geometry.measures import UUAS, Scores, depth_scores, tree_scores
from jat_graph.probes.geometry.measuring_pictures import draw_measures
from jat_graph.probes.geometry.pictures import draw_tree_arcs, draw_tree_plane
from jat_graph.probes.geometry.study import (
    MODEL,
    OFF,
    Study,
    Training,
    TreeSets,
    compared,
    settings_of,
)
from jat_graph.probes.geometry.training import (
    DEPTH,
    DISTANCE,
    squared_distances,
    squared_lengths,
)
from jat_graph.probes.geometry.trees import Tree
from jat_graph.probes.treebank import Sentence
from jat_graph.probes.words import check_layers
from jat_graph.progress import watched

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CHAIN, DIFFERENCE = "words in a line", f"{MODEL} − {OFF}"
DRAWN = range(8, 15)  # words of a sentence that is drawn


class _Place(NamedTuple):
    """Which model and layer."""

    model: str
    layer: int


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
    most: int | None = 4000,
    epochs: int = 30,
    seeds: Sequence[int] = (0,),
    drawn: int | None = None,
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
        most: How many sentences of ``train`` to take, evenly over it; None for all.
            (default: 4000)
        epochs: At most so many. (default: 30)
        seeds: A probe is trained for each; scores are means over them. (default: (0,))
        drawn: Place in ``test`` of a sentence that is drawn. (default: None, one of 8 to 14 words
            of which as many edges are found as of all)
        controls: Whether random weights and, of a model with jump heads, the model without its
            jumps are asked as well; each takes as long as the model. (default: True)

    Returns:
        A row for each model and layer; pictures ``tree-layers``, ``tree-arcs`` and ``tree-plane``.

    Raises:
        ValueError: If a set is empty, or a number is not in its range.

    Reference:
        Hewitt and Manning, *A Structural Probe for Finding Syntax in Word Representations*, 2019.
    """
    sets, training = TreeSets(train, dev, test, most), Training(rank, epochs)
    asked, chosen = check_layers(model, layers), check_indices("seeds", seeds)
    if drawn is not None:
        check_integer("drawn", drawn, least=0, below=len(test))
    found: dict[_Place, list[Scores]] = {}
    studies: dict[str, Study] = {}
    for name, own in compared(model, check_flag("controls", controls)):
        study = studies[name] = Study.read(folder, own, tokenizer, sets, training)
        places = [(layer, seed) for layer in asked for seed in chosen]
        for layer, seed in watched(places, f"Training probes, {name}", len(places)):
            found.setdefault(_Place(name, layer), []).append(probe_scores(study, layer, seed))
    means = {place: _mean(scores) for place, scores in found.items()}
    rows = list(_rows(means, studies[MODEL]))
    best = max(asked, key=lambda layer: means[_Place(MODEL, layer)].uuas)
    row = _drawn_row(studies[MODEL], means[_Place(MODEL, best)], drawn)
    figures = {"tree-layers": draw_measures(rows)}
    figures |= _sentence_figures(studies[MODEL], best, chosen[0], row)
    settings = settings_of(studies[MODEL], layers=list(asked), seeds=list(chosen))
    caption = _caption(settings, rows, best, found)
    return Findings("tree", caption, _table(rows), settings, figures, ("model", "layer"))


def probe_scores(study: Study, layer: int, seed: int) -> Scores:
    """The scores of a layer's two probes on the test set."""
    probes = [study.probe(kind, layer, seed) for kind in (DISTANCE, DEPTH)]
    both = (study.points(layer, projection) for projection in probes)
    values = [
        (
            *tree_scores(tree, _floats(squared_distances(near))),
            *depth_scores(tree, _floats(squared_lengths(deep))),
        )
        for tree, near, deep in zip(study.test.trees, *both, strict=True)
    ]
    return Scores(study.test.trees, np.array(values))


def chain_scores(trees: tuple[Tree, ...]) -> Scores:
    """The scores of trees that are lines from the first word to the last."""
    values = []
    for tree in trees:
        place = np.arange(len(tree), dtype=float)
        apart = np.abs(place[:, None] - place)
        values.append((*tree_scores(tree, apart), *depth_scores(tree, place)))
    return Scores(trees, np.array(values))


def _floats(values: Tensor) -> Any:
    return values.double().cpu().numpy()


def _mean(scores: Sequence[Scores]) -> Scores:
    """The mean over seeds, sentence by sentence."""
    return Scores(scores[0].trees, np.mean([own.values for own in scores], axis=0))


def _rows(means: Mapping[_Place, Scores], study: Study) -> Iterator[dict[str, Any]]:
    """Yield the table: models, the line, and what jump heads change."""
    for place, scores in means.items():
        yield {**place._asdict(), **scores.to_row()}
    yield {"model": CHAIN, "layer": None, **chain_scores(study.test.trees).to_row()}
    for place, scores in means.items():
        if place.model == MODEL and (off := means.get(_Place(OFF, place.layer))) is not None:
            change = scores - off
            yield {"model": DIFFERENCE, "layer": place.layer, **change.to_row()}


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame(rows).astype({"layer": "Int64"})


def _drawn_row(study: Study, scores: Scores, drawn: int | None) -> int:
    """The row of the sentence to draw: the one that was asked for, or one that is like all."""
    if drawn is not None:
        if drawn not in study.test.places:
            raise ValueError(f"drawn must be a sentence that the model can read, got {drawn}")
        return study.test.places.index(drawn)

    def oddness(row: int) -> tuple[bool, float]:
        tree = study.test.trees[row]
        share = scores.values[row, 0] / max(len(tree.edges), 1)
        return len(tree.shown) not in DRAWN, abs(share - scores.uuas)

    return min(range(len(study.test.trees)), key=oddness)


def _sentence_figures(study: Study, layer: int, seed: int, row: int) -> dict[str, Figure]:
    projection = study.probe(DISTANCE, layer, seed)
    points = list(study.points(layer, projection))[row]
    sentence = study.test.trees[row].sentence
    return {
        "tree-arcs": draw_tree_arcs(sentence, squared_distances(points)),
        "tree-plane": draw_tree_plane(sentence, points),
    }


def _caption(
    settings: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    best: int,
    found: Mapping[_Place, Sequence[Scores]],
) -> str:
    """Say what was measured, the best layer, and what that is to be held against."""
    values = {(row["model"], row["layer"]): row for row in rows}
    own, line = values[MODEL, best], values[CHAIN, None]
    sizes, left = settings["sentences"], settings["left_out"]["test"]
    spread = max(np.ptp([own.uuas for own in scores]) for scores in found.values())
    seeds = len(settings["seeds"])
    return (
        f"Trees in the distances between words: linear maps to {settings['rank']} dimensions, "
        f"trained on {sizes['train']} sentences, stopped by {sizes['dev']}, scored on "
        f"{sizes['test']}"
        + (f" ({left} that the model cannot take whole are left out)" if left else "")
        + f". Layer {best} of the model holds the most on these sentences: {own[UUAS]:.1%} of "
        f"the edges ({own['UUAS low']:.1%} to {own['UUAS high']:.1%}); words in a line have "
        f"{line[UUAS]:.1%}. Layer 0 knows words and their places alone, and random weights nothing "
        "that was learnt: what counts is what is above both. Low and high are the "
        "ends of intervals of 95 % over sentences"
        + (
            f"; scores are means over {seeds} seeds, which differ by at most {spread:.3f} in UUAS"
            if seeds > 1
            else ""
        )
        + ". A map that finds trees does not show that the model uses them."
    )
