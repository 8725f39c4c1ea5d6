"""Squared distances against those of trees, other powers of them, and those of each relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from jat_graph.checks.numbers import check_finite, check_integer
from jat_graph.probes.findings import Findings
from jat_graph.probes.geometry.measuring_pictures import draw_powers, draw_relations
from jat_graph.probes.geometry.study import Study, Training, TreeSets, settings_of
from jat_graph.probes.geometry.training import DISTANCE, squared_distances
from jat_graph.probes.geometry.trees import Floats, Tree
from jat_graph.probes.intervals import resampled, resampled_ratio
from jat_graph.probes.treebank import Sentence
from jat_graph.probes.words import check_layers
from jat_graph.progress import watched

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SQUARE = 2.0
POWERS = (1.0, 1.5, SQUARE, 3.0, 4.0)
UNPROBED, SQUARED, OWN = "none", "for squares", "for this power"


def tree_distances(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[Sentence],
    dev: Sequence[Sentence],
    test: Sequence[Sentence],
    folder: str | Path,
    *,
    layer: int | None = None,
    powers: Sequence[float] = POWERS,
    rank: int | None = 128,
    most: int | None = 4000,
    epochs: int = 30,
    seed: int = 0,
) -> Findings:
    """Hold powers of the distance between states against the distance in the tree.

    A tree has an exact embedding in which *squared* distances are its own; with other powers some
    trees have none. For each power p and all pairs of words in ``test`` the number of edges d is
    fitted as d = ‖B(h_i − h_j)‖^p / a: with no map B, with the one that was trained for squares,
    and with one that was trained for this power, as a map for squares favours squares.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        train: Sentences to train on, from :func:`read_treebank`.
        dev: Sentences by which training stops.
        test: Sentences that are measured.
        folder: Where states and trained probes are kept; :func:`structural_probe` shares them.
        layer: After which layer, 0 for the embeddings. (default: None, the middle one)
        powers: The powers p. (default: (1, 1.5, 2, 3, 4))
        rank: Dimensions that B maps to; None for as many as states have. (default: 128)
        most: How many sentences of ``train`` to take, evenly over it; None for all.
            (default: 4000)
        epochs: At most so many. (default: 30)
        seed: Of training. (default: 0)

    Returns:
        A row for each map and power: the unit a, the share R² of the variance of d that is fitted
        with its interval of 95 % over sentences, and the error in edges, root mean square; picture
        ``distance``: squared distances by number of edges, and R² by power.

    Raises:
        ValueError: If a set is empty, or a number is not in its range.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 3.2.
    """
    asked = tuple(check_finite("powers", power, least=1e-3) for power in powers)
    study, chosen = _read(
        folder, model, tokenizer, TreeSets(train, dev, test, most), Training(rank, epochs), layer
    )
    pairs = _Pairs(study, chosen, seed)
    rows = list(watched(pairs.rows(asked), "Fitting powers", 3 * len(asked)))
    by_edges = pairs.by_edges()
    settings = settings_of(study, layer=chosen, seed=seed, powers=list(asked))
    figures = {"distance": draw_powers(rows, by_edges)}
    caption = _powers_caption(rows, settings)
    return Findings("distance", caption, _table(rows), settings, figures, ("map", "power"))


def relation_distances(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[Sentence],
    dev: Sequence[Sentence],
    test: Sequence[Sentence],
    folder: str | Path,
    *,
    layer: int | None = None,
    least: int = 30,
    rank: int | None = 128,
    most: int | None = 4000,
    epochs: int = 30,
    seed: int = 0,
) -> Findings:
    """Measure the squared distance between word and head for each relation.

    In the space of a structural probe it would be 1 for all of them, if the space held the trees
    and nothing else. Subtypes of relations are counted with their relation.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        train: Sentences to train on, from :func:`read_treebank`.
        dev: Sentences by which training stops.
        test: Sentences that are measured.
        folder: Where states and trained probes are kept; :func:`structural_probe` shares them.
        layer: After which layer, 0 for the embeddings. (default: None, the middle one)
        least: How often a relation must be there to have a row. (default: 30)
        rank: Dimensions that the probe maps to; None for as many as states have. (default: 128)
        most: How many sentences of ``train`` to take, evenly over it; None for all.
            (default: 4000)
        epochs: At most so many. (default: 30)
        seed: Of training. (default: 0)

    Returns:
        A row for each relation, the shortest first: how often it is there, the mean squared
        distance with its interval of 95 % over sentences, standard deviation and quartiles;
        picture ``relations``.

    Raises:
        ValueError: If a set is empty, a number is not in its range, or no relation is there so
            often.

    Reference:
        Coenen et al. 2019, Figure 4.
    """
    check_integer("least", least, least=1)
    study, chosen = _read(
        folder, model, tokenizer, TreeSets(train, dev, test, most), Training(rank, epochs), layer
    )
    rows = relation_rows(study.test.trees, _Pairs(study, chosen, seed).squares(), least)
    if not rows:
        raise ValueError(f"test must hold a relation {least} times, got none")
    settings = settings_of(study, layer=chosen, seed=seed, least=least)
    figures = {"relations": draw_relations(rows)}
    caption = _relations_caption(rows, settings)
    return Findings("relations", caption, _table(rows), settings, figures, ("relation",))


def _read(
    folder: str | Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sets: TreeSets,
    training: Training,
    layer: int | None,
) -> tuple[Study, int]:
    """Read the sets, and choose the layer."""
    middle = model.config.num_hidden_layers // 2
    (chosen,) = check_layers(model, [middle if layer is None else layer])
    return Study.read(folder, model, tokenizer, sets, training), chosen


@dataclass(frozen=True)
class _Pairs:
    """All pairs of words of a study's test set, after one layer."""

    study: Study
    layer: int
    seed: int

    def squares(self, power: float | None = SQUARE) -> list[Floats]:  # [n, n] each
        """Squared distances in the space of the probe for a power; None for no probe."""
        if power is None:
            states = self.study.test.states(self.layer, self.study.device)
            return [_floats(own) for own in states]
        projection = self.study.probe(DISTANCE, self.layer, self.seed, power)
        return [_floats(own) for own in self.study.points(self.layer, projection)]

    def rows(self, powers: Sequence[float]) -> Iterator[dict[str, Any]]:
        """Yield the fits of each power with each map."""
        known = {UNPROBED: self.squares(None), SQUARED: self.squares()}
        for power in powers:
            own = known | {OWN: known[SQUARED] if power == SQUARE else self.squares(power)}
            for name, squares in own.items():
                sums = fit_sums(self.study.test.trees, squares, power)
                yield {"map": name, "power": power, **fit_row(sums)}

    def by_edges(self) -> list[dict[str, float]]:
        """Squared distances in the space of the probe for squares, by number of edges."""
        squares = self.squares()
        edges = np.concatenate([_upper(tree.distances) for tree in self.study.test.trees])
        values = np.concatenate([_upper(own) for own in squares])
        return [
            {"edges": float(number), **_spread(values[edges == number])}
            for number in np.unique(edges)
        ]


