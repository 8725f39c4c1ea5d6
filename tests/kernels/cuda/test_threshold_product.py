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
    features_of,
    random_columns,
    random_rows,
)


@given(
    ballot=ballots(longest=70),
    width=st.integers(1, 20),
    seed=st.integers(0, 2**20),
)
def test_sums_are_those_over_the_joined_tokens(triton_kernels, ballot, width, seed):
    columns, _ = ballot
    x = features_of(columns, seed, width)
    found = triton_kernels.add_joined(x, *triton_kernels.rank(*ballot))
    truth = all_votes(*ballot).sum(1).double() @ x
    assert found.dtype == x.dtype
    torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("width", [8, 255])
def test_float32_is_as_exact_as_plain_sums(triton_kernels, width):
    columns, limits = random_columns(0, 2, 6, 150), torch.full((2, 6), 0.2, device=DEVICE)
    counts = all_votes(columns, limits).sum(1)
    assert 0.2 < (counts > 0).double().mean()
    x = random_rows(1, 2, 150, width)
    found = triton_kernels.add_joined(x, *triton_kernels.rank(columns, limits))
    assert found.dtype == x.dtype
    assert_within_budget(found, counts.float() @ x, counts.double() @ x.double())


def test_a_place_without_a_token_adds_nothing(triton_kernels):
    order = torch.tensor([[[2, -1, 0, -1]]], dtype=torch.int32, device=DEVICE)
    reach = torch.tensor([[[4, 0, -3, 0]]], dtype=torch.int32, device=DEVICE)
    x = torch.tensor([[[1.0], [10.0], [100.0], [1000.0]]], device=DEVICE)
    assert triton_kernels.add_joined(x, order, reach).flatten().tolist() == [1, 0, 101, 0]


def test_runs_are_equal(triton_kernels):
    columns, limits = random_columns(0, 2, 9, 100), torch.full((2, 9), 0.2, device=DEVICE)
    ranking, x = triton_kernels.rank(columns, limits), random_rows(1, 2, 100, 16)
    first = triton_kernels.add_joined(x, *ranking)
    for _ in range(REPEATS):
        assert torch.equal(triton_kernels.add_joined(x, *ranking), first)


SMALL = {"SEGMENT": 8, "CHUNK": 4, "TOKENS": 16, "FEATURES": 4}


@given(ballot=ballots(longest=20), width=st.integers(1, 6))
def test_segments_and_slices_add_up(triton_kernels, triton_constants, ballot, width):
    columns, _ = ballot
    x = features_of(columns, 0, width)
    ranking = triton_kernels.rank(*ballot)
    with triton_constants("threshold_product", **SMALL):
        found = triton_kernels.add_joined(x, *ranking)
    truth = all_votes(*ballot).sum(1).double() @ x
    torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-10)


@given(
    graphs=st.integers(1, 2),
    keys=st.integers(1, 3),
    length=st.integers(1, 20),
    orders=st.integers(1, 4),
)
def test_how_many_orders_are_held_changes_no_bit(
    triton_kernels, triton_constants, graphs, keys, length, orders
):
    columns = random_columns(0, graphs, keys, length)
    limits = torch.full((graphs, keys), 0.1, device=DEVICE)
    ranking, x = triton_kernels.rank(columns, limits), random_rows(1, graphs, length, 3)
    whole = triton_kernels.add_joined(x, *ranking)
    with triton_constants("threshold_product", HELD=orders * 2 * length * 3):
        assert torch.equal(triton_kernels.add_joined(x, *ranking), whole)


def test_a_batch_gives_what_its_items_give(triton_kernels):
    columns, limits = random_columns(0, 3, 5, 50), torch.full((3, 5), 0.1, device=DEVICE)
    order, reach = triton_kernels.rank(columns, limits)
    x = random_rows(1, 3, 50, 6)
    items = [
        triton_kernels.add_joined(*(t[g : g + 1].contiguous() for t in (x, order, reach)))
        for g in range(3)
    ]
    assert torch.equal(torch.cat(items), triton_kernels.add_joined(x, order, reach))


def test_the_error_does_not_grow_with_the_length(triton_kernels):
    # Features of one sign: a sum in one go would lose a digit every tenfold length.
    length = 3000
    order = torch.arange(length, dtype=torch.int32, device=DEVICE).expand(1, 1, length)
    reach = torch.full((1, 1, length), length, dtype=torch.int32, device=DEVICE)
    x = random_rows(0, 1, length, 1) + 10
    found = triton_kernels.add_joined(x, order.contiguous(), reach)
    truth = x.double().sum(1, keepdim=True).expand_as(x)
    torch.testing.assert_close(found.double(), truth, rtol=5e-7, atol=0.0)
