"""How well the nearest centroid of a sense in SemCor finds the senses of words."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.checks.numbers import check_flag, check_indices, check_integer
from jat_graph.probes.corpora import MarkedSentence, MarkedWord, WordNet
from jat_graph.probes.findings import Findings, Floats, Integers, resampled_ratio
from jat_graph.probes.pictures import add_legend, draw_layers, new_figure
from jat_graph.probes.words import Rows, WordReader, check_layers, random_weights
from jat_graph.progress import track_progress

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FIRST, FREQUENT = "WordNet's first sense", "most frequent in SemCor"
NEAREST, RANDOM = "nearest centroid", "nearest centroid, random weights"
PROBE, RANDOM_MAP = "semantic probe", "random map"
ALL, AMBIGUOUS = "all", "ambiguous"  # columns of tables, beside those of the sets

LEAST = 2  # occurrences of a sense, and senses of a word, that the semantic probe learns from
CLAMP = 0.1  # around the average before training, as in the source
VALID_SHARE = 0.1  # of the texts
BATCH, RATE = 256, 1e-3
LOOKS, STEPS, PATIENCE = 15, 20, 3  # at the loss on other texts, steps from one to the next
HELD_OUT = 2048  # triples of these texts

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
    rank: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    controls: bool = True,
    batch_size: int = 32,
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
        rank: Rows of :math:`B`. (default: None, the model's width)
        seeds: Seeds of the semantic probe; none for no such probe. (default: ``(0, 1, 2)``)
        controls: Whether random weights are asked as well, which takes as long as the model.
            (default: True)
        batch_size: Most sentences that the model reads at a time. (default: 32)

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

    chosen, rank = check_layers(model, layers), check_rank(rank, model)
    seeds = check_indices("seeds", seeds) if len(seeds) else ()
    check_flag("controls", controls)
    reader = WordReader(model, tokenizer, folder, batch_size=batch_size)
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
        other = WordReader(random_weights(model), tokenizer, folder, batch_size=batch_size)
        both = [MarkedStates.read(other, own.sentences) for own in (asked, learned)]
        rows += [row(RANDOM, layer, choices.nearest(*both, layer)) for layer in chosen]
    mapped = []
    for layer in track_progress(chosen if seeds else (), "Training semantic probes", len(chosen)):
        states = learned.after(layer)
        maps = [train_map(states, *split_triples(learned, seed), rank, seed) for seed in seeds]
        for name, own in zip((PROBE, RANDOM_MAP), zip(*maps, strict=True), strict=True):
            hits = [choices.nearest(asked, learned, layer, mapping) for mapping in own]
            mapped.append(row(name, layer, *hits))
    rows += sorted(mapped, key=lambda own: own["method"] == RANDOM_MAP)
    table = pd.DataFrame(rows)
    table["layer"] = table["layer"].astype("Int64")
    settings = {
        "rank": rank,
        "seeds": list(seeds),
        "training_words": int(learned.is_read.sum()),
        "training_senses": len(learned.number),
        "words": {name: int(own.sum()) for name, own in among.items()},
        "sentences_not_read": len(asked.rows.left_out),
    }
    figures = {"senses": _draw(table)}
    return Findings("senses", CAPTION, table, settings, figures, ("method", "layer"))


def check_rank(rank: int | None, model: PreTrainedModel) -> int:
    """Return the rank of a map of a model's states; their width unless one is given."""
    width = model.config.hidden_size
    return width if rank is None else check_integer("rank", rank, least=1, below=width + 1)


