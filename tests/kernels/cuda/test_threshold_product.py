import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.testing import assert_within_budget
from tests.kernels.cuda.support import (
    DEVICE,
    REPEATS,
    all_votes,
    ballots,
    random_columns,
    random_rows,
)

DIRECTIONS = {
    "both": lambda counts: counts,
    "earlier": lambda counts: counts.tril(-1),
    "later": lambda counts: counts.triu(1),
}
directions = pytest.mark.parametrize("direction", DIRECTIONS)


@directions
@given(
    ballot=ballots(longest=70, same_sign=(False,)),
    width=st.integers(1, 20),
    seed=st.integers(0, 2**20),
)
def test_sums_are_those_over_the_joined_tokens(triton_kernels, direction, ballot, width, seed):
    columns, _, _ = ballot
    x = random_rows(seed, columns.size(0), columns.size(2), width, dtype=torch.float64)
    found = triton_kernels.add_joined(x, *triton_kernels.rank(*ballot), direction)
    truth = DIRECTIONS[direction](all_votes(*ballot).sum(1).double()) @ x
    assert found.dtype == x.dtype
    torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-10)


@directions
@pytest.mark.parametrize("width", [8, 255])
def test_float32_is_as_exact_as_plain_sums(triton_kernels, direction, width):
    columns, limits = random_columns(0, 2, 6, 150), torch.full((2, 6), 0.2, device=DEVICE)
    counts = DIRECTIONS[direction](all_votes(columns, limits, False).sum(1))
    assert 0.2 < (counts > 0).double().mean()
    x = random_rows(1, 2, 150, width)
    found = triton_kernels.add_joined(x, *triton_kernels.rank(columns, limits, False), direction)
    assert found.dtype == x.dtype
    assert_within_budget(found, counts.float() @ x, counts.double() @ x.double())


@directions
def test_a_place_without_a_token_adds_nothing(triton_kernels, direction):
    order = torch.tensor([[[2, -1, 0, -1]]], dtype=torch.int32, device=DEVICE)
    reach = torch.tensor([[[4, 0, -3, 0]]], dtype=torch.int32, device=DEVICE)
    x = torch.tensor([[[1.0], [10.0], [100.0], [1000.0]]], device=DEVICE)
    wanted = {"both": [1, 0, 101, 0], "earlier": [0, 0, 1, 0], "later": [0, 0, 0, 0]}[direction]
    assert triton_kernels.add_joined(x, order, reach, direction).flatten().tolist() == wanted


def test_later_is_the_transpose_of_earlier(triton_kernels):
    columns, limits = random_columns(0, 2, 5, 90), torch.full((2, 5), 0.2, device=DEVICE)
    ranking = triton_kernels.rank(columns, limits, False)
    x, y = (random_rows(seed, 2, 90, 3, dtype=torch.float64) for seed in (1, 2))
    earlier = triton_kernels.add_joined(x, *ranking, "earlier")
    later = triton_kernels.add_joined(y, *ranking, "later")
    torch.testing.assert_close((y * earlier).sum(), (later * x).sum(), rtol=1e-10, atol=1e-10)


@directions
def test_runs_are_equal(triton_kernels, direction):
    columns, limits = random_columns(0, 2, 9, 100), torch.full((2, 9), 0.2, device=DEVICE)
    ranking, x = triton_kernels.rank(columns, limits, False), random_rows(1, 2, 100, 16)
    first = triton_kernels.add_joined(x, *ranking, direction)
    for _ in range(REPEATS):
        assert torch.equal(triton_kernels.add_joined(x, *ranking, direction), first)
