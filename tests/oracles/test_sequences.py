"""The oracles of the sequence layers on cases worked out by hand, and beside plain formulas."""

import torch
from torch import Tensor

from tests.oracles.sequences import (
    reference_compressed_memory,
    reference_compressed_visible,
    reference_relative_scores,
)


def rows(matrix: Tensor) -> list[str]:
    """Write a matrix of bools down as a picture."""
    return ["".join("x" if seen else "." for seen in row) for row in matrix.tolist()]


def test_memory_is_the_first_token_and_a_slot_for_each_window() -> None:
    x = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    weight, bias = torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([0.5])
    memory = reference_compressed_memory(x, weight, bias, 3)
    assert memory.squeeze(-1).tolist() == [1.0, 321.5, 1000.5]
    overlapping = reference_compressed_memory(x, weight, bias, 2)
    assert overlapping.squeeze(-1).tolist() == [1.0, 321.5, 2100.5]


def test_a_slot_is_hidden_until_its_window_has_passed() -> None:
    assert rows(reference_compressed_visible(7, 3, 3)) == [
        "x...",
        "x...",
        "x...",
        "xx..",
        "xx..",
        "xx..",
        "xxx.",
    ]
    assert rows(reference_compressed_visible(4, 3, 2)) == ["x..", "x..", "x..", "xx."]


def test_relative_scores_are_those_of_the_distance() -> None:
    table = torch.tensor([[2.0], [1.0], [3.0]])  # of the distances 2, 1 and 0
    found = reference_relative_scores(torch.ones(4, 1), table)
    assert found.tolist() == [[3, 0, 0, 0], [1, 3, 0, 0], [2, 1, 3, 0], [0, 2, 1, 3]]
