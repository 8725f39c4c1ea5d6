"""How far another sense in the same sentence draws a word from its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jat_graph.core.numbers import check_integer
from jat_graph.core.progress import track_progress
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.corpora import MarkedSentence
from jat_graph.looking.probes.drawing import Figure, add_legend, draw_lines
from jat_graph.looking.probes.findings import Findings, Integers, resampled_ratio, with_ends
from jat_graph.looking.probes.states import MarkedStates, read_training, train_map, unit
from jat_graph.looking.probes.words import WordReader, check_layers
from jat_graph.looking.viz.figures import PAGE, new_figure

AS_THEY_ARE, MAPPED = "as they are", "semantic probe"
ALONE, OPPOSITE, CHANCE = "alone", "with the other sense", "with a random sentence"

CAPTION = (
    "How much nearer words are to the centroid of their own sense in SemCor than to that of "
    "another sense: the ratio of both mean cosines, the mean of each word's own ratio as in the "
    "source (mean_of_ratios), and the share of words that are nearer to the other sense (wrong), "
    "for a sentence alone, joined by 'and' to one with the other sense, and joined to a random "
    "one. Low and high are the ends of 95 % intervals over pairs. The mean of ratios depends on "
    "the few words whose cosine with the other sense is near 0. Only the difference to the random "
    "sentence is an effect of the sense."
)


def similarity_ratio(
    reader: WordReader,
    training: Sequence[MarkedSentence],
    *,
    pairs: int = 1000,
    layers: Sequence[int] | None = None,
    seed: int = 0,
) -> Findings:
    """Ask how far another sense of a word in the same sentence draws a word from its own sense.

    A pair are two sentences with a word in two senses, each pair with another word. The ratio is
    the mean cosine of words with the centroid of their own sense, without the word itself, divided
    by the mean with that of the other one; the mean of ratios is that of both cosines of each word;
    a word is wrong where the other one is nearer. All are asked where each sentence stands alone,
    where "and" joins the two, and where a random sentence takes the place of the other. In a
    decoder only the second word can see the other sentence.

    Args:
        reader, training, layers: As for :func:`sense_probe`, which shares what is kept.
        pairs: Most pairs; a word has two senses that occur twice. (default: 1000)
        seed: Seed of what is drawn, and of the semantic probe. (default: 0)

    Returns:
        For each layer, as states are and after the semantic probe: the ratio of means, the mean of
        ratios and the share of wrong words, each with its 95 % interval over pairs.

    Raises:
        ValueError: If an option is not in its range, or there is nothing to learn from.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 4.3, where
        a word counts in its own centroid, and the mean of ratios is shown alone.
    """
    chosen = check_layers(reader, layers)
    check_integer("pairs", pairs, least=1)
    check_integer("seed", seed, least=0)
    learned = read_training(reader, training)
    words, sentences = draw_pairs(learned, pairs, seed)
    joined = MarkedStates(reader, sentences)
    kept = np.flatnonzero(joined.is_read.reshape(-1, 4).all(1))
    if not len(kept):
        raise ValueError("training must have two sentences that fit the model, got none")
    words = words[kept]
    keys = [learned.words[word].senses[0] for word in words.ravel()]
    senses = np.array([learned.number[key] for key in keys]).reshape(-1, 2)
    count = learned.counts[senses][..., None]
    rows = []
    for layer in track_progress(chosen, "Comparing senses", len(chosen)):
        states = learned.after(layer)
        own, middle = states[words], learned.centroids(states)[senses]  # [P, 2, D]
        others = (count * middle - own) / (count - 1)  # the centroid without the word
        both = joined.after(layer).reshape(-1, 4, own.shape[-1])[kept]
        asked = {ALONE: own, OPPOSITE: both[:, :2], CHANCE: both[:, 2:]}
        mapping, _ = train_map(learned, states, seed)
        for name, one in ((AS_THEY_ARE, None), (MAPPED, mapping)):
            for where, some in asked.items():
                three = (some, others, middle[:, ::-1])
                mapped, *two = (unit(part if one is None else part @ one.T) for part in three)
                near, far = ((mapped * part).sum(-1) for part in two)
                row = {"layer": layer, "states": name, "sentence": where}
                each = np.divide(near, far, out=np.full_like(near, np.nan), where=far != 0)
                found = {"ratio": resampled_ratio(near.sum(1), far.sum(1))}
                for which, of_words in (("mean_of_ratios", each), ("wrong", near < far)):
                    found[which] = resampled_ratio(of_words.sum(1), np.full(len(far), 2))
                for which, ends in found.items():
                    row |= with_ends(which, ends, f"{which}_")
                rows.append(row)
    table = pd.DataFrame(rows)
    settings = {"pairs": len(kept), "rank": reader.model.config.hidden_size, "seed": seed}
    index = ("layer", "states", "sentence")
    return Findings("ratio", CAPTION, table, settings, {"ratio": _draw(table)}, index)


def draw_pairs(
    states: MarkedStates, number: int, seed: int
) -> tuple[Integers, list[MarkedSentence]]:
    """Draw P pairs of words of one lemma in two senses and sentences, each of another lemma."""
    chance = np.random.default_rng(seed)
    words: list[list[int]] = []  # [P, 2]
    joined: list[MarkedSentence] = []  # three a pair: both, and each with a random one

    def other(lemma: str) -> MarkedSentence:  # any without it, nothing marked in it
        for index in chance.permutation(len(states.sentences)):
            sentence = states.sentences[index]
            if all(word.lemma != lemma for word in sentence.marked):
                return MarkedSentence(sentence.words, (), sentence.text)
        raise ValueError(f"training must have a sentence without {lemma!r}, got none")

    of_texts = states.by_lemma({sentence.text for sentence in states.sentences})
    lemmas = [own for _, own in of_texts.groupby("lemma")]
    for index in chance.permutation(len(lemmas)):
        senses = [own.tolist() for _, own in lemmas[index].groupby("sense")["word"]]
        two = chance.choice(len(senses), 2, replace=False)
        pair = [int(chance.choice(senses[sense])) for sense in two]
        rows = states.sentence[pair]
        if rows[0] != rows[1]:
            before, behind = (
                replace(states.sentences[row], marked=(states.words[word],))
                for row, word in zip(rows, pair, strict=True)
            )
            lemma = states.words[pair[0]].lemma
            words.append(pair)
            three = (before, behind), (before, other(lemma)), (other(lemma), behind)
            joined += [join_sentences(*two) for two in three]
        if len(words) == number:
            break
    if not words:
        raise ValueError("training must have words with two senses, each twice, got none")
    return np.array(words), joined


def join_sentences(first: MarkedSentence, second: MarkedSentence) -> MarkedSentence:
    """Return both sentences with "and" between them, and what is marked in them."""
    ahead, marked = len(first.words) + 1, list(first.marked)
    for word in second.marked:
        marked.append(replace(word, indices=tuple(ahead + index for index in word.indices)))
    return MarkedSentence((*first.words, "and", *second.words), tuple(marked), first.text)


def _draw(table: pd.DataFrame) -> Figure:
    """Draw the ratio after each layer: states as they are, and after the semantic probe."""
    figure = new_figure(PAGE, 3.2)
    axes: Any = figure.subplots(1, 2, sharey=True)
    for axis, (kind, own) in zip(axes, table.groupby("states", sort=False), strict=True):
        draw_lines(axis, own, "sentence", "layer", "ratio")
        axis.axhline(1, color="black", lw=0.8)
        axis.set_title(kind, fontsize=9)
    axes[0].set_ylabel("cosine with own sense / other (95 %)", fontsize=9)
    return add_legend(figure, axes[0])
