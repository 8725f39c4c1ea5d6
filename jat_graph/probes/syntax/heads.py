"""The best head of each relation: whose strongest attention finds the head word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jat_graph.checks.numbers import check_integer
from jat_graph.data.reading import Head
from jat_graph.probes.findings import Findings
from jat_graph.probes.intervals import resampled_ratio
from jat_graph.probes.storage import stream_rows
from jat_graph.probes.syntax.pictures import draw_heads
from jat_graph.probes.syntax.reading import (
    Floats,
    Integers,
    check_sentences,
    describe,
    hides_later,
    seen_maps,
    words_of,
)
from jat_graph.probes.treebank import ROOT, Sentence
from jat_graph.probes.words import ATTENTION, GRAPH, WordReader, WordReading

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FARTHEST = 20  # words: offsets go so far both ways
OFFSETS = tuple(step for step in range(-FARTHEST, FARTHEST + 1) if step)
WAYS = ("dependent looks", "head looks")
ALL = "all"


class Found(NamedTuple):
    """Which words' heads were found, over all sentences."""

    sentences: Integers  # [N], of each word
    relations: np.ndarray[Any, np.dtype[np.str_]]  # [N]
    heads: Floats  # [N, 2 · C], each way of each head
    offsets: Floats  # [N, number of offsets]


