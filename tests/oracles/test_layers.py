"""The oracles of other papers' layers, on published vectors and on cases worked out by hand."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.oracles import reference_triplet_attention, reference_triplet_partner
from tests.oracles.areas import reference_area_attention, reference_areas
from tests.oracles.sequences import (
    reference_compressed_memory,
    reference_compressed_visible,
    reference_relative_scores,
)

# The features of Tensor2Tensor's area_attention_test.py, one of its two sequences.
LINE = torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]], dtype=torch.float64)
LINE_MEANS = [1, 3, 5, 7, 9, 2, 4, 6, 8, 3, 5, 7]  # of the first feature; the second is 1 more
LINE_WIDTHS = [1] * 5 + [2] * 4 + [3] * 3


def test_the_published_vectors_of_a_line() -> None:
    areas = reference_areas(5, max_width=3)
    assert [len(area) for area in areas] == LINE_WIDTHS
    assert [LINE[list(area), 0].mean().item() for area in areas] == LINE_MEANS


def test_without_a_query_all_areas_weigh_the_same() -> None:
    allowed = torch.ones(1, 5, dtype=torch.bool)
    read = reference_area_attention(0 * LINE, LINE, LINE, allowed, max_width=3, scale=1.0)
    sums = torch.tensor(LINE_MEANS) * torch.tensor(LINE_WIDTHS)
    assert torch.allclose(read[:, 0], sums.double().mean())


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


# Where the released code takes each token's second key from, for five tokens.
RELEASED = {
    "next": [4, 0, 1, 2, 3],  # np.roll by 1
    "second next": [3, 4, 0, 1, 2],  # np.roll by 2
    "mirror": [4, 3, 2, 1, 0],
    "swap": [1, 0, 3, 2, 4],
    "shuffle": [2, 0, 4, 1, 3],
}


def random_heads(length: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (4, length, 3)
    return list(torch.randn(shape, dtype=torch.float64, generator=generator).unbind())


@pytest.mark.parametrize("kind", RELEASED)
def test_partners_undo_the_released_permutations(kind: str) -> None:
    taken = RELEASED[kind]
    inverse = [taken.index(token) for token in range(5)]
    partners = [reference_triplet_partner(kind, token, 5, inverse) for token in range(5)]
    assert partners == inverse


def test_scores_are_determinants() -> None:
    query, key, value, second = random_heads(4)
    got = reference_triplet_attention(query, key, value, second, shuffled=[0, 1, 2, 3])
    rows = [
        [torch.linalg.det(torch.stack([q, k, s])) for k, s in zip(key, second, strict=True)]
        for q in query
    ]
    weights = (torch.tensor(rows, dtype=torch.float64) / 3**0.5).softmax(-1)
    assert_close(got, weights @ value)
