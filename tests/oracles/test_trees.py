"""Trees of keys by hand: halves of halves, what a token meets, and what it reads."""

import math

import torch

from tests.oracles import (
    reference_tree_attention,
    tree_descent,
    tree_levels,
    tree_means,
    tree_met,
    tree_parts,
)
from tests.support import assert_equal


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)[:, None]


def test_halves_by_hand() -> None:
    def parts(x: torch.Tensor, number: int) -> list[list[int]]:
        return [part.tolist() for part in tree_parts(x, number)]

    assert parts(column(0, 10, 1, 11), 2) == [[0, 2], [1, 3]]
    assert parts(column(2, 100, 0, 1), 2) == [[0, 1], [2, 3]]
    assert parts(column(0, 2, 1, 100), 4) == [[0], [2], [1], [3]]
    assert parts(column(5, 5, 5, 5), 2) == [[0, 1], [2, 3]]
    # The farthest point lies up and to the right, but points differ most from left to right.
    x = torch.tensor([[1, 6], [-5, 0], [5, 0], [-5, 1], [5, -1], [-1, -6]], dtype=torch.float64)
    assert parts(x, 2) == [[0, 2, 4], [1, 3, 5]]


def test_levels_of_nodes_by_hand() -> None:
    key = column(*[9] * 4, 0, 10, 1, 11, 20, 30, 21, 31, 30, 31, 0, 1, 10, 11, 20, 21, 7)
    (clusters,) = tree_levels(key, size=2, segment=4)  # of which no segment has four
    means = tree_means(clusters, key)
    assert means.squeeze(1).tolist() == [0.5, 10.5, 20.5, 30.5, 30.5, 0.5, 10.5, 20.5]
    clusters, groups = tree_levels(key, size=2, segment=8)
    means = tree_means(clusters, key)
    assert means.squeeze(1).tolist() == [0.5, 10.5, 20.5, 30.5, 30.5, 20.5, 0.5, 10.5]
    assert tree_means(groups, key).squeeze(1).tolist() == [15.5, 15.5]
    # Whoever opens the first group and reads one cluster stops at three others and a group.
    stopped = tree_descent(column(1)[0], key, [clusters, groups], [1, 1], 1e9)
    assert sorted(tree_means(stopped, key).squeeze(1).tolist()) == [0.5, 10.5, 15.5, 20.5]
    # 17.6 is the best score, and 35.5 of either group is 10 above that, 32.5 of its clusters is.
    stopped = tree_descent(column(1)[0], key, [clusters, groups], [1, 1], -50)
    assert sorted(tree_means(stopped, key).squeeze(1).tolist()) == [15.5, 15.5]


def test_what_a_token_meets() -> None:
    levels = tree_levels(torch.rand(4 + 2 * 71, 3, dtype=torch.float64), 2, 2, whole=4 + 2 * 71)
    assert [len(nodes) for nodes in levels] == [71, 17, 4, 1]
    for seen, met in ((0, []), (4, [4]), (6, [4]), (26, [16, 4]), (71, [64, 16, 4])):
        assert [len(nodes) for nodes in tree_met(levels, seen, top=4)] == met
    assert tree_met([], 0, top=4) == []


def test_one_token_by_hand() -> None:
    key = column(*[0] * 4, 0, 10, 2, 12, 3, 1)  # clusters 0, 2 and 10, 12; then the window, itself
    value = column(*range(10))
    exact = {"scale": 0.1, "keys": 2, "size": 2, "segment": 4, "window": 1}

    def read(scores: list[float]) -> float:
        weights = [math.exp(0.1 * score) for score in scores]
        return sum(w * v for w, v in zip(weights, range(10), strict=False)) / sum(weights)

    def last(**settings: float) -> float:
        heads = (x[None, None] for x in (torch.ones_like(key), key, value))
        return reference_tree_attention(*heads, **exact | settings)[0, 0].squeeze(-1).tolist()

    assert_equal(torch.tensor(last()[9]), torch.tensor(read([0, 0, 0, 0, 1, 10, 1, 12, 3, 1])))
    unread = [0, 0, 0, 0, 1, 11, 1, 11, 3, 1]
    assert_equal(torch.tensor(last(keys=0)[9]), torch.tensor(read(unread)))
    all_exact = torch.tensor(read([0, 0, 0, 0, 0, 10, 2, 12, 3, 1]))
    for settings in ({"window": 3}, {"dense_below": 10}, {"keys": 3}):
        assert_equal(torch.tensor(last(**settings)[9]), all_exact)
    low = [0, 0, 0, 0, -math.inf, 10, -math.inf, 12, 3, 1]
    assert_equal(torch.tensor(last(rest=False)[9]), torch.tensor(read(low)))
    assert_equal(torch.tensor(last()[7]), torch.tensor(read([0, 0, 0, 0, 0, 10, 2, 12])))


def test_sequences_are_on_their_own_and_padding_is_none() -> None:
    generator = torch.Generator().manual_seed(0)
    heads = torch.randn(3, 1, 2, 90, 3, generator=generator, dtype=torch.float64)
    sequence = torch.tensor([[0] * 50 + [-1] * 4 + [1] * 36])
    settings = {"keys": 2, "groups": 1, "size": 2, "segment": 4, "window": 2, "top": 4}
    output = reference_tree_attention(*heads, sequence=sequence, **settings)
    assert output[:, :, 50:54].abs().max() == 0
    for own in (slice(0, 50), slice(54, 90)):
        assert_equal(output[:, :, own], reference_tree_attention(*heads[..., own, :], **settings))