@dataclass(frozen=True)
class MarkedStates:
    """The states of all N marked words of sentences, and the S senses that these have.

    A word of which annotators gave several senses counts for each of them.

    Args:
        sentences: What was read.
        rows: The states of each of their words, those of one mark after the other.
    """

    sentences: Sequence[MarkedSentence]
    rows: Rows

    @classmethod
    def read(cls, reader: WordReader, sentences: Sequence[MarkedSentence]) -> MarkedStates:
        """Read the states of marked words, or find them where they were kept."""
        keep = [[at for word in own.marked for at in word.indices] for own in sentences]
        return cls(sentences, reader.read_states([own.words for own in sentences], keep))

    @cached_property
    def words(self) -> list[MarkedWord]:
        """The marked words."""
        return [word for sentence in self.sentences for word in sentence.marked]

    @cached_property
    def sentence(self) -> Integers:  # [N]
        """The sentence of each."""
        return np.repeat(np.arange(len(self.sentences)), [len(s.marked) for s in self.sentences])

    @cached_property
    def is_read(self) -> Any:  # [N] bool
        """Whether the model could read the sentence of each."""
        return ~np.isin(self.sentence, self.rows.left_out)

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of each sense, by its key."""
        read = (word for word, is_read in zip(self.words, self.is_read, strict=True) if is_read)
        keys = dict.fromkeys(key for word in read for key in word.senses)
        if not keys:
            raise ValueError("training must have words with senses that the model reads, got none")
        return {key: number for number, key in enumerate(keys)}

    @cached_property
    def occurrences(self) -> Integers:  # [2, O]
        """Word and sense of each occurrence of a sense."""
        pairs = [
            (index, self.number[key])
            for index in np.flatnonzero(self.is_read).tolist()
            for key in self.words[index].senses
        ]
        return np.array(pairs, np.int64).T

    @cached_property
    def counts(self) -> Integers:  # [S]
        """How often each sense occurs."""
        return np.bincount(self.occurrences[1], minlength=len(self.number))

    def after(self, layer: int) -> Floats:  # [N, D]
        """Return the state of each marked word after a layer: the mean over its words."""
        sizes = np.array([len(word.indices) for word in self.words])
        starts = np.concatenate([[0], sizes.cumsum()[:-1]])
        sums = np.add.reduceat(self.rows.values[layer], starts, axis=0)
        mean: Floats = (sums / sizes[:, None]).astype(np.float32)
        return mean

    def centroids(self, states: Floats) -> Floats:  # [N, D] -> [S, D]
        """Return the mean state of each sense."""
        from scipy.sparse import csr_array

        word, sense = self.occurrences
        shares = (1 / self.counts[sense]).astype(np.float32)
        members = csr_array((shares, (sense, word)), (len(self.number), len(states)))
        return np.asarray(members @ states, np.float32)

    def lemmas(self, texts: Collection[str]) -> list[list[list[int]]]:
        """Return words in some texts by lemma and sense: two senses or more, each twice or more.

        Words that have several senses at once are left out.
        """
        blocks: dict[tuple[str, str], dict[int, list[int]]] = {}
        for index, sense in self.occurrences.T.tolist():
            own = self.words[index]
            if len(own.senses) == 1 and self.sentences[self.sentence[index]].text in texts:
                senses = blocks.setdefault((own.lemma, own.pos), {})
                senses.setdefault(sense, []).append(index)
        often = ([own for own in some.values() if len(own) >= LEAST] for some in blocks.values())
        return [senses for senses in often if len(senses) >= LEAST]


@dataclass(frozen=True)
class Choices:
    """Which senses each of N words may have, and which are right.

    Candidates are the senses of the word that occur in the training, in WordNet's order; those of
    a word follow each other.

    Args:
        word: The word of each candidate.
        sense: Its number in the training.
        is_right: Whether it is one of the word's senses.
        first_is_right: Of each word, whether the first sense in WordNet is, candidate or not.
    """

    word: Integers  # [C]
    sense: Integers  # [C]
    is_right: Any  # [C] bool
    first_is_right: Any  # [N] bool

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


@dataclass(frozen=True)
class Triples:
    """Marked words of which there is another one in the same sense, and one in a different sense.

    They are in an order in which words of one lemma follow each other, and in it those of one
    sense.

    Args:
        word: The marked word of each.
        lemma: Where those of its lemma begin, and how many they are.
        sense: The same of its sense.
    """

    word: Integers  # [O]
    lemma: Integers  # [O, 2]
    sense: Integers  # [O, 2]

    @classmethod
    def of(cls, states: MarkedStates, texts: Collection[str]) -> Triples:
        """Find them in some of the texts."""
        word: list[int] = []
        lemma, sense = [], []
        for senses in states.lemmas(texts):
            first, size = len(word), sum(map(len, senses))
            for words in senses:
                lemma += [(first, size)] * len(words)
                sense += [(len(word), len(words))] * len(words)
                word += words
        pairs = (np.array(own, np.int64).reshape(-1, 2) for own in (lemma, sense))
        return cls(np.array(word, np.int64), *pairs)

    def draw(self, states: Floats, number: int, chance: np.random.Generator) -> Tensor:
        """Draw words, and for each one in the same sense and one in another: [3, number, D]."""
        own = chance.integers(len(self.word), size=number)
        (start, size), (first, all_) = self.sense[own].T, self.lemma[own].T
        same = start + (own - start + chance.integers(1, size)) % size
        other = first + chance.integers(0, all_ - size)
        other += np.where(other >= start, size, 0)
        return torch.from_numpy(states[self.word[np.stack([own, same, other])]])


def split_triples(states: MarkedStates, seed: int) -> tuple[Triples, Triples]:
    """Draw texts that semantic probes are trained on, and those by which training ends."""
    texts = np.array(sorted({sentence.text for sentence in states.sentences}))
    order = texts[np.random.default_rng(seed).permutation(len(texts))].tolist()
    number = max(1, round(VALID_SHARE * len(texts)))
    found = tuple(Triples.of(states, set(own)) for own in (order[number:], order[:number]))
    for name, some in zip(("train on", "end by"), found, strict=True):
        if not len(some.word):
            wanted = "training must have words with two senses, each twice"
            raise ValueError(f"{wanted}, to {name}, got none")
    return found[0], found[1]


def train_map(
    states: Floats, training: Triples, ending: Triples, rank: int, seed: int
) -> tuple[Floats, Floats]:  # [N, D] -> [R, D] twice
    """Return the semantic probe as it is trained, and the random map that it began as.

    The loss is how alike states of different senses are, less how alike those of the same sense
    are; cosines further than 0.1 from their average before training change nothing. Training ends
    when the loss on other texts falls no more.
    """
    chance, width = np.random.default_rng(seed), states.shape[1]
    start = torch.randn(rank, width, generator=torch.Generator().manual_seed(seed)) / width**0.5
    held_out = ending.draw(states, HELD_OUT, chance)
    middle = _cosines(start, held_out).mean(1, keepdim=True)

    def loss_of(mapping: Tensor, batch: Tensor) -> Tensor:
        same, other = _cosines(mapping, batch).clamp(middle - CLAMP, middle + CLAMP).mean(1)
        loss: Tensor = other - same
        return loss

    mapping = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([mapping], lr=RATE)
    best, least, patience = start, math.inf, PATIENCE
    for _ in range(LOOKS):
        with torch.no_grad():
            loss = float(loss_of(mapping, held_out))
        if loss < least:
            best, least, patience = mapping.detach().clone(), loss, PATIENCE
        elif not (patience := patience - 1):
            break
        for _ in range(STEPS):
            optimizer.zero_grad()
            batch = training.draw(states, BATCH, chance)
            loss_of(mapping, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return best.numpy(), start.numpy()


def _cosines(mapping: Tensor, batch: Tensor) -> Tensor:  # [3, T, D] -> [2, T]
    """How alike words are to those of the same sense, and to those of another."""
    own, same, other = batch @ mapping.T
    return torch.stack([F.cosine_similarity(own, same), F.cosine_similarity(own, other)])


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
