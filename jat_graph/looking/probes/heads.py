"""The best head of each relation: whose strongest attention finds the head word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jat_graph.core.numbers import check_integer
from jat_graph.looking.data.reading import ATTENTION
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.drawing import draw_rows
from jat_graph.looking.probes.findings import Findings, Floats, resampled_mean, with_ends
from jat_graph.looking.probes.treebank import ROOT, Sentence, related_pairs
from jat_graph.looking.probes.words import WordReader, check_maps, read_pairs, readable

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
        reader, maps: As for :func:`attention_probe`.
        sentences: Sentences with their trees.
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
    (read,) = readable(reader, sentences=sentences)
    check_integer("least", least, least=1)
    check_integer("seed", seed, least=0)
    known = check_maps(reader, maps)
    sizes = list(map(len, read))
    given = read_pairs(reader, read, related_pairs(read), maps)  # [2, pairs, C]
    parts = np.split(given, np.cumsum([n * (n - 1) // 2 for n in sizes])[:-1], axis=1)
    found = [head_hits(sentence, own) for sentence, own in zip(read, parts, strict=True)]
    trees = np.concatenate([sentence.heads for sentence in read])
    guesses = [(np.arange(size)[:, None] + OFFSETS).clip(0, size - 1) for size in sizes]
    kept = trees != ROOT
    hits = np.concatenate(found)[kept]  # [N, 2 · C]
    offsets = (np.concatenate(guesses) == trees[:, None])[kept]  # [N, offsets]
    rows = np.repeat(np.arange(len(read)), sizes)[kept]
    relation = pd.Series([one for sentence in read for one in sentence.relations])[kept]
    chosen_on = choosing_half(len(read), seed)
    chosen = chosen_on[rows]
    row_of = (~chosen_on).cumsum() - 1  # among those scored
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
        way, column = divmod(index, len(known))
        right = np.stack([hits[:, index], offsets[:, step]], 1)[own & ~chosen]
        right = np.column_stack([right, right[:, 0] - right[:, 1]])
        at = row_of[rows[own & ~chosen]]
        best, offset, gain = np.stack(resampled_mean(right, at, int((~chosen_on).sum())), 1)
        layer, head = known[column]
        line: dict[str, Any] = {"relation": name, "words": len(right), "layer": layer}
        line |= {"head": head, "way": WAYS[way], **with_ends("accuracy", best, "")}
        line |= {"offset": int(OFFSETS[step]), **with_ends("offset accuracy", offset, "offset ")}
        lines.append(line | with_ends("gain", gain))
    table = pd.DataFrame(lines)
    settings = {"model": type(reader.model).__name__, "maps": maps, "sentences": len(read)}
    settings |= {"least": least, "seed": seed}
    series = {"best head": (table, "accuracy"), "best fixed offset": (table, "offset accuracy")}
    label = "share of words whose head is found"
    figures = {"heads": draw_rows(series, ("relation", "layer", "head", "offset"), label)}
    return Findings("heads", CAPTION, table, settings, figures)


def choosing_half(number: int, seed: int) -> Any:  # [S] bool
    """Draw half of the sentences to choose on: nothing is scored on what it was picked from."""
    return np.random.default_rng(seed).permutation(number) < number // 2


def head_hits(tree: Sentence, given: Floats) -> Any:  # [W, 2 · C]
    """Tell for each word, way and head of the model whether its head in the tree was found."""
    size = len(tree)
    one, other = np.triu_indices(size, 1)
    maps = np.zeros((size, size, given.shape[-1]))
    maps[one, other], maps[other, one] = given
    both = np.stack([maps, maps.swapaxes(0, 1)])  # [2, W, W, C]
    best = both.max(2)
    ties = (both == best[:, :, None]).sum(2)
    right = both[:, np.arange(size), tree.heads] == best
    return np.concatenate(right * (best > 0) / ties, axis=1)  # who is given nothing is not named
