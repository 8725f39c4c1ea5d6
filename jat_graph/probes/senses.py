"""How well the nearest centroid of a sense in SemCor finds the senses of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.checks.numbers import check_flag, check_indices
from jat_graph.probes.corpora import MarkedSentence, MarkedWord, WordNet
from jat_graph.probes.findings import Findings, Floats, Integers, resampled_ratio
from jat_graph.probes.pictures import add_legend, draw_layers
from jat_graph.probes.semantic import split_triples, train_map
from jat_graph.probes.states import MarkedStates
from jat_graph.probes.words import WordReader, check_layers, random_weights
from jat_graph.progress import track_progress
from jat_graph.viz.figures import new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    training: Sequence[MarkedSentence],
    tests: Mapping[str, Sequence[MarkedSentence]],
    wordnet: WordNet,
    folder: str | Path,
    *,
    layers: Sequence[int] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    controls: bool = True,
) -> Findings:
    r"""Ask after each layer of a model how well states of words tell their senses apart.

    A sense's centroid is the mean state of the words that have it in the training; a word of
    several is the mean over them. The answer for a word is, of the senses of its lemma and part
    of speech, the one with the largest cosine between centroid and state; where the training has
    none of them it is WordNet's first sense. As every word gets an answer, F1 is the share of
    right ones.

    The semantic probe is a linear map :math:`B` trained so that the mean cosine of words in
    different senses, less that of words in the same sense, is small; terms further than 0.1 from
    their average before training have no part in it. A tenth of the texts says when to end, after
    300 steps at the latest.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        training: Sentences with senses, from :func:`read_semcor`.
        tests: Sets of them by name, from :func:`read_evaluation`.
        wordnet: The senses of words, from :func:`open_wordnet`.
        folder: Where states are kept, 1.5 KB for each word and layer at a width of 384, to be
            found by the next call.
        layers: Layers to ask after; 0 is the embeddings. (default: None, all)
        seeds: Seeds of the semantic probe; none for no such probe. (default: ``(0, 1, 2)``)
        controls: Whether random weights are asked as well, which takes as long as the model.
            (default: True)

    Returns:
        F1 on each set, on all of them with the 95 % interval over sentences, and on the words of
        which the training has several senses; for the semantic probe the mean over seeds and the
        distance between the best and the worst.

    Raises:
        ValueError: If an option is not in its range, or there is nothing to learn from.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 4; Raganato,
        Camacho-Collados and Navigli, *Word Sense Disambiguation: A Unified Evaluation Framework
        and Empirical Comparison*, 2017.
    """
    import pandas as pd

    chosen = check_layers(model, layers)
    seeds = check_indices("seeds", seeds) if seeds else ()
    check_flag("controls", controls)
    reader = WordReader(model, tokenizer, folder)
    asked = MarkedStates.read(reader, [own for some in tests.values() for own in some])
    learned = MarkedStates.read(reader, training)
    choices = Choices.of(asked.words, learned, wordnet)
    sets = np.repeat(list(tests), [len(some) for some in tests.values()])[asked.sentence]
    among = {name: sets == name for name in tests}
    among |= {AMBIGUOUS: choices.number > 1, ALL: np.ones(len(sets), bool)}

    def row(method: str, layer: int | None, *hits: Any) -> dict[str, Any]:
        return {"method": method, "layer": layer} | _scores(asked, among, np.stack(hits))

    frequent = choices.score(learned.counts[choices.sense])
    rows = [row(FIRST, None, choices.first_is_right), row(FREQUENT, None, frequent)]
    for layer in chosen:
        rows.append(row(NEAREST, layer, choices.nearest(asked, learned, layer)))
    if controls:
        other = WordReader(random_weights(model), tokenizer, folder)
        one, two = (MarkedStates.read(other, own.sentences) for own in (asked, learned))
        rows += [row(RANDOM, layer, choices.nearest(one, two, layer)) for layer in chosen]
    mapped = []
    for layer in track_progress(chosen if seeds else (), "Training semantic probes", len(chosen)):
        states = learned.after(layer)
        maps = [train_map(states, *split_triples(learned, seed), seed) for seed in seeds]
        for name, own in zip((PROBE, RANDOM_MAP), zip(*maps, strict=True), strict=True):
            hits = [choices.nearest(asked, learned, layer, mapping) for mapping in own]
            mapped.append(row(name, layer, *hits))
    rows += sorted(mapped, key=lambda own: own["method"] == RANDOM_MAP)
    table = pd.DataFrame(rows)
    table["layer"] = table["layer"].astype("Int64")
    settings = {
        "rank": model.config.hidden_size,
        "seeds": list(seeds),
        "training_words": int(learned.is_read.sum()),
        "training_senses": len(learned.number),
        "words": {name: int(own.sum()) for name, own in among.items()},
        "sentences_not_read": len(asked.rows.left_out),
    }
    figures = {"senses": _draw(table)}
    return Findings("senses", CAPTION, table, settings, figures, ("method", "layer"))


@dataclass(frozen=True)
class Choices:
    """Which senses each of N words may have, and which are right.

    Candidates are the senses of the word that occur in the training, in WordNet's order; those of
    a word follow each other.
    """

    word: Integers  # [C], of each candidate
    sense: Integers  # [C], its number in the training
    is_right: Any  # [C] bool, whether it is one of the word's senses
    first_is_right: Any  # [N] bool, whether WordNet's first sense is, candidate or not

    @classmethod
    def of(cls, words: Sequence[MarkedWord], learned: MarkedStates, wordnet: WordNet) -> Choices:
        """Look up what WordNet says of words, and the training knows."""
        found, first = [], []
        for index, word in enumerate(words):
            keys = wordnet.senses(word.lemma, word.pos)
            first.append(bool(keys) and keys[0] in word.senses)
            known = [key for key in keys if key in learned.number]
            found += [(index, learned.number[key], key in word.senses) for key in known]
        columns = np.array(found, np.int64).reshape(-1, 3).T
        return cls(columns[0], columns[1], columns[2].astype(bool), np.array(first, bool))

    @property
    def number(self) -> Integers:  # [N]
        """How many candidates each word has."""
        return np.bincount(self.word, minlength=len(self.first_is_right))

    def score(self, worth: Any) -> Any:  # [C] -> [N] bool
        """Tell whether the candidate that is worth most is right, of several the first.

        WordNet's first sense answers where there is no candidate.
        """
        import pandas as pd

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


def unit(vectors: Floats) -> Floats:
    """Return vectors of length 1; those of length 0 as they are."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    found: Floats = (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return found


