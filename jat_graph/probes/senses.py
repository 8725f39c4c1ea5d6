"""How well the nearest centroid of a sense in SemCor finds the senses of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from jat_graph.checks.numbers import check_flag, check_indices
from jat_graph.probes.corpora import MarkedSentence, MarkedWord, WordNet
from jat_graph.probes.findings import Findings, Floats, resampled_mean
from jat_graph.probes.pictures import Figure, add_legend, draw_layers
from jat_graph.probes.states import MarkedStates, read_marked, read_training, train_map, unit
from jat_graph.probes.words import WordReader, check_layers, random_weights
from jat_graph.progress import track_progress
from jat_graph.viz.figures import new_figure

FIRST, FREQUENT = "WordNet's first sense", "most frequent in SemCor"
NEAREST, RANDOM = "nearest centroid", "nearest centroid, random weights"
PROBE, RANDOM_MAP = "semantic probe", "random map"
ALL, AMBIGUOUS = "all", "ambiguous"  # columns of tables, beside those of the sets

CAPTION = (
    "Share of words whose sense the nearest centroid in SemCor finds (F1), after each layer; "
    "behind that on all sets together is its 95 % interval over sentences. Only words with several "
    "senses in the training (column ambiguous) can be answered by states. The semantic probe is "
    "the mean over seeds, spread the distance between the best and the worst; it says something "
    "where it beats the random map that it began as. That senses can be told apart does not say "
    "that the model uses them."
)


def sense_probe(
    reader: WordReader,
    training: Sequence[MarkedSentence],
    tests: Mapping[str, Sequence[MarkedSentence]],
    wordnet: WordNet,
    *,
    layers: Sequence[int] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    controls: bool = True,
) -> Findings:
    """Ask after each layer of a model how well states of words tell their senses apart.

    A sense's centroid is the mean state of the words that have it in the training. The answer for a
    word is, of the senses of its lemma and part of speech, the one with the largest cosine between
    centroid and state; where the training has none of them it is WordNet's first sense. As every
    word gets an answer, F1 is the share of right ones. The semantic probe is a linear map trained
    so that the mean cosine of words in different senses, less that of words in the same sense, is
    small, for 300 steps at most; a tenth of the texts says when to end.

    Args:
        reader: A model, and where its states are kept.
        training: Sentences with senses, from :func:`read_semcor`.
        tests: Sets of them by name, from :func:`read_evaluation`.
        wordnet: The senses of words, from :func:`open_wordnet`.
        layers: Layers to ask after; 0 is the embeddings. (default: None, all)
        seeds: Seeds of the semantic probe; none for no such probe. (default: ``(0, 1, 2)``)
        controls: Ask random weights, too, which takes as long as the model. (default: True)

    Returns:
        F1 on each set, on all of them with the 95 % interval over sentences, and on the words of
        which the training has several senses; for the semantic probe the mean over seeds and the
        distance between the best and the worst.

    Raises:
        ValueError: If an option is not in its range, or there is nothing to learn from.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 4.
    """
    chosen = check_layers(reader, layers)
    seeds = check_indices("seeds", seeds) if seeds else ()
    check_flag("controls", controls)
    asked = read_marked(reader, [own for some in tests.values() for own in some])
    learned = read_training(reader, training)
    choices = Choices(asked.words, learned, wordnet)
    sets = np.repeat(list(tests), [len(some) for some in tests.values()])[asked.sentence]
    among: dict[str, Any] = {name: sets == name for name in tests}
    among |= {AMBIGUOUS: choices.number > 1, ALL: np.ones(len(sets), bool)}

    def row(method: str, layer: int | None, *hits: Any) -> dict[str, Any]:
        """F1 of each column: the share of right answers of all seeds, as each word gets one."""
        totals = np.stack(list(among.values()), 1).astype(float)  # [N, columns]
        right, number = np.mean(hits, 0)[:, None] * totals, len(asked.sentences)
        ratio, low, high = resampled_mean(right, asked.sentence, number, totals)
        found = {"method": method, "layer": layer, **dict(zip(among, ratio.tolist(), strict=True))}
        found |= {f"{ALL}_low": float(low[-1]), f"{ALL}_high": float(high[-1])}
        spread = float(np.ptp(np.mean(hits, 1))) if len(hits) > 1 else None
        return found | {"spread": spread}

    frequent = choices.score(learned.counts[choices.sense])
    rows = [row(FIRST, None, choices.first_is_right), row(FREQUENT, None, frequent)]
    for layer in chosen:
        rows.append(row(NEAREST, layer, choices.nearest(asked, learned, layer)))
    if controls:
        twin = replace(reader, model=random_weights(reader.model))
        one, two = (read_marked(twin, own.sentences) for own in (asked, learned))
        rows += [row(RANDOM, layer, choices.nearest(one, two, layer)) for layer in chosen]
    mapped = []
    for layer in track_progress(chosen if seeds else (), "Training semantic probes", len(chosen)):
        states = learned.after(layer)
        maps = [train_map(learned, states, seed) for seed in seeds]
        for name, own in zip((PROBE, RANDOM_MAP), zip(*maps, strict=True), strict=True):
            hits = [choices.nearest(asked, learned, layer, mapping) for mapping in own]
            mapped.append(row(name, layer, *hits))
    rows += sorted(mapped, key=lambda own: own["method"] == RANDOM_MAP)
    table = pd.DataFrame(rows).astype({"layer": "Int64"})
    settings = {
        "rank": reader.model.config.hidden_size,
        "seeds": list(seeds),
        "training_words": int(learned.is_read.sum()),
        "training_senses": len(learned.number),
        "words": {name: int(own.sum()) for name, own in among.items()},
        "sentences_not_read": len(asked.rows.left_out),
    }
    figures = {"senses": _draw(table)}
    return Findings("senses", CAPTION, table, settings, figures, ("method", "layer"))


class Choices:
    """The C senses that N words may have, in WordNet's order, and the right ones."""

    def __init__(
        self, words: Sequence[MarkedWord], learned: MarkedStates, wordnet: WordNet
    ) -> None:
        found, first = [], []
        for index, word in enumerate(words):
            keys = wordnet.senses(word.lemma, word.pos)
            first.append(bool(keys) and keys[0] in word.senses)
            known = [key for key in keys if key in learned.number]
            found += [(index, learned.number[key], key in word.senses) for key in known]
        self.word, self.sense, is_right = np.array(found, np.int64).reshape(-1, 3).T  # [C]
        self.is_right = is_right.astype(bool)
        self.first_is_right = np.array(first, bool)  # [N], WordNet's, a candidate or not
        self.number = np.bincount(self.word, minlength=len(words))  # [N], of candidates

    def score(self, worth: Any) -> Any:  # [C] -> [N] bool
        """Tell whether the candidate worth most is right; without one, WordNet's first sense."""
        best = pd.Series(worth).groupby(self.word).idxmax()
        found = self.first_is_right.copy()
        found[best.index.to_numpy(int)] = self.is_right[best.to_numpy(int)]
        return found

    def nearest(
        self, asked: MarkedStates, learned: MarkedStates, layer: int, mapping: Floats | None = None
    ) -> Any:  # [N] bool
        """Tell whether the candidate whose centroid has the largest cosine is right."""
        both = asked.after(layer), learned.centroids(learned.after(layer))
        own, middle = (unit(one if mapping is None else one @ mapping.T) for one in both)
        return self.score(np.einsum("cd,cd->c", own[self.word], middle[self.sense]))


def _draw(table: pd.DataFrame) -> Figure:
    """Draw F1 on all sets after each layer, and the two levels that need no model."""
    figure = new_figure(7.2, 4.4, heading="Senses found, all sets together", size=11)
    axis = figure.subplots()
    lines = {NEAREST: "-", PROBE: "-", RANDOM: "--", RANDOM_MAP: "--"}
    for style, (method, line) in enumerate(lines.items()):
        own = table[table["method"] == method]
        if len(own):
            draw_layers(axis, own, "layer", ALL, style, method, line)
    for method, line in {FIRST: ":", FREQUENT: "-."}.items():
        level = float(table.loc[table["method"] == method, ALL].iloc[0])
        axis.axhline(level, color="black", ls=line, lw=1, label=method)
    axis.set_ylabel("F1 (95 % intervals)", fontsize=9)
    return add_legend(figure, axis, 3)
