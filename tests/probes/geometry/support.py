"""Random trees, and the slow definitions that probes are held against."""

import math
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from scipy.stats import spearmanr
from torch import Tensor

from jat_graph.probes import Sentence

TAGS = ("NOUN", "PUNCT", "VERB")


class Case(NamedTuple):
    """A sentence, and numbers that a probe might give."""

    sentence: Sentence
    distances: np.ndarray
    depths: np.ndarray


def random_sentence(length: int, seed: int, tags: tuple[str, ...] = ("NOUN",)) -> Sentence:
    """Return a tree that grew from its root in random order."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(length)
    heads = [-1] * length
    for place in range(1, length):
        heads[order[place]] = int(order[draw.integers(place)])
    own = tuple(str(tag) for tag in draw.choice(tags, length))
    relations = tuple("root" if head == -1 else f"dep{head % 2}" for head in heads)
    return Sentence(tuple(f"w{n}" for n in range(length)), own, tuple(heads), relations)


@st.composite
def cases(draw: st.DrawFn, least: int = 1) -> Case:
    """Draw trees of 1 to 9 words; numbers are often the same, and often 0."""
    length = draw(st.integers(least, 9))
    sentence = random_sentence(length, draw(st.integers(0, 999)), TAGS)
    chance = np.random.default_rng(draw(st.integers(0, 999)))
    if draw(st.booleans()):
        distances = chance.integers(0, 4, (length, length)).astype(float)
        depths = chance.integers(0, 4, length).astype(float)
    else:
        distances, depths = chance.random((length, length)), chance.random(length)
    distances = np.triu(distances, 1) + np.triu(distances, 1).T
    return Case(sentence, distances, depths)


def path_to_root(sentence: Sentence, word: int) -> list[int]:
    path = [word]
    while sentence.heads[path[-1]] != -1:
        path.append(sentence.heads[path[-1]])
    return path


def slow_distance(sentence: Sentence, i: int, k: int) -> int:
    """Climb from both words to the first that is above both."""
    up, other = path_to_root(sentence, i), path_to_root(sentence, k)
    return min(up.index(word) + other.index(word) for word in up if word in other)


def prim(distances: np.ndarray, among: list[int]) -> set[tuple[int, int]]:
    """Grow the tree of least distances word by word."""
    inside, edges = among[:1], set()
    while len(inside) < len(among):
        i, k = min(
            ((i, k) for i in inside for k in among if k not in inside),
            key=lambda pair: distances[pair],
        )
        inside.append(k)
        edges.add((min(i, k), max(i, k)))
    return edges


def slow_spearman(one: np.ndarray, other: np.ndarray) -> float:
    if len(set(one)) == 1 or len(set(other)) == 1:
        return 0.0
    return float(spearmanr(one, other).statistic)


def slow_distance_loss(
    sentences: list[Sentence], states: list[Tensor], projection: Tensor
) -> Tensor:
    """The source's loss: over squared length, then over sentences."""
    total = torch.zeros((), dtype=states[0].dtype)
    for sentence, own in zip(sentences, states, strict=True):
        n = len(sentence)
        for i in range(n):
            for k in range(n):
                apart = ((own[i] - own[k]) @ projection).square().sum()
                total = total + (apart - slow_distance(sentence, i, k)).abs() / n**2
    return total / len(sentences)


def slow_depth_loss(sentences: list[Sentence], states: list[Tensor], projection: Tensor) -> Tensor:
    total = torch.zeros((), dtype=states[0].dtype)
    for sentence, own in zip(sentences, states, strict=True):
        for i in range(len(sentence)):
            depth = len(path_to_root(sentence, i)) - 1
            total = total + ((own[i] @ projection).square().sum() - depth).abs() / len(sentence)
    return total / len(sentences)


def pythagorean(sentence: Sentence, width: int) -> Tensor:
    """Return the exact embedding of a tree: a unit step in a new direction for each edge.

    Coenen et al. 2019, theorem 1: squared distances are then the tree's.
    """
    points = torch.zeros(len(sentence), width, dtype=torch.float64)
    for word in range(len(sentence)):
        points[word, path_to_root(sentence, word)[:-1]] = 1.0
    return points


def random_rotation(width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    square = torch.randn(width, width, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(square).Q


def mean_of(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
