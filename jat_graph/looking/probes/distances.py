"""Squared distances against those of trees, other powers of them, and those of each relation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from jat_graph.core.extras import import_extra
from jat_graph.core.numbers import check_finite, check_integer
from jat_graph.core.progress import track_progress
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.drawing import QUIET, draw_lines, draw_rows
from jat_graph.looking.probes.findings import Findings, Floats, resampled, resampled_mean, with_ends
from jat_graph.looking.probes.structural import DISTANCE, TreeStudy, squared_distances
from jat_graph.looking.probes.treebank import EDGE, Sentence, related_pairs
from jat_graph.looking.probes.words import WordReader, check_layers
from jat_graph.looking.viz.figures import PAGE, Figure, new_figure

SQUARE = 2.0
UNPROBED, SQUARED, OWN = "none", "for squares", "for this power"
MOST_EDGES = 12  # of distances that are drawn: of longer ones there are few

CAPTION = (
    "How well a power of the distance between two words after a layer equals the number of edges "
    "between them: without a map, with one that was trained for squares, which favours squares, "
    "and with one that was trained for the power. R² is the share of the variance of d that d = "
    "distance^power / a explains, below 0 if the mean of d would do better; low and high are the "
    "ends of 95 % intervals over sentences."
)
RELATIONS = (
    "Squared distance between a word and its head in the space of a structural probe, by relation; "
    "1 is the distance in the tree. Low and high are the ends of 95 % intervals over sentences; "
    "rare relations are left out."
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
        there, and the mean squared distance with its interval.

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
    study = TreeStudy(reader, {"train": train, "dev": dev, "test": test}, rank, epochs)
    trees = study.trees[-1]
    pairs = related_pairs(trees)
    condensed = partial(import_extra("scipy.spatial.distance").squareform, checks=False)
    pairs["d"] = np.concatenate([condensed(tree.distances) for tree in trees])

    def squares_of(power: float | None) -> Any:  # [N] of pairs; None for no map
        probe = None if power is None else study.probe(DISTANCE, chosen, seed, power)
        points = study.points(-1, chosen, probe)
        found = [squared_distances(own.double()).cpu().numpy() for own in points]
        return np.concatenate(list(map(condensed, found)))

    squares = squares_of(SQUARE)
    rows = []
    known = {UNPROBED: squares_of(None), SQUARED: squares}
    for power in track_progress(asked, "Fitting powers", len(asked)):
        own = squares if power == SQUARE else squares_of(power)
        for name, one in (known | {OWN: own}).items():
            fit = fit_row(pairs, one ** (power / 2), len(trees))
            rows.append({"map": name, "power": power, **fit})
    pairs["mean"] = squares
    table = pd.DataFrame(rows)
    relations = relation_table(pairs, len(trees), least)
    label = "squared distance between word and head (dotted: as the tree says)"
    shown = draw_rows({"mean": (relations, "mean")}, ("relation", "count"), label, 1)
    figures = {"distance": _draw(table, pairs)}, {"relations": shown}
    settings = study.settings | {"layer": chosen, "seed": seed}
    powered, least_often = settings | {"powers": asked}, settings | {"least": least}
    return (
        Findings("distance", CAPTION, table, powered, figures[0], ("map", "power")),
        Findings("relations", RELATIONS, relations, least_often, figures[1], ("relation",)),
    )


def fit_row(pairs: pd.DataFrame, y: Floats, number: int) -> dict[str, float]:
    """Return the fit of numbers of edges d as y / a by least squares."""
    d = pairs["d"]
    products = pd.DataFrame({"n": 1.0, "d": d, "dd": d * d, "dy": d * y, "yy": y * y})
    # Sums over each sentence, of which intervals are made: [S, 5].
    sums = products.groupby(pairs["row"]).sum().reindex(range(number), fill_value=0.0).to_numpy()

    def explained(own: Floats) -> Any:  # 1 − Σ (d − y / a)² / Σ (d − mean)², at the best a
        n, d, dd, dy, yy = np.moveaxis(own, -1, 0)
        return 1 - (dd - dy**2 / yy) / (dd - d**2 / n)

    n, _, dd, dy, yy = sums.sum(0)
    row = {"a": float(yy / dy), **with_ends("R²", resampled(sums, explained))}
    return row | {"error in edges": float(np.sqrt((dd - dy**2 / yy) / max(n, 1)))}


def relation_table(pairs: pd.DataFrame, number: int, least: int) -> pd.DataFrame:
    """Return squared distances between word and head by relation, the shortest first."""
    edges = pairs[pairs[EDGE]]
    rows = []
    for relation, own in edges.groupby(edges["relation"].str.partition(":")[0]):
        if len(own) >= least:
            row = {"relation": relation, "count": len(own)}
            rows.append(row | with_ends("mean", resampled_mean(own["mean"], own["row"], number)))
    if not rows:
        raise ValueError(f"test must hold a relation {least} times, got none")
    return pd.DataFrame(rows).sort_values("mean", kind="stable", ignore_index=True)


def _draw(table: pd.DataFrame, pairs: pd.DataFrame) -> Figure:
    """Draw squared distances by number of edges, and how well each power fits."""
    figure = new_figure(PAGE, 3.2)
    left, right = figure.subplots(1, 2)
    means = pairs.groupby("d")["mean"].mean().loc[:MOST_EDGES]
    left.plot(means.index, means, "o-", label="mean")
    left.plot(means.index, means.index, color=QUIET, linestyle="--", label="as the tree says")
    left.set_title("In the space of the probe for squares", fontsize=9)
    left.set_xlabel("edges between two words", fontsize=9)
    left.set_ylabel("squared distance", fontsize=9)
    left.tick_params(labelsize=8)
    left.legend(fontsize=8, frameon=False)
    draw_lines(right, table, "map", "power", "R²")
    right.set_title("Number of edges as a power of the distance", fontsize=9)
    right.set_ylabel("R² (95 % intervals)", fontsize=9)
    right.legend(fontsize=8, frameon=False, title="map")
    return figure
