"""Jump graphs against the tree: which relations the pairs have that a head joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jat_graph.core.numbers import check_inside, check_integer
from jat_graph.looking.data.reading import GRAPH
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.drawing import draw_rows
from jat_graph.looking.probes.findings import Findings, Floats, resampled_ratio, with_ends
from jat_graph.looking.probes.heads import choosing_half
from jat_graph.looking.probes.treebank import (
    EDGE,
    SAME_TAG,
    SIBLINGS,
    Sentence,
    frequent_relations,
    related_pairs,
)
from jat_graph.looking.probes.words import WordReader, check_maps, read_pairs, readable
from jat_graph.looking.viz.figures import Figure

KINDS = (EDGE, SIBLINGS, SAME_TAG)
TICKS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)

CAPTION = (
    "How many times as often as by chance the pairs of words that a head joins are related in the "
    "tree; 1 is chance. Chance is the share of related pairs among all pairs of the same sentence; "
    "matched chance is the share among those that are as many words apart, so that it is 1 if a "
    "head depends on distance alone. Intervals are of 95 % over sentences; the best head was "
    "chosen on one half of them and scored on the other."
)


def graphs_and_trees(
    reader: WordReader,
    sentences: Sequence[Sentence],
    *,
    maps: str = GRAPH,
    density: float | None = 0.05,
    least: int = 50,
    seed: int = 0,
) -> tuple[Findings, Findings]:
    r"""Say how much more often than chance the pairs that heads join are related in the tree.

    A pair of words weighs the mean of what a head's graph mixes of each into the other, and is
    joined if it is among the heaviest of all sentences' pairs, by head. Related are head and
    dependent, siblings, words of one part of speech, and head and dependent of each relation.

    With :math:`J_{sh}` joined pairs of head h among the :math:`A_s` pairs of sentence s, of which
    :math:`A_{sr}` are related, chance gives :math:`E = \sum_s J_{sh} A_{sr} / A_s` related ones.
    The ratio is that of related joined pairs to E, the matched one to the same sum over pairs of
    one sentence *and* one distance in words: near words are related and joined more often.

    Args:
        reader: A model with jump heads, or with any for ``maps="attention"``.
        sentences, least: As for :func:`best_heads`.
        maps: ``"graph"``, hard votes or the walk over stones; or ``"attention"``, to compare.
            (default: ``"graph"``)
        density: Share of pairs that each head joins, more where several weigh as much as the last,
            none that weighs nothing; None for all that weigh anything. (default: 0.05)
        seed: Of the half of the sentences that the best head is chosen on. (default: 0)

    Returns:
        Findings ``graphs``, a row for each relation, over all heads together and of the best one,
        the farthest above chance; and ``graphs-heads``, a row for each layer and head. Ratios have
        95 % intervals, none where a draw of sentences may have nothing to count.

    Raises:
        ValueError: If an argument does not fit the model or the sentences.

    Reference:
        Zhou et al. 2022, Eq. 2 and 3, for the graph.
    """
    (read,) = readable(reader, sentences=sentences)
    check_integer("least", least, least=1)
    check_integer("seed", seed, least=0)
    if density is not None:
        check_inside("density", density, 0.0, 1.0)
    pairs = related_pairs(read)
    known = check_maps(reader, maps)
    if pairs.empty:
        raise ValueError("sentences must have two words, got none with more than one")
    joined = join(read_pairs(reader, read, pairs, maps).mean(0), density)
    densities = joined.mean(0).tolist()
    kinds = {name: pairs[name] for name in KINDS}
    for name, count in frequent_relations(read).items():
        if count >= least:
            kinds[name] = pairs[EDGE] & (pairs["relation"] == name)
    kinds = {name: related for name, related in kinds.items() if related.any()}
    parts = [count_pairs(pairs, related, joined, len(read)) for related in kinds.values()]
    counts = np.stack(parts, -1)  # [3, S, C, kinds]
    chosen_on = choosing_half(len(read), seed)
    hits, chance, _ = counts[:, chosen_on].sum(1)
    # A count's spread by chance is about its root: the ratio alone would favour rare flukes.
    best = ((hits - chance) / np.sqrt(np.maximum(chance, 1.0))).argmax(0)
    # Intervals of all relations at once: drawing sentences is what takes time.
    whole = _ratios(counts.sum(2))  # [6, kinds]
    single = _ratios(counts[:, ~chosen_on][:, :, best, np.arange(len(kinds))])
    table, lines = [], []
    for index, (name, related) in enumerate(kinds.items()):
        row = {"related": name, "pairs": int(related.sum()), "density": np.mean(densities)}
        row |= _named("", whole[:, index])
        layer, head = known[best[index]]
        row |= {"layer": layer, "head": head}
        table.append(row | _named("best ", single[:, index]))
        if name in KINDS:
            each = zip(known, densities, _ratios(counts[..., index]).T, strict=True)
            for (layer, head), share, ratios in each:
                line = {"layer": layer, "head": head, "related": name, "density": share}
                lines.append(line | _named("", ratios))
    relations = pd.DataFrame(table)
    heads = pd.DataFrame(lines).sort_values(["layer", "head"], kind="stable", ignore_index=True)
    settings = {"model": type(reader.model).__name__, "maps": maps, "sentences": len(read)}
    settings |= {"density": density, "least": least, "seed": seed}
    figures = {"graphs": _draw_relations(relations)}
    return (
        Findings("graphs", CAPTION, relations, settings, figures),
        Findings("graphs-heads", CAPTION, heads, settings),
    )


def join(weights: Floats, density: float | None) -> Floats:  # [N, C] -> [N, C] of 0 and 1
    """Join the heaviest pairs of each head, or all that weigh anything."""
    joined = weights > 0
    if density is not None:
        rank = len(weights) - max(1, round(density * len(weights)))
        joined &= weights >= np.partition(weights, rank, axis=0)[rank]
    return joined.astype(np.float32)


def count_pairs(
    pairs: pd.DataFrame, related: pd.Series[bool], joined: Floats, number: int
) -> Any:  # [3, S, C]
    """Related pairs that heads join, what chance gives, and what it gives at equal distance."""
    row = pairs["row"]
    distance = pairs["other"] - pairs["one"]
    chances = [related.groupby(keys).transform("mean") for keys in (row, [row, distance])]
    weights = np.stack([related, *chances]).astype(np.float32)  # [3, N]
    cuts = np.searchsorted(row, np.arange(1, number))
    parts = zip(np.split(weights, cuts, axis=1), np.split(joined, cuts), strict=True)
    return np.stack([weight @ own for weight, own in parts], axis=1)


def _ratios(counts: Any) -> Any:  # [3, S, …] -> [6, …]
    """Return ratio, low and high, to chance and to matched chance."""
    return np.concatenate([np.stack(resampled_ratio(counts[0], counts[base])) for base in (1, 2)])


def _named(prefix: str, ratios: Any) -> dict[str, float]:  # [6]
    return with_ends(f"{prefix}ratio", ratios[:3]) | with_ends(f"{prefix}matched", ratios[3:])


def _draw_relations(table: pd.DataFrame) -> Figure:
    """Draw how much more often than chance joined pairs are related: all heads, and the best."""
    series = {}
    for who, prefix in (("all heads", ""), ("best head", "best ")):
        series[who] = table, f"{prefix}ratio"
        series[f"{who}, to pairs as far apart"] = table, f"{prefix}matched"
    label = "joined pairs, times what chance gives (dotted: 1)"
    figure = draw_rows(series, ("related", "layer", "head"), label, 1)
    axis = figure.axes[0]
    top = axis.get_xlim()[1]
    axis.set_xscale("symlog", linthresh=1.0, linscale=0.6)
    axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS], fontsize=8)
    axis.set_xlim(0.0, top)
    return figure
