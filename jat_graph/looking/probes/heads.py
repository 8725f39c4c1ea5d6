"""The best head of each relation: whose strongest attention finds the head word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jat_graph.core.numbers import check_integer
from jat_graph.looking.data.reading import ATTENTION, GRAPH
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.drawing import ROW, Figure, add_legend, draw_rows
from jat_graph.looking.probes.findings import Findings, Floats, Integers, resampled_mean, with_ends
from jat_graph.looking.probes.treebank import ROOT, Sentence, check_sentences
from jat_graph.looking.probes.words import WordReader, read_rows
from jat_graph.looking.viz.figures import PAGE, new_figure

OFFSETS = np.array([step for step in range(-20, 21) if step])  # words
WAYS = ("dependent looks", "head looks")
ALL = "all"

CAPTION = (
    "Share of words whose head in the tree is the word with the most attention from them, or to "
    "them, in one attention head, and the same for the best fixed offset. Both were chosen on one "
    "half of the sentences and scored on the other; intervals are of 95 %. A head tells more about "
    "a relation than the order of words does if the interval of the gain is above 0."
)


def best_heads(
    reader: WordReader,
    sentences: Sequence[Sentence],
    *,
    maps: str = ATTENTION,
    least: int = 50,
    seed: int = 0,
) -> Findings:
    """Find the head of a model that knows each relation best, and the best fixed offset.

    A head names the word that a dependent gives most to, or the word that gives most to the
    dependent, itself left out; of n that are given as much, each is 1/n of a hit. An offset names
    the word so many words away, or the outermost one. All are chosen on one half of the sentences,
    scored on the other.

    Args:
        reader: A model, and where what it gives is kept.
        sentences: Sentences with their trees.
        maps: What heads give: ``"attention"``; of jump heads also ``"scores"``, ``"propagated"``
            or ``"graph"``. (default: ``"attention"``)
        least: Relations with fewer words among those scored are left out. (default: 50)
        seed: Of the halves. (default: 0)

    Returns:
        For all words and for each relation, the most frequent first: the best head, its way and
        accuracy, the best offset and its accuracy, and the gain over it, with 95 % intervals.

    Raises:
        ValueError: If an argument does not fit the model or the sentences, or no relation is left.

    Reference:
        Clark et al., *What Does BERT Look At? An Analysis of BERT's Attention*, 2019, Table 1.
    """
    check_sentences(sentences=sentences)
    check_integer("least", least, least=1)
    check_integer("seed", seed, least=0)
    reader = replace(reader, maps=maps)
    trees = [np.array(sentence.heads) for sentence in sentences]
    counts = [len(heads) for heads in trees]
    found = read_rows(
        reader,
        [sentence.words for sentence in sentences],
        # Of scores, 0 is as good as others.
        lambda row, _, own: head_hits(own, trees[row], maps in (ATTENTION, GRAPH)),
        counts,
        (2, len(reader.heads)),
        ["heads", [heads.tolist() for heads in trees]],
    )
    rows = np.repeat(np.arange(len(trees)), counts)
    kept = (np.concatenate(trees) != ROOT) & ~np.isin(rows, found.left_out)
    hits = np.concatenate(list(found.values), axis=1)[kept]  # [N, 2 · C]
    guesses = [(np.arange(size)[:, None] + OFFSETS).clip(0, size - 1) for size in counts]
    offsets = (np.concatenate(guesses) == np.concatenate(trees)[:, None])[kept]  # [N, offsets]
    relation = pd.Series([one for sentence in sentences for one in sentence.relations])[kept]
    chosen_on = choosing_half(len(sentences), seed)
    chosen, row_of = chosen_on[rows[kept]], (~chosen_on).cumsum() - 1  # among those scored
    scored = relation[~chosen].value_counts()
    often = scored[scored.index.isin(relation[chosen]) & (scored >= least)]
    if often.empty:
        raise ValueError(
            f"sentences must have a relation of {least} words to score, got none: "
            "read more of them, or ask for fewer words with least"
        )
    lines = []
    for name in [ALL, *often.sort_index().sort_values(ascending=False, kind="stable").index]:
        own = (relation.eq(name) | (name == ALL)).to_numpy()
        index, step = (int(one[own & chosen].mean(0).argmax()) for one in (hits, offsets))
        way, column = divmod(index, len(reader.heads))
        right = np.stack([hits[:, index], offsets[:, step]], 1)[own & ~chosen]
        right = np.column_stack([right, right[:, 0] - right[:, 1]])
        at = row_of[rows[kept][own & ~chosen]]
        best, offset, gain = np.stack(resampled_mean(right, at, int((~chosen_on).sum())), 1)
        layer, head = reader.heads[column]
        line: dict[str, Any] = {"relation": name, "words": len(right), "layer": layer}
        line |= {"head": head, "way": WAYS[way], **with_ends("accuracy", best, "")}
        line |= {"offset": int(OFFSETS[step]), **with_ends("offset accuracy", offset, "offset ")}
        lines.append(line | with_ends("gain", gain))
    table = pd.DataFrame(lines)
    settings = {"model": type(reader.model).__name__, "maps": maps, "sentences": len(sentences)}
    settings |= {"least": least, "seed": seed}
    return Findings("heads", CAPTION, table, settings, {"heads": _draw(table)}, ("relation",))


def choosing_half(number: int, seed: int) -> Any:  # [S] bool
    """Draw half of the sentences to choose on: nothing is scored on what it was picked from."""
    return np.random.default_rng(seed).permutation(number) < number // 2


def head_hits(maps: Floats, heads: Integers, nothing_is_none: bool) -> Any:  # [2, W, C]
    """Tell for each word, way and head of the model whether its head in the tree was found."""
    words = np.arange(len(heads))
    both = np.stack([maps, maps.swapaxes(1, 2)])  # [2, C, W, W]; -∞ where nothing is given at all
    if nothing_is_none:
        both[both <= 0] = -np.inf
    both[:, :, words, words] = -np.inf
    best = both.max(-1)
    ties = (both == best[..., None]).sum(-1)
    hits = (both[:, :, words, heads] == best) & np.isfinite(best) & (heads != ROOT)
    return (hits / ties).swapaxes(1, 2)


def _draw(table: pd.DataFrame) -> Figure:
    """Draw the best head of each relation beside the best offset."""
    figure = new_figure(PAGE, 1.2 + ROW * len(table))
    axis = figure.subplots()
    names = [f"{row.relation}: {row.layer}-{row.head}, {row.way}" for row in table.itertuples()]
    both = {"best head": (table, "accuracy"), "best fixed offset": (table, "offset accuracy")}
    draw_rows(axis, both, names, "share of words whose head is found")
    signed = axis.secondary_yaxis("right")
    signed.set_yticks(range(len(table)), [f"{step:+d}" for step in table["offset"]], fontsize=8)
    signed.set_ylabel("offset", fontsize=9)
    axis.set_xlim(0.0, 1.0)
    axis.set_title("relation: layer-head, which of the two looks", fontsize=9, loc="left")
    return add_legend(figure, axis)