@dataclass(frozen=True)
class Halves:
    """Sentences to choose on, and to score on: nothing is scored on what it was picked from."""

    chosen_on: np.ndarray[Any, np.dtype[np.bool_]]  # [S]

    @classmethod
    def of(cls, number: int, seed: int) -> Halves:
        """Draw half of the sentences."""
        order = np.random.default_rng(seed).permutation(number)
        return cls(order < number // 2)


def best_heads(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    folder: str | Path,
    *,
    maps: str = ATTENTION,
    least: int = 50,
    seed: int = 0,
    batch_size: int = 32,
) -> Findings:
    """Find the head of a model that knows each relation best, and the best fixed offset.

    A head names the word that a dependent gives most to, or the word that gives most to the
    dependent, itself left out; it is right where that is the dependent's head in the tree. Where
    several words are given as much, each counts as its share of a hit; a head that gives nothing to
    any other word finds none. An offset always names the word so many places away, or the outermost
    one. Head, way and offset are chosen on one half of the sentences and scored on the other.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        sentences: Sentences with their trees.
        folder: Where what the model finds is kept, to be found by the next call.
        maps: What heads give: ``"attention"``; of jump heads also ``"scores"``, ``"propagated"``
            or ``"graph"``. (default: ``"attention"``)
        least: Relations with fewer words among those scored are left out. (default: 50)
        seed: Of the halves. (default: 0)
        batch_size: Most sentences that the model reads at a time. (default: 32)

    Returns:
        For all words and for each relation, the most frequent first: the best head, its way and
        accuracy, the best offset and its accuracy, and the gain over it, with 95 % intervals over
        sentences.

    Raises:
        ValueError: If an argument does not fit the model or the sentences, or no relation is left.
        OSError: If the folder cannot be written.

    Reference:
        Clark et al., *What Does BERT Look At? An Analysis of BERT's Attention*, BlackboxNLP 2019,
        Table 1.
    """
    check_sentences("sentences", sentences)
    check_integer("least", least, least=1)
    check_integer("seed", seed, least=0)
    reader = WordReader(model, tokenizer, maps, batch_size)
    found = _find(folder, reader, sentences)
    halves = Halves.of(len(sentences), seed)
    table = _table(found, halves, reader.heads, least)
    settings = describe(model, maps) | {
        "sentences": len(sentences),
        "least": least,
        "seed": seed,
    }
    caption = (
        "Share of words whose head in the tree is the word that one attention head gives most, or "
        "that gives most to them, against the best fixed offset. Both were chosen on one half of "
        "the sentences and scored on the other; 95 % intervals over sentences. A head tells more "
        "of a relation than the order of words does where the interval of the gain is above 0."
    )
    figures = {"heads": draw_heads(table)}
    return Findings("heads", caption, table, settings, figures, ("relation",))


def head_hits(maps: Floats, heads: Integers) -> Floats:  # [C, W, W], [W] -> [2, W, C]
    """Tell for each word, way and head of the model whether its head in the tree was found.

    −∞ stands for what is not given at all.
    """
    words = np.arange(len(heads))
    both = np.stack([maps, maps.swapaxes(1, 2)])  # [2, C, W, W]
    both[:, :, words, words] = -np.inf
    best = both.max(-1)
    ties = (both == best[..., None]).sum(-1)
    own = both[:, :, words, heads]
    hits = (own == best) & np.isfinite(best) & (heads != ROOT)
    found: Floats = (hits / ties).swapaxes(1, 2).astype(np.float32)
    return found


def offset_hits(heads: Integers) -> Floats:  # [W] -> [W, offsets]
    """Tell for each word and offset whether its head was found."""
    guessed = np.arange(len(heads))[:, None] + np.array(OFFSETS)
    found: Floats = (guessed.clip(0, len(heads) - 1) == heads[:, None]).astype(np.float32)
    return found


def _find(folder: str | Path, reader: WordReader, sentences: Sequence[Sentence]) -> Found:
    """Read the sentences, and say of each word but the roots what found its head."""
    later_hidden = hides_later(reader)
    nothing_is_none = reader.maps in (ATTENTION, GRAPH)  # of scores, 0 is as good as others
    trees = [np.array(sentence.heads) for sentence in sentences]

    def rows_of(reading: WordReading) -> Floats:  # [2, W, C]
        maps = seen_maps(reading, later_hidden, -np.inf)
        if nothing_is_none:
            maps = np.where(maps > 0, maps, np.float32(-np.inf))
        return head_hits(maps.copy(), trees[reading.row])

    rows = stream_rows(
        folder,
        reader,
        words_of(sentences),
        rows_of,
        [len(sentence) for sentence in sentences],
        (2, len(reader.heads)),
        {"rows": "heads", "heads": [list(sentence.heads) for sentence in sentences]},
    )
    numbers = np.repeat(np.arange(len(sentences)), [len(sentence) for sentence in sentences])
    kept = (np.concatenate(trees) != ROOT) & ~np.isin(numbers, rows.left_out)
    relations = np.concatenate([sentence.relations for sentence in sentences])
    offsets = np.concatenate([offset_hits(heads) for heads in trees])
    values = np.concatenate(list(rows.values), axis=1)
    return Found(numbers[kept], relations[kept], values[kept], offsets[kept])


def _table(found: Found, halves: Halves, heads: Sequence[Head], least: int) -> Any:
    import pandas as pd

    scored = ~halves.chosen_on[found.sentences]
    names = [ALL, *_frequent(found, scored, least)]
    if len(names) == 1:
        raise ValueError(
            f"sentences must have a relation of {least} words to score, got none: "
            "read more of them, or ask for fewer words with least"
        )
    return pd.DataFrame([_row(name, found, halves, heads) for name in names])


def _frequent(found: Found, scored: Any, least: int) -> list[str]:
    """Relations with enough words to score, and some to choose on."""
    names, counts = np.unique(found.relations[scored], return_counts=True)
    there = np.isin(names, found.relations[~scored])
    order = sorted(
        (-count, name)
        for name, count, both in zip(names, counts, there, strict=True)
        if both and count >= least
    )
    return [str(name) for _, name in order]


def _row(name: str, found: Found, halves: Halves, heads: Sequence[Head]) -> dict[str, Any]:
    """Choose on one half, score on the other."""
    own = np.full(len(found.sentences), True) if name == ALL else found.relations == name
    first = halves.chosen_on[found.sentences]
    place, step = (int(hits[own & first].mean(0).argmax()) for hits in (found.heads, found.offsets))
    way, column = divmod(place, len(heads))
    right = found.heads[:, place], found.offsets[:, step]
    scored = own & ~first
    columns = (*right, right[0] - right[1])
    share, low, high = _over_sentences(columns, found.sentences, scored, ~halves.chosen_on)
    return {
        "relation": name,
        "words": int(scored.sum()),
        "layer": heads[column][0],
        "head": heads[column][1],
        "way": WAYS[way],
        "accuracy": share[0],
        "low": low[0],
        "high": high[0],
        "offset": OFFSETS[step],
        "offset accuracy": share[1],
        "offset low": low[1],
        "offset high": high[1],
        "gain": share[2],
        "gain low": low[2],
        "gain high": high[2],
    }


def _over_sentences(columns: Any, sentences: Integers, scored: Any, half: Any) -> Any:
    """Return the shares of columns over words, and their intervals over a half of sentences."""
    size, rows = len(half), sentences[scored]
    hits = [np.bincount(rows, column[scored], minlength=size)[half] for column in columns]
    totals = np.bincount(rows, minlength=size)[half]
    return resampled_ratio(np.stack(hits, 1), np.stack([totals] * len(columns), 1))
