"""The states of marked words, and a linear map after which those of one sense are more alike."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.probes.corpora import MarkedSentence
from jat_graph.probes.findings import Floats, Integers
from jat_graph.probes.words import Rows, WordReader, read_states

LEAST = 2  # occurrences of a sense, and senses of a word, that the semantic probe learns from
CLAMP = 0.1  # around the average before training, as in the source
VALID_SHARE = 0.1  # of the texts
BATCH, RATE = 256, 1e-3
LOOKS, STEPS, PATIENCE = 15, 20, 3  # at the loss on other texts, steps from one to the next
HELD_OUT = 2048  # triples of these texts


class MarkedStates:
    """The states of all N marked words of sentences, and the S senses that these have."""

    def __init__(self, sentences: Sequence[MarkedSentence], rows: Rows) -> None:
        self.sentences, self.rows = sentences, rows
        self.words = [word for sentence in sentences for word in sentence.marked]
        numbers = np.arange(len(sentences))
        self.sentence = np.repeat(numbers, [len(own.marked) for own in sentences])  # [N]
        self.is_read = ~np.isin(self.sentence, rows.left_out)  # [N] bool
        read = np.flatnonzero(self.is_read).tolist()
        keys = dict.fromkeys(key for index in read for key in self.words[index].senses)
        self.number = {key: number for number, key in enumerate(keys)}  # of each sense
        # A word of which annotators gave several senses counts for each of them.
        pairs = [(index, self.number[key]) for index in read for key in self.words[index].senses]
        self.occurrences = np.array(pairs, np.int64).reshape(-1, 2).T  # words, senses: [2, O]
        self.counts = np.bincount(self.occurrences[1], minlength=len(keys))  # [S]

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
        """Return words in texts by lemma and sense, of one sense each: several, and each twice."""
        blocks: dict[tuple[str, str], dict[int, list[int]]] = {}
        for index, sense in self.occurrences.T.tolist():
            own = self.words[index]
            if len(own.senses) == 1 and self.sentences[self.sentence[index]].text in texts:
                senses = blocks.setdefault((own.lemma, own.pos), {})
                senses.setdefault(sense, []).append(index)
        often = ([own for own in some.values() if len(own) >= LEAST] for some in blocks.values())
        return [senses for senses in often if len(senses) >= LEAST]


def read_marked(reader: WordReader, sentences: Sequence[MarkedSentence]) -> MarkedStates:
    """Read the states of marked words, or find them where they were kept."""
    keep = [[at for word in own.marked for at in word.indices] for own in sentences]
    return MarkedStates(sentences, read_states(reader, [own.words for own in sentences], keep))


def read_training(reader: WordReader, training: Sequence[MarkedSentence]) -> MarkedStates:
    """Read the states of words whose senses are learned."""
    found = read_marked(reader, training)
    if not found.number:
        raise ValueError("training must have words with senses that the model reads, got none")
    return found


def unit(vectors: Floats) -> Floats:
    """Return vectors of length 1; those of length 0 as they are."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    found: Floats = (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return found


class Triples(NamedTuple):
    """Words of which there are others in the same sense and in another, by lemma and sense."""

    word: Integers  # [O]
    lemma: Integers  # [O, 2], where those of its lemma begin, and how many they are
    sense: Integers  # [O, 2], the same of its sense

    def draw(self, states: Floats, number: int, chance: np.random.Generator) -> Tensor:
        """Draw words, and for each one in the same sense and one in another: [3, number, D]."""
        own = chance.integers(len(self.word), size=number)
        (start, size), (first, all_) = self.sense[own].T, self.lemma[own].T
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
        lemmas = states.lemmas(set(own))
        if not lemmas:
            wanted = "training must have words with two senses, each twice"
            raise ValueError(f"{wanted}, to {name}, got none")
        groups = [words for senses in lemmas for words in senses]
        sizes = [sum(map(len, senses)) for senses in lemmas], [len(words) for words in groups]
        # For each word, where its group begins, and how large that is.
        spans = [
            np.repeat(np.stack([own.cumsum() - own, own], 1), own, axis=0)
            for own in map(np.array, sizes)
        ]
        found.append(Triples(np.concatenate(groups), *spans))
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
    def loss_of(mapping: Tensor, batch: Tensor) -> Tensor:
        same, other = cosines(mapping, batch).clamp(middle - CLAMP, middle + CLAMP).mean(1)
        loss: Tensor = other - same
        return loss

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
            loss_of(mapping, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return best.numpy(), start.numpy()