def _floats(points: Tensor) -> Floats:
    found: Floats = squared_distances(points.double()).cpu().numpy()
    return found


def _upper(square: Floats) -> Floats:  # [n, n] -> [n (n - 1) / 2]
    return square[np.triu_indices(len(square), 1)]


def fit_sums(trees: Sequence[Tree], squares: Sequence[Floats], power: float) -> Floats:  # [S, 5]
    """Each sentence's number of pairs, and its sums of d, d², d y and y²; y is the power."""
    rows = []
    for tree, own in zip(trees, squares, strict=True):
        d, y = _upper(tree.distances), _upper(own) ** (power / 2)
        rows.append((len(d), d.sum(), (d * d).sum(), (d * y).sum(), (y * y).sum()))
    return np.array(rows)


def fit_row(sums: Floats) -> dict[str, float]:  # [S, 5]
    """The fit of d as y / a by least squares."""
    number, _, _, mixed, squares = sums.sum(0)
    share, low, high = resampled(sums, lambda own: 1 - _error(own) / _variance(own))
    error = float(np.sqrt(_error(sums.sum(0)) / max(number, 1)))
    row = {"a": float(squares / mixed), "R²": float(share), "R² low": float(low)}
    return {**row, "R² high": float(high), "error in edges": error}


def _error(sums: Floats) -> Floats:  # [..., 5] -> [...]
    """Σ (d − y / a)² at the best a."""
    found: Floats = sums[..., 2] - sums[..., 3] ** 2 / sums[..., 4]
    return found


