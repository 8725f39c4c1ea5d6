"""The oracles of the sequence layers on cases worked out by hand, and beside plain formulas."""

import math

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.oracles import (
    reference_attention,
    reference_compressed_memory,
    reference_compressed_visible,
    reference_relative_attention,
    reference_relative_scores,
    reference_relative_visible,
)
from tests.support import assert_equal, random_tensors


def rows(matrix: Tensor) -> list[str]:
    """Write a matrix of bools down as a picture."""
    return ["".join("x" if seen else "." for seen in row) for row in matrix.tolist()]


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**20))
def test_attention_is_sdpa(queries: int, keys: int, seed: int) -> None:
    query, key, value = random_tensors(seed, (queries, 4), (keys, 4), (keys, 3))
    visible = torch.rand(queries, keys, generator=torch.Generator().manual_seed(seed)) < 0.6
    want = F.scaled_dot_product_attention(query[None], key[None], value[None], visible)[0]
    assert_equal(reference_attention(query, key, value, visible), want)


def test_memory_is_the_first_token_and_a_slot_for_each_window() -> None:
    x = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    weight, bias = torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([0.5])
    memory = reference_compressed_memory(x, weight, bias, 3)
    assert memory.squeeze(-1).tolist() == [1.0, 321.5, 1000.5]
    overlapping = reference_compressed_memory(x, weight, bias, 2)
    assert overlapping.squeeze(-1).tolist() == [1.0, 321.5, 2100.5]


def test_a_slot_is_hidden_until_its_window_has_passed() -> None:
    assert rows(reference_compressed_visible(7, 3, 3, True)) == [
        "x...",
        "x...",
        "x...",
        "xx..",
        "xx..",
        "xx..",
        "xxx.",
    ]
    assert rows(reference_compressed_visible(4, 3, 2, True)) == ["x..", "x..", "x..", "xx."]
    assert reference_compressed_visible(7, 3, 3, False).all()


@given(st.integers(1, 20))
def test_it_is_tensor2tensors_rule_for_windows_that_touch(length: int) -> None:
    slot, query = torch.arange(1 + -(-length // 3)), torch.arange(length)
    assert torch.equal(
        reference_compressed_visible(length, 3, 3, True), ~(3 * slot > query.unsqueeze(-1))
    )


def test_relative_scores_are_those_of_the_distance() -> None:
    query = torch.ones(4, 1)
    both = torch.tensor([[2.0], [1.0], [0.0], [-1.0], [-2.0]])  # its own distance, i − j
    clip = reference_relative_scores(query, both, max_distance=3, far="clip")
    assert clip.tolist() == [[0, -1, -2, -2], [1, 0, -1, -2], [2, 1, 0, -1], [2, 2, 1, 0]]
    zero = reference_relative_scores(query, both, max_distance=3, far="zero")
    assert zero.tolist() == [[0, -1, -2, 0], [1, 0, -1, -2], [2, 1, 0, -1], [0, 2, 1, 0]]


def test_a_block_sees_its_neighbours() -> None:
    assert rows(reference_relative_visible(5, 2, True)) == [
        "x....",
        "xx...",
        "xxx..",
        "xxxx.",
        "..xxx",
    ]
    assert rows(reference_relative_visible(5, 2, False))[:2] == ["xxxx.", "xxxx."]
    assert reference_relative_visible(5, None, False).all()


def test_relative_attention_scales_both_terms_alike() -> None:
    query, key, value, table = random_tensors(0, (6, 4), (6, 4), (6, 3), (11, 4))
    scores = torch.stack(
        [
            torch.stack([q @ (key[j] + table[5 - i + j]) for j in range(6)])
            for i, q in enumerate(query)
        ]
    )
    want = (scores / math.sqrt(4)).softmax(-1) @ value
    assert_equal(reference_relative_attention(query, key, value, table, max_distance=6), want)
