"""Jump graphs against the tree: which relations the pairs have that a head joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jat_graph.core.extras import import_extra
from jat_graph.core.numbers import check_choice, check_inside, check_integer
from jat_graph.looking.data.reading import ATTENTION, GRAPH, Head
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.findings import (
    ROW,
    Figure,
    Findings,
    Floats,
    add_legend,
    draw_rows,
    resampled_ratio,
    with_ends,
)
from jat_graph.looking.probes.heads import choosing_half
from jat_graph.looking.probes.treebank import ROOT, Sentence, check_sentences, frequent_relations
from jat_graph.looking.probes.words import WordReader, read_rows
from jat_graph.looking.viz.figures import PAGE, new_figure

EDGE, SIBLINGS, SAME_TAG = "head and dependent", "siblings", "one part of speech"
MOST_TIMES, DARK_FROM = 4.0, 2.6  # times chance: where colours end, and where they are dark

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
    check_sentences(sentences=sentences)
    check_choice("maps", maps, (GRAPH, ATTENTION))
    check_integer("least", least, least=1)
    check_integer("seed", seed, least=0)
    if density is not None:
        check_inside("density", density, 0.0, 1.0)
    reader = replace(reader, maps=maps)

    def both_ways(_: int, states: Floats, own: Floats) -> Floats:  # [1, n, C]
        one, other = np.triu_indices(own.shape[-1], 1)
        found: Floats = ((own[:, one, other] + own[:, other, one]) / 2).T[None]
        return found

    counts = [len(sentence) * (len(sentence) - 1) // 2 for sentence in sentences]
    texts = [sentence.words for sentence in sentences]
    rows = read_rows(reader, texts, both_ways, counts, (1, len(reader.heads)), "pairs")
    is_read = ~np.isin(np.arange(len(sentences)), rows.left_out)
    weights = rows.values[0] if is_read.all() else rows.values[0][np.repeat(is_read, counts)]
    if not len(weights):
        raise ValueError("sentences must have two words, got none with more than one")
    read = [sentence for sentence, fits in zip(sentences, is_read, strict=True) if fits]
    found = PairCounts(read, join(weights, density), least)
    relations = _relation_table(found, reader.heads, choosing_half(len(read), seed))
    kinds = [name for name in (EDGE, SIBLINGS, SAME_TAG) if name in found.kinds]
    ratios, lines = [_ratios(found.of(name)) for name in kinds], []
    for number, (layer, head) in enumerate(reader.heads):
        for name, own in zip(kinds, ratios, strict=True):
            line = {"layer": layer, "head": head, "related": name}
            line["density"] = float(found.density[number])
            lines.append(line | _named("", own[:, number]))
    heads = pd.DataFrame(lines)
    settings = {"model": type(reader.model).__name__, "maps": maps, "sentences": len(read)}
    settings |= {"density": density, "least": least, "seed": seed}
    both = settings | {"each": "relations"}, settings | {"each": "heads"}
    figures = {"graphs": _draw_relations(relations)}, {"graphs-heads": _draw_heads(heads)}
    index = ("related", "layer", "head")
    return (
        Findings("graphs", CAPTION, relations, both[0], figures[0], index[:1]),
        Findings("graphs-heads", CAPTION, heads, both[1], figures[1], index),
    )


def join(weights: Floats, density: float | None) -> Floats:  # [N, C] -> [N, C] of 0 and 1
    """Join the heaviest pairs of each head, or all that weigh anything."""
    joined = weights > 0
    if density is not None:
        rank = len(weights) - max(1, round(density * len(weights)))
        joined &= weights >= np.partition(weights, rank, axis=0)[rank]
    return joined.astype(np.float32)


class PairCounts:
    """How many pairs i < k of a kind are joined, and how many would be by chance."""

    def __init__(self, sentences: Sequence[Sentence], joined: Floats, least: int) -> None:
        csr_array = import_extra("scipy.sparse").csr_array

        def members(groups: Any, number: int) -> Any:  # [N] -> [number, N]
            ones, size = np.ones(len(groups), np.float32), len(groups)
            return csr_array((ones, (groups, np.arange(size))), (number, size))

        starts = np.cumsum([0, *map(len, sentences)]).tolist()
        trees = [*zip(starts, sentences, strict=False)]
        heads = np.array([h if h == ROOT else at + h for at, own in trees for h in own.heads])
        tags = np.array([tag for own in sentences for tag in own.tags])
        relations = np.array([relation for own in sentences for relation in own.relations])
        indices = [np.add(np.triu_indices(len(own), 1), at) for at, own in trees]
        one, other = np.concatenate(indices, axis=1)  # [N] each, the words of each pair

        above, below = heads[other] == one, heads[one] == other  # which of the two is the head
        flags = {EDGE: above | below, SIBLINGS: (heads[one] == heads[other]) & (heads[one] != ROOT)}
        flags[SAME_TAG] = tags[one] == tags[other]
        relation = np.where(above, relations[other], relations[one])
        for name, count in frequent_relations(sentences).items():
            if count >= least:
                flags[name] = flags[EDGE] & (relation == name)
        self.kinds = {name: np.flatnonzero(own) for name, own in flags.items() if own.any()}

        rows = np.repeat(np.arange(len(sentences)), [own.shape[1] for own in indices])
        # Pairs of one sentence that are as many words apart.
        cells, cell = np.unique(np.stack([rows, other - one]), axis=1, return_inverse=True)
        self.density, self._joined = joined.mean(0), joined  # [C], [N, C]
        self._by_sentence = members(rows, len(sentences))
        by_cell = members(cell.ravel(), cells.shape[1])
        self._groups = [
            (groups, groups @ joined, np.maximum(groups.sum(1), 1.0))
            for groups in (self._by_sentence, by_cell)
        ]
        self._cells_by_sentence = members(cells[0], len(sentences))

    def of(self, name: str) -> Any:  # [3, S, C]
        """Joined pairs of a kind, what chance gives, and what it gives among equal distances."""
        pairs = self.kinds[name]
        some = np.bincount(pairs, minlength=len(self._joined))
        chance, matched = (
            joined * ((groups @ some) / sizes)[:, None] for groups, joined, sizes in self._groups
        )
        found = self._by_sentence[:, pairs] @ self._joined[pairs]
        return np.stack([found, chance, self._cells_by_sentence @ matched])


def _ratios(counts: Any) -> Any:  # [3, S, …] -> [6, …]
    """Return ratio, low and high, to chance and to matched chance."""
    return np.concatenate([np.stack(resampled_ratio(counts[0], counts[base])) for base in (1, 2)])


def _named(prefix: str, ratios: Any) -> dict[str, float]:  # [6]
    return with_ends(f"{prefix}ratio", ratios[:3]) | with_ends(f"{prefix}matched", ratios[3:])


def _relation_table(counts: PairCounts, heads: Sequence[Head], chosen_on: Any) -> pd.DataFrame:
    """All heads together, and the best one of each relation."""
    together, alone, best = [], [], []
    for name in counts.kinds:
        own = counts.of(name)
        joined, chance, _ = own[:, chosen_on].sum(1)
        # A count's spread by chance is about its root: the ratio alone would favour rare flukes.
        best.append(int(((joined - chance) / np.sqrt(np.maximum(chance, 1.0))).argmax()))
        together.append(own.sum(-1))
        alone.append(own[:, ~chosen_on, best[-1]])
    # Intervals of all relations at once: drawing sentences is what takes time.
    whole, single = (_ratios(np.stack(part, -1)).T for part in (together, alone))
    rows = []
    for name, own, index, one in zip(counts.kinds, whole, best, single, strict=True):
        row = {"related": name, "pairs": len(counts.kinds[name])}
        row |= {"density": float(counts.density.mean()), **_named("", own)}
        row |= {"layer": heads[index][0], "head": heads[index][1], **_named("best ", one)}
        rows.append(row)
    return pd.DataFrame(rows)


def _draw_relations(table: pd.DataFrame) -> Figure:
    """Draw how much more often than chance joined pairs are related: all heads, and the best."""
    figure = new_figure(PAGE, 1.6 + 1.5 * ROW * len(table))
    axis, series = figure.subplots(), {}
    for who in ("all heads", "best head"):
        prefix = "best " if who == "best head" else ""
        series[who] = table, f"{prefix}ratio"
        series[f"{who}, to pairs as far apart"] = table, f"{prefix}matched"
    names = [f"{row.related} ({row.layer}-{row.head})" for row in table.itertuples()]
    draw_rows(axis, series, names, "joined pairs, times what chance gives (dotted: 1)", 1.0)
    axis.set_xscale("symlog", linthresh=1.0, linscale=0.6)
    top = axis.get_xlim()[1]
    ticks = [tick for tick in (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0) if tick <= top]
    axis.set_xlim(0.0, top)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8)
    axis.minorticks_off()
    axis.set_title("relation (layer-head of the best)", fontsize=9, loc="left")
    return add_legend(figure, axis, 2)


def _draw_heads(table: pd.DataFrame) -> Figure:
    """Draw a grid of layers and heads for each kind: how much more often than chance."""
    related = table["related"].unique()
    layers, heads = sorted(table["layer"].unique()), sorted(table["head"].unique())
    height = len(related) * (0.7 + 0.2 * len(layers)) + 0.6
    figure = new_figure(max(PAGE, 1.2 + 0.46 * len(heads)), height)
    from matplotlib.colors import LogNorm  # which is there, or there would be no figure

    axes = figure.subplots(len(related), 2, squeeze=False, sharey=True)
    norm = LogNorm(1 / MOST_TIMES, MOST_TIMES)
    for row, name in zip(axes, related, strict=True):
        own = table[table["related"] == name].pivot(index="layer", columns="head")
        for axis, column in zip(row, ("ratio", "matched"), strict=True):
            grid = own[column].reindex(index=layers, columns=heads).to_numpy(float)
            values = np.clip(grid, 1 / MOST_TIMES, MOST_TIMES)
            image = axis.imshow(values, cmap="PuOr_r", norm=norm, aspect="auto")
            for (y, x), value in np.ndenumerate(grid):
                if not np.isnan(value):
                    text = f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
                    ink = "black" if 1 / DARK_FROM < value < DARK_FROM else "white"
                    axis.text(x, y, text, ha="center", va="center", fontsize=8, color=ink)
            axis.set_xticks(range(len(heads)), heads, fontsize=8)
            axis.set_yticks(range(len(layers)), layers, fontsize=8)
            against = "times chance" if column == "ratio" else "times matched chance"
            axis.set_title(f"{name}, {against}", fontsize=9)
            axis.set_xlabel("head", fontsize=8)
        row[0].set_ylabel("layer", fontsize=8)
    bar = figure.colorbar(image, ax=axes, location="bottom", aspect=50, label="times chance")
    bar.set_ticks([0.25, 0.5, 1, 2, 4], labels=["¼ or less", "½", "1", "2", "4 or more"])
    bar.ax.tick_params(labelsize=8)
    bar.ax.minorticks_off()
    return figure
