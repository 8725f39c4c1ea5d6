"""Losses against loops, and trees that training finds again."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph.probes.geometry.measures import tree_scores
from jat_graph.probes.geometry.training import (
    BATCH_SIZE,
    DEPTH,
    DISTANCE,
    KINDS,
    TreeBatch,
    mean_loss,
    powered_distances,
    predictor,
    squared_distances,
    train_probe,
    tree_batches,
)
from jat_graph.probes.geometry.trees import Tree
from tests.probes.geometry.support import (
    pythagorean,
    random_rotation,
    random_sentence,
    slow_depth_loss,
    slow_distance_loss,
)

SLOW = {DISTANCE: slow_distance_loss, DEPTH: slow_depth_loss}


def double(batch: TreeBatch) -> TreeBatch:
    return TreeBatch(*(part.double() for part in batch))


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=5),
    st.integers(0, 99),
    st.integers(1, 4),
    st.sampled_from(KINDS),
)
def test_losses_and_their_slopes_are_those_of_loops(
    lengths: list[int], seed: int, rank: int, kind: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    sentences = [random_sentence(length, seed + length) for length in lengths]
    states = [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in lengths]
    start = torch.randn(3, rank, generator=generator, dtype=torch.float64)
    projection, other = (start.clone().requires_grad_() for _ in range(2))
    batch = double(TreeBatch.of(states, [Tree(own) for own in sentences], kind))
    loss = batch.loss(projection, predictor(kind)) / len(sentences)
    wanted = SLOW[kind](sentences, states, other)
    # Weights are 1/n in float32.
    assert_close(loss, wanted, rtol=1e-6, atol=1e-6)
    loss.backward()
    wanted.backward()
    slope = other.grad if other.grad is not None else torch.zeros_like(other)
    assert projection.grad is not None
    assert_close(projection.grad, slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("power", [1, 1.5, 2, 3])
def test_powers_of_distances_have_finite_slopes_where_words_are_in_one_place(power: float) -> None:
    points = torch.tensor([[1.0, 2.0], [1.0, 2.0], [4.0, 6.0]], requires_grad=True)
    found = powered_distances(points, power)
    assert found[0, 2].item() == pytest.approx(5**power, rel=1e-5)
    found.sum().backward()
    assert points.grad is not None and points.grad.isfinite().all()


def test_distances_are_exact_far_from_the_origin() -> None:
    points = torch.randn(6, 3) + 1000
    assert_close(squared_distances(points), torch.cdist(points, points).square())


def test_batches_hold_each_sentence_once_and_like_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, 90)
    trees = [Tree(random_sentence(int(n), k)) for k, n in enumerate(lengths)]
    states = [torch.full((len(tree), 1), float(k)) for k, tree in enumerate(trees)]
    batches = tree_batches(states, trees, DEPTH)
    assert [len(batch.states) for batch in batches] == [BATCH_SIZE] * 4 + [10]
    assert sorted(int(row) for batch in batches for row in batch.states[:, 0, 0]) == list(range(90))
    padding = sum(int((batch.weight == 0).sum()) for batch in batches)
    assert padding < 0.2 * lengths.sum()
    for batch in batches:
        # Each sentence weighs 1.
        assert_close(batch.weight.sum(1), torch.ones(len(batch.states)))


def _hidden_trees(number: int, seed: int) -> tuple[list[torch.Tensor], list[Tree]]:
    """Exact embeddings, turned at random together with as many directions of noise."""
    rotation = random_rotation(12, 0)
    trees, states = [], []
    for k in range(number):
        sentence = random_sentence(2 + k % 5, seed + k)
        noise = torch.Generator().manual_seed(seed + k)
        points = pythagorean(sentence, 12)
        points[:, 6:] = torch.randn(len(sentence), 6, generator=noise, dtype=torch.float64)
        trees.append(Tree(sentence))
        states.append((points @ rotation).float())
    return states, trees


def test_training_finds_trees_behind_a_rotation_and_noise() -> None:
    train, dev, test = (_hidden_trees(*own) for own in ((600, 0), (60, 1000), (60, 2000)))
    batches = tree_batches(*train, DISTANCE), tree_batches(*dev, DISTANCE)
    predict = predictor(DISTANCE)
    projection = train_probe(*batches, predict, rank=8, epochs=50, seed=0)
    start = train_probe(*batches, predict, rank=8, epochs=1, seed=0)
    assert mean_loss(batches[1], projection, predict) < 0.5 * mean_loss(batches[1], start, predict)
    scores = [
        tree_scores(tree, squared_distances(own @ projection).double().numpy())
        for own, tree in zip(*test, strict=True)
    ]
    edges = sum(len(tree.edges) for tree in test[1])
    assert sum(hits for hits, _ in scores) / edges > 0.95
    assert np.mean([correlation for _, correlation in scores]) > 0.9


def test_the_best_epoch_is_kept_and_training_ends() -> None:
    states, trees = _hidden_trees(40, 0)
    train = tree_batches(states, trees, DISTANCE)
    # Nothing to learn: the targets of dev are those of other trees, and get no better for long.
    dev = tree_batches(states, [Tree(random_sentence(len(t), 7)) for t in trees], DISTANCE)
    calls = []

    def predict(points: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return squared_distances(points)

    found = train_probe(train, dev, predict, rank=4, epochs=500, seed=0)
    assert len(calls) < 200 * (len(train) + len(dev))
    losses = [
        mean_loss(dev, train_probe(train, dev, predict, rank=4, epochs=n, seed=0), predict)
        for n in (1, 2, 3)
    ]
    assert mean_loss(dev, found, predict) <= min(losses)


def test_a_seed_gives_the_same_probe() -> None:
    states, trees = _hidden_trees(40, 0)
    batches = tree_batches(states, trees, DEPTH)
    own = [train_probe(batches, batches, predictor(DEPTH), 5, 2, seed) for seed in (0, 0, 1)]
    assert torch.equal(own[0], own[1])
    assert not torch.equal(own[0], own[2])