def _variance(sums: Floats) -> Floats:  # [..., 5] -> [...]
    """Σ (d − mean d)²."""
    found: Floats = sums[..., 2] - sums[..., 1] ** 2 / sums[..., 0]
    return found


def relation_rows(
    trees: Sequence[Tree], squares: Sequence[Floats], least: int
) -> list[dict[str, Any]]:
    """The squared distances between word and head, by relation."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row, (tree, own) in enumerate(zip(trees, squares, strict=True)):
        for word, head in tree.sentence.edges:
            relation = tree.sentence.relations[word].split(":")[0]
            found.setdefault(relation, []).append((row, float(own[word, head])))
    rows = [
        _relation_row(relation, np.array(values), len(trees))
        for relation, values in found.items()
        if len(values) >= least
    ]
    return sorted(rows, key=lambda row: float(row["mean"]))


def _relation_row(relation: str, values: Floats, number: int) -> dict[str, Any]:
    """One relation, of which ``values`` hold sentence and squared distance."""
    place = values[:, 0].astype(int)
    totals = np.bincount(place, minlength=number)
    sums = np.bincount(place, values[:, 1], minlength=number)
    mean, low, high = (float(end) for end in resampled_ratio(sums, totals))
    row = {"relation": relation, "count": len(values), "mean": mean}
    return {**row, "mean low": low, "mean high": high, **_spread(values[:, 1])}


def _spread(values: Floats) -> dict[str, float]:
    lower, middle, upper = (float(end) for end in np.quantile(values, (0.25, 0.5, 0.75)))
    ends = {"lower quartile": lower, "median": middle, "upper quartile": upper}
    return {"mean": float(values.mean()), "deviation": float(values.std()), **ends}


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame(rows)


def _powers_caption(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> str:
    best = {
        name: max((row for row in rows if row["map"] == name), key=lambda row: float(row["R²"]))
        for name in (UNPROBED, SQUARED, OWN)
    }
    own = best[OWN]
    others = [row for row in rows if row["map"] == OWN and row is not own]
    alike = [f"{row['power']:g}" for row in others if _overlap(row, own)]
    return (
        f"How well a power of the distance between two words after layer {settings['layer']} is "
        f"the number of edges between them, on {settings['sentences']['test']} sentences. With a "
        f"map trained for each power by itself, power {own['power']:g} fits best (R² "
        f"{own['R²']:.2f}); {_unsure(alike)}without any map power {best[UNPROBED]['power']:g} (R² "
        f"{best[UNPROBED]['R²']:.2f}). A map trained for squares favours squares. R² is the share "
        "of the variance of d that d = distance^power / a explains, below 0 where the mean of d "
        "would do better; low and high are the ends of intervals of 95 % over sentences."
    )


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two intervals do."""
    return bool(one["R² high"] >= other["R² low"] and other["R² high"] >= one["R² low"])


def _unsure(powers: Sequence[str]) -> str:
    if not powers:
        return ""
    return f"its interval overlaps with that of {' and '.join(powers)}; "


def _relations_caption(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> str:
    near, far = rows[0], rows[-1]
    return (
        f"Squared distance between word and head in the space of a structural probe after layer "
        f"{settings['layer']}, on {settings['sentences']['test']} sentences, by relation; 1 is "
        f"what the tree says. The shortest is {near['relation']} ({near['mean']:.2f}), the longest "
        f"{far['relation']} ({far['mean']:.2f}). Low and high are the ends of intervals of 95 % "
        f"over sentences, deviation and quartiles those of single pairs; relations that are there "
        f"fewer than {settings['least']} times are left out."
    )
