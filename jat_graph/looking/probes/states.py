"""The states of marked words, a linear map for their senses, and how well these are told."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import scatter

from jat_graph.core.numbers import check_flag, check_indices
from jat_graph.core.progress import track_progress
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.corpora import MarkedSentence, MarkedWord, WordNet
from jat_graph.looking.probes.drawing import Figure, add_legend, draw_lines
from jat_graph.looking.probes.findings import Findings, Floats, resampled_mean
from jat_graph.looking.probes.words import WordReader, check_layers, random_weights, read_states
from jat_graph.looking.viz.figures import PAGE, new_figure

LEAST = 2  # occurrences of a sense, and senses of a word, that the semantic probe learns from
CLAMP = 0.1  # around the average before training, as in the source
VALID_SHARE = 0.1  # of the texts
BATCH, RATE = 256, 1e-3
LOOKS, STEPS, PATIENCE = 15, 20, 3  # at the loss on other texts, steps from one to the next
HELD_OUT = 2048  # triples of these texts


class MarkedStates:
    """The states of all N marked words of sentences, and the S senses that these have."""

    def __init__(self, reader: WordReader, sentences: Sequence[MarkedSentence]) -> None:
        keep = [[word.indices for word in own.marked] for own in sentences]
        self.rows = read_states(reader, [own.words for own in sentences], keep)
        self.sentences = sentences
        self.words = [word for sentence in sentences for word in sentence.marked]
        numbers = np.arange(len(sentences))
        self.sentence = np.repeat(numbers, [len(own.marked) for own in sentences])  # [N]
        self.is_read = ~np.isin(self.sentence, self.rows.left_out)  # [N] bool
        known = []
        for index in np.flatnonzero(self.is_read).tolist():
            word, text = self.words[index], sentences[self.sentence[index]].text
            # A word of which annotators gave several senses counts for each of them.
            lemma, is_only = f"{word.lemma} {word.pos}", len(word.senses) == 1
            known += [(index, key, lemma, text, is_only) for key in word.senses]
        self.known = pd.DataFrame(known, columns=["word", "key", "lemma", "text", "is_only"])
        self.known["sense"], keys = pd.factorize(self.known["key"])
        self.number = {key: number for number, key in enumerate(keys)}  # of each sense
        self.counts = np.bincount(self.known["sense"], minlength=len(keys))  # [S]

    def after(self, layer: int) -> Floats:  # [N, D]
        """Return the state of each marked word after a layer: the mean over its words."""
        return np.array(self.rows.values[layer])

    def centroids(self, states: Floats) -> Any:  # [N, D] -> [S, D]
        """Return the mean state of each sense."""
        word, sense = (torch.tensor(self.known[name].to_numpy(int)) for name in ("word", "sense"))
        return scatter(torch.from_numpy(states)[word], sense, reduce="mean").numpy()

    def by_lemma(self, texts: Collection[str]) -> pd.DataFrame:
        """Return words in texts by lemma and sense, of one sense each: several, and each twice."""
        own = self.known[self.known["is_only"] & self.known["text"].isin(texts)]
        numbers = {name: pd.factorize(own[name])[0] for name in ("lemma", "sense")}
        own = own.assign(**numbers)  # in the order of their first words
        own = own[own.groupby("sense")["word"].transform("size") >= LEAST]
        own = own[own.groupby("lemma")["sense"].transform("nunique") >= LEAST]
        return own.sort_values(["lemma", "sense"], ignore_index=True)


def read_training(reader: WordReader, training: Sequence[MarkedSentence]) -> MarkedStates:
    """Read the states of words whose senses are learned."""
    found = MarkedStates(reader, training)
    if not found.number:
        raise ValueError("training must have words with senses that the model reads, got none")
    return found


def unit(vectors: Floats) -> Any:
    """Return vectors of length 1; those of length 0 as they are."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


