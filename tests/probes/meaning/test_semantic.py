"""The semantic probe on states in which a sense is one direction of many."""

import numpy as np
import pytest
import torch

from jat_graph.probes import MarkedSentence
from jat_graph.probes.meaning.centroids import SenseTable
from jat_graph.probes.meaning.semantic import (
    CLAMP,
    Triples,
    _cosines,
    _loss,
    ambiguous_lemmas,
    split_texts,
    train_map,
)
from tests.probes.meaning.support import sentence, sentences
from tests.probes.meaning.test_centroids import marked

WIDTH = 12


def states_with_senses(some: list[MarkedSentence], seed: int = 0) -> np.ndarray:
    """The first two numbers know the sense, the others are louder noise."""
    draws = np.random.default_rng(seed)
    senses = [int("11:00" in key or "06:01" in key) for s in some for key in s.marked[0].senses]
    found = 3 * draws.normal(size=(len(some), WIDTH))
    found[:, :2] = np.eye(2)[senses] * 2 + 0.3 * draws.normal(size=(len(some), 2))
    return found.astype(np.float32)


def test_triples_are_of_one_lemma_and_the_senses_that_they_say() -> None:
    states = marked(sentences(60, seed=1))
    triples = Triples.of(states, SenseTable.of(states), {"text 0", "text 1"})
    drawn = triples.draw(500, np.random.default_rng(0))
    assert set(drawn[0].tolist()) == set(triples.word.tolist())
    for own, same, other in zip(*(words.tolist() for words in drawn), strict=True):
        first, second, third = (states.words[place] for place in (own, same, other))
        assert first.lemma == second.lemma == third.lemma
        assert first.senses == second.senses != third.senses
        assert own != same
        assert {states.text_of(place) for place in (own, same, other)} <= {"text 0", "text 1"}


def test_rare_senses_and_words_in_several_are_left_out() -> None:
    texts = ["bark=n0 bark=n0 bark=n1", "bark=n1 bark=n01", "book=n0 book=n0 book=n1", "dill=n0"]
    states = marked([sentence(text, "one") for text in texts])
    table = SenseTable.of(states)
    assert ambiguous_lemmas(states, table, {"one"}) == [[[0, 1], [2, 3]]]
    assert ambiguous_lemmas(states, table, {"another"}) == []
    assert len(Triples.of(states, table, {"another"}).word) == 0


def test_texts_are_in_one_half_or_the_other() -> None:
    states = marked(sentences(90, texts=30))
    training, ending = split_texts(states, seed=3)
    assert len(ending) == 3
    assert training.isdisjoint(ending)
    assert len(training | ending) == 30
    assert split_texts(states, 3) == (training, ending) != split_texts(states, 4)


def test_the_loss_is_its_definition() -> None:
    draws = torch.Generator().manual_seed(0)
    batch = torch.randn(3, 7, 4, generator=draws)
    mapping = torch.randn(3, 4, generator=draws)
    before = torch.tensor([0.1, -0.05])
    total = 0.0
    for own, same, other in zip(*batch, strict=True):
        for sign, one, middle in ((-1, same, 0.1), (1, other, -0.05)):
            a, b = mapping @ own, mapping @ one
            cosine = float(a @ b / (a.norm() * b.norm()))
            total += sign * min(max(cosine, middle - CLAMP), middle + CLAMP) / 7
    assert float(_loss(mapping, batch, before)) == pytest.approx(total, abs=1e-6)


def test_cosines_far_from_their_average_change_nothing() -> None:
    batch = torch.tensor([[[1.0, 0.0]], [[1.0, 0.1]], [[-1.0, 0.1]]])  # alike, and opposite
    mapping = torch.eye(2, requires_grad=True)
    _loss(mapping, batch, torch.tensor([0.2, 0.2])).backward()
    assert mapping.grad is not None
    assert not mapping.grad.any()
    _loss(mapping, batch, _cosines(mapping.detach(), batch).mean(1)).backward()
    assert mapping.grad.any()


def test_the_map_finds_what_tells_senses_apart() -> None:
    some = sentences(400, texts=20)
    states = marked(some)
    table = SenseTable.of(states)
    parts = [Triples.of(states, table, texts) for texts in split_texts(states, 0)]
    values = states_with_senses(some)
    trained, start = train_map(values, *parts, rank=4, seed=0)
    assert trained.shape == start.shape == (4, WIDTH)
    assert np.array_equal(train_map(values, *parts, rank=4, seed=0)[0], trained)

    def gap(mapping: np.ndarray) -> float:
        mapped = values @ mapping.T
        mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
        own, same, other = parts[1].draw(2000, np.random.default_rng(5))
        return float((mapped[own] * (mapped[same] - mapped[other])).sum(1).mean())

    assert gap(trained) > gap(start) + 0.05
