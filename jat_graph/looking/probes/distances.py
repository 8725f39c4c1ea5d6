"""Squared distances against those of trees, other powers of them, and those of each relation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jat_graph.core.numbers import check_finite, check_integer
from jat_graph.core.progress import track_progress
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.drawing import (
    COLOURS,
    QUIET,
    ROW,
    Figure,
    add_legend,
    draw_lines,
    draw_rows,
)
from jat_graph.looking.probes.findings import (
    Findings,
    Floats,
    resampled,
    resampled_mean,
    with_ends,
)
from jat_graph.looking.probes.structural import DISTANCE, TreeStudy
from jat_graph.looking.probes.treebank import Sentence
from jat_graph.looking.probes.trees import squared_distances
from jat_graph.looking.probes.words import WordReader, check_layers
from jat_graph.looking.viz.figures import PAGE, new_figure

SQUARE = 2.0
UNPROBED, SQUARED, OWN = "none", "for squares", "for this power"
MOST_EDGES = 12  # of distances that are drawn: of longer ones there are few
SPREAD = ("deviation", "lower quartile", "median", "upper quartile")

CAPTION = (
    "How well a power of the distance between two words after a layer equals the number of edges "
    "between them: without a map, with one that was trained for squares, which favours squares, "
    "and with one that was trained for the power. R² is the share of the variance of d that d = "
    "distance^power / a explains, below 0 if the mean of d would do better; low and high are the "
    "ends of 95 % intervals over sentences."
)
RELATIONS = (
    "Squared distance between a word and its head in the space of a structural probe, by relation; "
    "1 is the distance in the tree. Low and high are the ends of 95 % intervals over sentences, "
    "deviation and quartiles are those of single pairs; rare relations are left out."
)


def tree_distances(
    reader: WordReader,
    train: Sequence[Sentence],
    dev: Sequence[Sentence],
    test: Sequence[Sentence],
    *,
    layer: int | None = None,
    powers: Sequence[float] = (1.0, 1.5, 2.0, 3.0, 4.0),
    least: int = 30,
    rank: int | None = 128,
    epochs: int = 30,
    seed: int = 0,
) -> tuple[Findings, Findings]:
    """Hold powers of the distance between states against the distance in the tree.

    A tree has an exact embedding in which *squared* distances are its own; with other powers some
    trees have none. For each power p and all pairs of words in ``test`` the number of edges d is
    fitted as d = ‖B(h_i − h_j)‖^p / a: with no map B, with one trained for squares, and with one
    trained for this power. In the space of the map for squares the squared distance between word
    and head would be 1 for each relation, if the space held the trees and nothing else. Subtypes
    of relations are counted with their relation.

    Args:
        reader, train, dev, epochs: As for :func:`structural_probe`.
        test: Sentences that are measured.
        layer: After which layer, 0 for the embeddings. (default: None, the middle one)
        powers: The powers p. (default: (1, 1.5, 2, 3, 4))
        least: How often a relation must be there to have a row. (default: 30)
        rank: Dimensions that B maps to; None for as many as states have. (default: 128)
        seed: Of training. (default: 0)

    Returns:
        Findings ``distance``, a row for each map and power: the unit a, the share R² of the
        variance of d that is fitted with its 95 % interval, and the error in edges, root mean
        square. And ``relations``, a row for each relation, the shortest first: how often it is
        there, the mean squared distance with its interval, deviation and quartiles.

    Raises:
        ValueError: If a set is empty, a number is out of range, or no relation is there so often.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 3.2.
    """
    asked = [check_finite("powers", power, least=1e-3) for power in np.atleast_1d(powers).tolist()]
    check_integer("seed", seed, least=0)
    check_integer("least", least, least=1)
    middle = reader.model.config.num_hidden_layers // 2
    (chosen,) = check_layers(reader, [middle if layer is None else layer])
    study = TreeStudy(reader, train, dev, test, rank=rank, epochs=epochs)
    trees = study.trees[-1]

    def squares_of(power: float | None) -> list[Floats]:  # [n, n] each; None for no map
        probe = None if power is None else study.probe(DISTANCE, chosen, seed, power)
        points = study.points(chosen, probe)
        return [squared_distances(own.double()).cpu().numpy() for own in points]

    squares, rows = squares_of(SQUARE), []
    known = {UNPROBED: squares_of(None), SQUARED: squares}
    for power in track_progress(asked, "Fitting powers", len(asked)):
        own = squares if power == SQUARE else squares_of(power)
        for name, one in (known | {OWN: own}).items():
            rows.append({"map": name, "power": power, **fit_row(trees, one, power)})
    table, relations = pd.DataFrame(rows), relation_table(trees, squares, least)
    edges = np.concatenate([_upper(tree.distances) for tree in trees])
    by_edges = pd.Series(np.concatenate([_upper(one) for one in squares])).groupby(edges)
    settings = study.settings | {"layer": chosen, "seed": seed}
    figures = {"distance": _draw_powers(table, by_edges)}, {"relations": _draw_relations(relations)}
    powered, least_often = settings | {"powers": asked}, settings | {"least": least}
    return (
        Findings("distance", CAPTION, table, powered, figures[0], ("map", "power")),
        Findings("relations", RELATIONS, relations, least_often, figures[1], ("relation",)),
    )


def _upper(square: Floats) -> Floats:  # [n, n] -> [n (n - 1) / 2]
    return square[np.triu_indices(len(square), 1)]


def fit_row(trees: Sequence[Sentence], squares: Sequence[Floats], power: float) -> dict[str, float]:
    """Return the fit of numbers of edges d as y / a by least squares; y is the power."""
    rows = []
    for tree, own in zip(trees, squares, strict=True):
        d, y = _upper(tree.distances), _upper(own) ** (power / 2)
        rows.append((len(d), d.sum(), (d * d).sum(), (d * y).sum(), (y * y).sum()))
    sums = np.array(rows)  # [S, 5], of which intervals are made

    def explained(own: Floats) -> Any:  # 1 − Σ (d − y / a)² / Σ (d − mean)², at the best a
        n, d, dd, dy, yy = np.moveaxis(own, -1, 0)
        return 1 - (dd - dy**2 / yy) / (dd - d**2 / n)

    n, _, dd, dy, yy = sums.sum(0)
    row = {"a": float(yy / dy), **with_ends("R²", resampled(sums, explained))}
    return row | {"error in edges": float(np.sqrt((dd - dy**2 / yy) / max(n, 1)))}


def relation_table(
    trees: Sequence[Sentence], squares: Sequence[Floats], least: int
) -> pd.DataFrame:
    """Return squared distances between word and head by relation, the shortest first."""
    pairs = [
        (row, tree.relations[word].split(":")[0], float(own[word, head]))
        for row, (tree, own) in enumerate(zip(trees, squares, strict=True))
        for word, head in tree.edges
    ]
    rows = []
    for relation, own in pd.DataFrame(pairs, columns=["row", "relation", "d"]).groupby("relation"):
        if len(own) >= least:
            row = {"relation": relation, "count": len(own)}
            row |= with_ends("mean", resampled_mean(own["d"], own["row"], len(trees)))
            quartiles = own["d"].quantile([0.25, 0.5, 0.75])
            cells = own["d"].std(ddof=0), *quartiles
            rows.append(row | dict(zip(SPREAD, cells, strict=True)))
    if not rows:
        raise ValueError(f"test must hold a relation {least} times, got none")
    return pd.DataFrame(rows).sort_values("mean", kind="stable", ignore_index=True)


def _draw_powers(table: pd.DataFrame, by_edges: Any) -> Figure:
    """Draw squared distances by number of edges, and how well each power fits."""
    figure = new_figure(PAGE, 3.2)
    left, right = figure.subplots(1, 2)
    near = by_edges.quantile([0.25, 0.75]).unstack().loc[:MOST_EDGES]
    look: Any = {"color": COLOURS[0], "alpha": 0.25, "label": "middle half of the pairs"}
    left.fill_between(near.index, near[0.25], near[0.75], **look)
    left.plot(near.index, by_edges.mean().loc[:MOST_EDGES], "o-", color=COLOURS[0], label="mean")
    left.plot(near.index, near.index, color=QUIET, linestyle="--", label="as the tree says")
    left.set_title("In the space of the probe for squares", fontsize=9)
    left.set_xlabel("edges between two words", fontsize=9)
    left.set_ylabel("squared distance", fontsize=9)
    left.tick_params(labelsize=8)
    draw_lines(right, table, "map", "power", "R²")
    right.set_title("Number of edges as a power of the distance", fontsize=9)
    right.set_ylabel("R² (95 % intervals)", fontsize=9)
    left.legend(fontsize=8, frameon=False)
    right.legend(fontsize=8, frameon=False, title="map")
    return figure


def _draw_relations(table: pd.DataFrame) -> Figure:
    """Draw the mean squared distance of each relation, its interval, and its quartiles."""
    figure = new_figure(PAGE, 1.0 + ROW * len(table))
    axis = figure.subplots()
    band: Any = {"color": QUIET, "alpha": 0.5, "lw": 5, "label": "middle half of the pairs"}
    axis.hlines(range(len(table)), table["lower quartile"], table["upper quartile"], **band)
    names = [f"{row.relation} ({row.count})" for row in table.itertuples(index=False)]
    label = "squared distance between word and head (in brackets: how many pairs)"
    draw_rows(axis, {"mean, 95 %": (table, "mean")}, names, label)
    axis.axvline(1, color=COLOURS[1], linestyle="--", label="as the tree says")
    return add_legend(figure, axis)