class Triples:
    """Words of which there are others in the same sense and in another."""

    def __init__(self, words: pd.DataFrame) -> None:
        self.word = words["word"].to_numpy()
        # For each word, where its lemma or its sense begins, and how large that is.
        self.spans: dict[str, tuple[Any, Any]] = {}
        for kind in ("lemma", "sense"):
            groups = words.groupby(kind)["word"]
            start = words.index - groups.cumcount()
            self.spans[kind] = start.to_numpy(), groups.transform("size").to_numpy()

    def draw(self, states: Floats, number: int, chance: np.random.Generator) -> Tensor:
        """Draw words, and for each one in the same sense and one in another: [3, number, D]."""
        own = chance.integers(len(self.word), size=number)
        first, all_ = (part[own] for part in self.spans["lemma"])
        start, size = (part[own] for part in self.spans["sense"])
        same = start + (own - start + chance.integers(1, size)) % size
        other = first + chance.integers(0, all_ - size)
        other += np.where(other >= start, size, 0)
        return torch.from_numpy(states[self.word[np.stack([own, same, other])]])


def split_triples(states: MarkedStates, seed: int) -> list[Triples]:
    """Draw texts that semantic probes are trained on, and those by which training ends."""
    texts = np.array(sorted({sentence.text for sentence in states.sentences}))
    order = texts[np.random.default_rng(seed).permutation(len(texts))].tolist()
    number, found = max(1, round(VALID_SHARE * len(texts))), []
    for name, own in (("train on", order[number:]), ("end by", order[:number])):
        words = states.by_lemma(own)
        if words.empty:
            wanted = "training must have words with two senses, each twice"
            raise ValueError(f"{wanted}, to {name}, got none")
        found.append(Triples(words))
    return found


def train_map(
    learned: MarkedStates, states: Floats, seed: int
) -> tuple[Floats, Floats]:  # [N, D] -> [D, D] twice
    """Return the semantic probe, trained until it gets no better, and the map that it began as."""
    training, ending = split_triples(learned, seed)

    def cosines(mapping: Tensor, batch: Tensor) -> Tensor:  # [3, T, D] -> [2, T]
        own, *others = batch @ mapping.T  # of the same sense, and of another
        return torch.stack([F.cosine_similarity(own, other) for other in others])

    # Cosines further than 0.1 from their average before training change nothing.
    def loss_of(mapping: Tensor, batch: Tensor) -> Any:
        same, other = cosines(mapping, batch).clamp(middle - CLAMP, middle + CLAMP).mean(1)
        return other - same

    chance, width = np.random.default_rng(seed), states.shape[1]
    start = torch.randn(width, width, generator=torch.Generator().manual_seed(seed)) / width**0.5
    held_out = ending.draw(states, HELD_OUT, chance)
    middle = cosines(start, held_out).mean(1, keepdim=True)
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
            loss_of(mapping, batch).backward()
            optimizer.step()
    return best.numpy(), start.numpy()


FIRST, FREQUENT = "WordNet's first sense", "most frequent in SemCor"
NEAREST, RANDOM = "nearest centroid", "nearest centroid, random weights"
PROBE, RANDOM_MAP = "semantic probe", "random map"
ALL, AMBIGUOUS = "all", "ambiguous"  # columns of tables, beside those of the sets

CAPTION = (
    "Share of words whose sense the nearest centroid in SemCor gives (F1), after each layer, and "
    "for all sets together its 95 % interval over sentences. States can decide only words with "
    "several senses in the training (column ambiguous). For the semantic probe F1 is the mean over "
    "seeds and spread the distance between the best and the worst; the probe means something if it "
    "is better than the random map from which it was trained. That senses can be told apart does "
    "not show that the model uses them."
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
    asked = MarkedStates(reader, [own for some in tests.values() for own in some])
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
        one, two = (MarkedStates(twin, own.sentences) for own in (asked, learned))
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
    figure = new_figure(PAGE, 3.8)
    axis = figure.subplots()
    layers = table.dropna(subset="layer")
    draw_lines(axis, layers, "method", "layer", ALL, dashed=(RANDOM, RANDOM_MAP))
    for method, line in {FIRST: ":", FREQUENT: "-."}.items():
        level = table.loc[table["method"] == method, ALL].item()
        axis.axhline(level, color="black", ls=line, lw=1, label=method)
    axis.set_ylabel("F1 on all sets (95 % intervals)", fontsize=9)
    return add_legend(figure, axis, 3)