def _scores(asked: MarkedStates, among: Mapping[str, Any], hits: Any) -> dict[str, Any]:
    """F1 of each column: the share of right answers, [seeds, N], as each word gets one."""

    def by_sentence(worth: Floats) -> Floats:
        counted = (
            np.bincount(asked.sentence, worth * own, len(asked.sentences)) for own in among.values()
        )
        return np.stack(list(counted), axis=1)

    share = hits.mean(0)
    ratio, low, high = resampled_ratio(by_sentence(share), by_sentence(np.ones_like(share)))
    found = dict(zip(among, ratio.tolist(), strict=True))
    found |= {f"{ALL}_low": float(low[-1]), f"{ALL}_high": float(high[-1])}
    spread = float(np.ptp(hits.mean(1))) if len(hits) > 1 else None
    return found | {"spread": spread}


def _draw(table: pd.DataFrame) -> Figure:
    """Draw F1 on all sets after each layer, and the two levels that need no model."""
    figure = new_figure(7.2, 4.4, heading="Senses found, all sets together", size=11)
    axis = figure.subplots()
    for style, (method, line) in enumerate(
        {NEAREST: "-", PROBE: "-", RANDOM: "--", RANDOM_MAP: "--"}.items()
    ):
        own = table[table["method"] == method]
        if len(own):
            draw_layers(axis, own, "layer", ALL, style, method, line)
    for method, line in {FIRST: ":", FREQUENT: "-."}.items():
        level = float(table.loc[table["method"] == method, ALL].iloc[0])
        axis.axhline(level, color="black", ls=line, lw=1, label=method)
    axis.set_ylabel("F1 (95 % intervals)", fontsize=9)
    add_legend(figure, axis, 3)
    return figure
