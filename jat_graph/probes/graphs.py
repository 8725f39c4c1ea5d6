"""Jump graphs against the tree: which relations the pairs have that a head joins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.checks.numbers import check_choice, check_inside, check_integer
from jat_graph.data.reading import ATTENTION, GRAPH, Head
from jat_graph.probes.findings import Findings, Floats, Integers, resampled_ratio
from jat_graph.probes.heads import choosing_half
from jat_graph.probes.pictures import QUIET, ROW, add_legend, draw_rows
from jat_graph.probes.treebank import ROOT, Sentence, frequent_relations
from jat_graph.probes.words import WordReader, check_sentences
from jat_graph.viz.figures import new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from scipy.sparse import csr_array
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

EDGE, SIBLINGS, SAME_TAG = "head and dependent", "siblings", "one part of speech"
MOST_TIMES, DARK_FROM = 4.0, 2.6  # times chance: where colours end, and where they are dark

CAPTION = (
    "How many times as often as by chance the pairs of words that a head joins are related in the "
    "tree; 1 is chance. Chance is the share of related pairs among all of the same sentence; "
    "matched, among those of the same sentence as many words apart, so that it is 1 where a head "
    "knows of nothing but distance. Intervals of 95 % over sentences; the best head was chosen on "
    "one half of them, scored on the other."
)


def graphs_and_trees(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    folder: str | Path,
    *,
    maps: str = GRAPH,
    density: float | None = 0.05,
    least: int = 50,
    seed: int = 0,
) -> tuple[Findings, Findings]:
    r"""Say how much more often than chance the pairs that heads join are related in the tree.

    A pair of words weighs the mean of what a head's graph mixes of each into the other (of a
    decoder there is only one way), and is joined if it is among the heaviest of all sentences'
    pairs, by head: as many as the density says, more where several weigh as much as the last, none
    that weighs nothing. Related are head and dependent, siblings (words of one head), words of one
    part of speech, and head and dependent of each relation.

    With :math:`J_{sh}` joined pairs of head h among the :math:`A_s` pairs of sentence s, of which
    :math:`A_{sr}` are related, chance gives :math:`E = \sum_s J_{sh} A_{sr} / A_s` related ones:
    joined pairs placed at random in their own sentence. The ratio is that of the related joined
    pairs to E. Words near each other are related more often, and joined more often; the matched
    ratio is to the same sum over the pairs of one sentence *and* one distance in words. It is 1
    where a head knows of nothing but distance.

    Args:
        model: A model with jump heads, or with any for ``maps="attention"``.
        tokenizer: Its tokenizer, a fast one.
        sentences: Sentences with their trees.
        folder: Where what the heads join is kept, to be found by the next call.
        maps: ``"graph"``, hard votes or the walk over stones; or ``"attention"``, to compare.
            (default: ``"graph"``)
        density: Share of pairs that each head joins; None for all pairs that weigh anything.
            (default: 0.05)
        least: Relations with fewer pairs are left out. (default: 50)
        seed: Of the half of the sentences that the best head is chosen on. (default: 0)

    Returns:
        Findings ``graphs``, a row for each relation, over all heads together and of the best one,
        the farthest above chance, which was chosen on one half of the sentences and scored on the
        other; and ``graphs-heads``, a row for each layer and head. Ratios have 95 % intervals over
        sentences, none where a draw of sentences may have nothing to count.

    Raises:
        ValueError: If an argument does not fit the model or the sentences.
        OSError: If the folder cannot be written.

    Reference:
        Zhou et al. 2022, Eq. 2 and 3, for the graph; Coenen et al., *Visualizing and Measuring the
        Geometry of BERT*, NeurIPS 2019, for the question.
    """
    check_sentences(sentences=sentences)
    check_choice("maps", maps, (GRAPH, ATTENTION))
    check_integer("least", least, least=1)
    check_integer("seed", seed, least=0)
    if density is not None:
        check_inside("density", density, 0.0, 1.0)
    reader = WordReader(model, tokenizer, folder, maps)
    weights, read = pair_weights(reader, sentences)
    if not len(weights):
        raise ValueError("sentences must have two words, got none with more than one")
    counts = PairCounts(read, join(weights, density), least)
    settings = {
        "model": type(model).__name__,
        "maps": maps,
        "sentences": len(read),
        "density": density,
        "least": least,
        "seed": seed,
    }
    relations = _relation_table(counts, reader.heads, choosing_half(len(read), seed))
    heads = _head_table(counts, reader.heads)
    both = settings | {"each": "relations"}, settings | {"each": "heads"}
    figures = {"graphs": _draw_relations(relations)}, {"graphs-heads": _draw_heads(heads)}
    index = ("related", "layer", "head")
    return (
        Findings("graphs", CAPTION, relations, both[0], figures[0], index[:1]),
        Findings("graphs-heads", CAPTION, heads, both[1], figures[1], index),
    )


def pair_weights(
    reader: WordReader, sentences: Sequence[Sentence]
) -> tuple[Floats, list[Sentence]]:  # [N, C]
    """Return what each head gives to the pairs i < k of all sentences read, and these sentences."""

    def both_ways(_: int, states: Floats, maps: Floats) -> Floats:  # [1, n, C]
        one, other = np.triu_indices(maps.shape[-1], 1)
        found: Floats = ((maps[:, one, other] + maps[:, other, one]) / 2).T[None]
        return found

    counts = [len(sentence) * (len(sentence) - 1) // 2 for sentence in sentences]
    shape = 1, len(reader.heads)
    words = [sentence.words for sentence in sentences]
    rows = reader.read(words, both_ways, counts, shape, "pairs")
    is_read = ~np.isin(np.arange(len(sentences)), rows.left_out)
    values, kept = rows.values[0], np.repeat(is_read, counts)
    read = [sentence for sentence, fits in zip(sentences, is_read, strict=True) if fits]
    return (values if kept.all() else values[kept]), read


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
        self.kinds = pair_kinds(sentences, least)
        sizes = [len(sentence) * (len(sentence) - 1) // 2 for sentence in sentences]
        rows = np.repeat(np.arange(len(sentences)), sizes)
        indices = (np.triu_indices(len(sentence), 1) for sentence in sentences)
        apart = np.concatenate([other - one for one, other in indices])
        # Pairs of one sentence that are as many words apart.
        cells, cell = np.unique(np.stack([rows, apart]), axis=1, return_inverse=True)
        self.density = joined.mean(0)  # [C]
        self._joined = joined
        self._by_sentence = _members(rows, len(sentences))
        self._by_cell = _members(cell.ravel(), cells.shape[1])
        self._cells_by_sentence = _members(cells[0], len(sentences))

    def of(self, name: str) -> Any:  # [3, S, C]
        """Joined pairs of a kind, what chance gives, and what it gives among equal distances."""
        pairs = self.kinds[name]
        chances = [
            (groups @ self._joined) * _share(groups, pairs)
            for groups in (self._by_sentence, self._by_cell)
        ]
        joined = self._by_sentence[:, pairs] @ self._joined[pairs]
        return np.stack([joined, chances[0], self._cells_by_sentence @ chances[1]])


def pair_kinds(sentences: Sequence[Sentence], least: int) -> dict[str, Integers]:
    """Return which pairs i < k are of which kind; relations with too few are left out."""
    names = [name for name, count in frequent_relations(sentences) if count >= least]
    found: dict[str, list[Any]] = {name: [] for name in (EDGE, SIBLINGS, SAME_TAG, *names)}
    for sentence in sentences:
        one, other = np.triu_indices(len(sentence), 1)
        heads, tags = np.array(sentence.heads), np.array(sentence.tags)
        above, below = heads[other] == one, heads[one] == other  # which of the two is the head
        found[EDGE].append(above | below)
        found[SIBLINGS].append((heads[one] == heads[other]) & (heads[one] != ROOT))
        found[SAME_TAG].append(tags[one] == tags[other])
        relations = np.array(sentence.relations)
        own = np.where(above, relations[other], relations[one])
        for name in names:
            found[name].append((above | below) & (own == name))
    kinds = {name: np.flatnonzero(np.concatenate(flags)) for name, flags in found.items()}
    return {name: pairs for name, pairs in kinds.items() if len(pairs)}


def _members(groups: Any, number: int) -> csr_array:  # [N] -> [number, N]
    from scipy.sparse import csr_array

    size = len(groups)
    return csr_array((np.ones(size, np.float32), (groups, np.arange(size))), (number, size))


def _share(groups: csr_array, pairs: Integers) -> Floats:  # [groups, 1]
    """The share of some pairs among all of each group; 0 where there is none."""
    some = np.bincount(pairs, minlength=groups.shape[1])
    found: Floats = (groups @ some) / np.maximum(groups @ np.ones(len(some)), 1.0)
    return found[:, None]


def _ratios(counts: Any) -> Any:  # [3, S, …] -> [6, …]
    """Return ratio, low and high, to chance and to matched chance."""
    return np.concatenate([np.stack(resampled_ratio(counts[0], counts[base])) for base in (1, 2)])


def _named(prefix: str, ratios: Any) -> dict[str, float]:  # [6]
    ends = ("", " low", " high")
    names = [f"{prefix}{base}{end}" for base in ("ratio", "matched") for end in ends]
    return dict(zip(names, map(float, ratios), strict=True))


def _relation_table(counts: PairCounts, heads: Sequence[Head], chosen_on: Any) -> pd.DataFrame:
    """All heads together, and the best one of each relation."""
    import pandas as pd

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
    return pd.DataFrame(
        [
            {
                "related": name,
                "pairs": len(pairs),
                "density": float(counts.density.mean()),
                **_named("", whole[row]),
                "layer": heads[best[row]][0],
                "head": heads[best[row]][1],
                **_named("best ", single[row]),
            }
            for row, (name, pairs) in enumerate(counts.kinds.items())
        ]
    )


def _head_table(counts: PairCounts, heads: Sequence[Head]) -> pd.DataFrame:
    """The ratios of each head, for the kinds that are no relations."""
    import pandas as pd

    shown = [name for name in (EDGE, SIBLINGS, SAME_TAG) if name in counts.kinds]
    ratios = {name: _ratios(counts.of(name)).T for name in shown}
    return pd.DataFrame(
        [
            {
                "layer": layer,
                "head": head,
                "related": name,
                "density": float(counts.density[row]),
                **_named("", own[row]),
            }
            for row, (layer, head) in enumerate(heads)
            for name, own in ratios.items()
        ]
    )


def _draw_relations(table: pd.DataFrame) -> Figure:
    """Draw how much more often than chance joined pairs are related: all heads, and the best."""
    figure = new_figure(8.6, 1.9 + 1.25 * ROW * len(table))
    axis = figure.subplots()
    series = {
        "all heads": "ratio",
        "all heads, to pairs as far apart": "matched",
        "best head": "best ratio",
        "best head, to pairs as far apart": "best matched",
    }
    names = [f"{row.related} ({row.layer}-{row.head})" for row in table.itertuples()]
    draw_rows(axis, {label: (table, name) for label, name in series.items()}, names)
    axis.axvline(1.0, color=QUIET, linestyle=":", linewidth=1.2)
    axis.set_xscale("symlog", linthresh=1.0, linscale=0.6)
    top = axis.get_xlim()[1]
    ticks = [tick for tick in (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0) if tick <= top]
    axis.set_xlim(0.0, top)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8)
    axis.minorticks_off()
    axis.set_title("relation (layer-head of the best)", fontsize=9, loc="left")
    axis.set_xlabel("joined pairs so related, times what chance gives (dotted: 1)", fontsize=9)
    add_legend(figure, axis, 2)
    return figure


def _draw_heads(table: pd.DataFrame) -> Figure:
    """Draw a grid of layers and heads for each kind: how much more often than chance."""
    from matplotlib.colors import LogNorm

    related = table["related"].unique()
    layers, heads = sorted(table["layer"].unique()), sorted(table["head"].unique())
    width = max(3.2, 0.36 * len(heads) + 0.9)
    height = len(related) * (0.85 + 0.28 * len(layers)) + 0.4
    figure = new_figure(2 * width + 1.2, height)
    axes = figure.subplots(len(related), 2, squeeze=False)
    columns = {"ratio": "times chance", "matched": "times matched chance"}
    for row, name in zip(axes, related, strict=True):
        own = table[table["related"] == name].pivot(index="layer", columns="head")
        for axis, (column, against) in zip(row, columns.items(), strict=True):
            grid = own[column].reindex(index=layers, columns=heads).to_numpy(float)
            values = np.clip(grid, 1 / MOST_TIMES, MOST_TIMES)
            norm = LogNorm(1 / MOST_TIMES, MOST_TIMES)
            image = axis.imshow(values, cmap="PuOr_r", norm=norm, aspect="auto")
            for (y, x), value in np.ndenumerate(grid):
                if not np.isnan(value):
                    text = f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
                    ink = "black" if 1 / DARK_FROM < value < DARK_FROM else "white"
                    axis.text(x, y, text, ha="center", va="center", fontsize=6.5, color=ink)
            axis.set_xticks(range(len(heads)), heads, fontsize=7)
            axis.set_yticks(range(len(layers)), layers, fontsize=7)
            axis.set_title(f"{name}, {against}", fontsize=9)
            axis.set_ylabel("layer", fontsize=8)
            axis.set_xlabel("head", fontsize=8)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, label="times chance")
    bar.set_ticks([0.25, 0.5, 1, 2, 4], labels=["¼ or less", "½", "1", "2", "4 or more"])
    bar.ax.minorticks_off()
    return figure
