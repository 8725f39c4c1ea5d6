"""How far another sense in the same sentence draws a word from its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.checks.numbers import check_integer
from jat_graph.probes.corpora import MarkedSentence
from jat_graph.probes.findings import Findings, Floats, Integers, resampled_ratio
from jat_graph.probes.pictures import add_legend, draw_layers
from jat_graph.probes.semantic import split_triples, train_map
from jat_graph.probes.senses import unit
from jat_graph.probes.states import MarkedStates
from jat_graph.probes.words import WordReader, check_layers
from jat_graph.progress import track_progress
from jat_graph.viz.figures import new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AS_THEY_ARE, MAPPED = "as they are", "semantic probe"
ALONE, OPPOSITE, CHANCE = "alone", "with the other sense", "with a random sentence"

CAPTION = (
    "How much nearer words are to the centroid of their own sense in SemCor than to that of "
    "another sense: the ratio of both mean cosines, and the share of words to which the other one "
    "is nearer (wrong), where a sentence stands alone, joined to one with the other sense by "
    "'and', and joined to a random one; low and high are the ends of 95 % intervals over pairs. "
    "Only what the other sense does beyond the random sentence is an effect of the sense."
)


def similarity_ratio(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    training: Sequence[MarkedSentence],
    folder: str | Path,
    *,
    pairs: int = 1000,
    layers: Sequence[int] | None = None,
    seed: int = 0,
) -> Findings:
    """Ask how far another sense of a word in the same sentence draws a word from its own sense.

    A pair are two sentences with a word in two senses, each pair with another word. The ratio is
    the mean cosine of words with the centroid of their own sense, divided by the mean with that of
    the other one; a word is wrong where the other one is nearer. Both words of a pair are asked
    where each sentence stands alone, where the two are one sentence with "and" between them, and
    where a random sentence stands in the place of the other.

    A word is left out of its own centroid: with it, a word alone would be near its sense merely
    because it is itself. In a decoder only the second word can see the other sentence.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        training: Sentences with senses, from :func:`read_semcor`.
        folder: Where states are kept; those of the training are the same as for
            :func:`sense_probe`.
        pairs: How many pairs, or as many as there are words with two senses that occur twice.
            (default: 1000)
        layers: Layers to ask after; 0 is the embeddings. (default: None, all)
        seed: Seed of what is drawn, and of the semantic probe. (default: 0)

    Returns:
        For each layer, as states are and after the semantic probe: the ratio and the share of
        wrong words, each with its 95 % interval over pairs.

    Raises:
        ValueError: If an option is not in its range, or there is nothing to learn from.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 4.3, where
        a word counts in its own centroid, and the mean of ratios is shown.
    """
    import pandas as pd

    chosen = check_layers(model, layers)
    check_integer("pairs", pairs, least=1)
    check_integer("seed", seed, least=0)
    reader = WordReader(model, tokenizer, folder)
    learned = MarkedStates.read(reader, training)
    words, sentences = draw_pairs(learned, pairs, seed)
    joined = MarkedStates.read(reader, sentences)
    kept = np.flatnonzero(joined.is_read.reshape(-1, 4).all(1))
    if not len(kept):
        raise ValueError("training must have two sentences that fit the model, got none")
    words = words[kept]
    keys = [learned.words[word].senses[0] for word in words.ravel()]
    senses = np.array([learned.number[key] for key in keys]).reshape(-1, 2)
    count = learned.counts[senses][..., None]
    triples, rows = split_triples(learned, seed), []
    for layer in track_progress(chosen, "Comparing senses", len(chosen)):
        states = learned.after(layer)
        own, middle = states[words], learned.centroids(states)[senses]  # [P, 2, D]
        others = (count * middle - own) / (count - 1)  # the centroid without the word
        both = joined.after(layer).reshape(-1, 4, own.shape[-1])[kept]
        asked = {ALONE: own, OPPOSITE: both[:, :2], CHANCE: both[:, 2:]}
        mapping, _ = train_map(states, *triples, seed)
        for name, one in ((AS_THEY_ARE, None), (MAPPED, mapping)):
            for where, some in asked.items():
                three = some, others, middle[:, ::-1]
                found = _measures(*(part if one is None else part @ one.T for part in three))
                rows.append({"layer": layer, "states": name, "sentence": where} | found)
    table = pd.DataFrame(rows)
    settings = {"pairs": len(kept), "rank": model.config.hidden_size, "seed": seed}
    index = ("layer", "states", "sentence")
    return Findings("ratio", CAPTION, table, settings, {"ratio": _draw(table)}, index)


def draw_pairs(
    states: MarkedStates, number: int, seed: int
) -> tuple[Integers, list[MarkedSentence]]:
    """Draw P pairs of words of one lemma in two senses and sentences, each of another lemma.

    Returns the words, [P, 2], and three sentences a pair: both joined, in which both words are
    marked; the first before a random one; and the second behind one.
    """
    chance = np.random.default_rng(seed)
    lemmas = states.lemmas({sentence.text for sentence in states.sentences})
    words: list[tuple[int, int]] = []
    joined: list[MarkedSentence] = []
    for index in chance.permutation(len(lemmas)):
        senses = lemmas[index]
        two = chance.choice(len(senses), 2, replace=False)
        first, second = (int(chance.choice(senses[sense])) for sense in two)
        if states.sentence[first] != states.sentence[second]:
            words.append((first, second))
            before, behind = (
                replace(states.sentences[states.sentence[word]], marked=(states.words[word],))
                for word in (first, second)
            )
            lemma = states.words[first].lemma
            joined.append(join_sentences(before, behind))
            joined.append(join_sentences(before, _random_sentence(states, lemma, chance)))
            joined.append(join_sentences(_random_sentence(states, lemma, chance), behind))
        if len(words) == number:
            break
    if not words:
        raise ValueError("training must have words with two senses, each twice, got none")
    return np.array(words), joined


def _random_sentence(
    states: MarkedStates, lemma: str, chance: np.random.Generator
) -> MarkedSentence:
    """A sentence without a lemma, nothing marked in it."""
    for index in chance.permutation(len(states.sentences)):
        sentence = states.sentences[index]
        if all(word.lemma != lemma for word in sentence.marked):
            return MarkedSentence(sentence.words, (), sentence.text)
    raise ValueError(f"training must have a sentence without {lemma!r}, got none")


def join_sentences(first: MarkedSentence, second: MarkedSentence) -> MarkedSentence:
    """Return both sentences with "and" between them, and what is marked in them."""
    ahead = len(first.words) + 1
    moved = tuple(
        replace(word, indices=tuple(ahead + index for index in word.indices))
        for word in second.marked
    )
    words = (*first.words, "and", *second.words)
    return MarkedSentence(words, first.marked + moved, first.text)


def _measures(words: Floats, own: Floats, other: Floats) -> dict[str, float]:  # [P, 2, D] each
    """The ratio of mean cosines, and the share of words to which the other sense is nearer.

    The mean of ratios would hang on the few words whose cosine is near 0.
    """
    near, far = ((unit(words) * unit(middle)).sum(-1) for middle in (own, other))
    found: dict[str, float] = {}
    for name, above, below in (("ratio", near, far), ("wrong", near < far, np.ones_like(far))):
        ends = map(float, resampled_ratio(above.sum(1), below.sum(1)))
        found |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
    return found


def _draw(table: pd.DataFrame) -> Figure:
    """Draw the ratio after each layer: states as they are, and after the semantic probe."""
    heading = "Mean cosine with the centroid of the own sense by that with the other sense's"
    figure = new_figure(7.6, 3.6, heading=heading, size=11)
    axes: Any = figure.subplots(1, 2, sharey=True)
    for axis, kind in zip(axes, (AS_THEY_ARE, MAPPED), strict=True):
        some = table[table["states"] == kind]
        for style, where in enumerate((ALONE, OPPOSITE, CHANCE)):
            draw_layers(axis, some[some["sentence"] == where], "layer", "ratio", style, where)
        axis.axhline(1, color="black", lw=0.8)
        axis.set_title(kind, fontsize=10)
    axes[0].set_ylabel("ratio (95 % intervals)", fontsize=9)
    add_legend(figure, axes[0])
    return figure
