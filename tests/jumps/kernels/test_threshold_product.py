import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jat_graph.jumps.kernels import rank_tokens, sum_joined, threshold_product
from tests.jumps.kernels.support import (
    TRITON,
    columns_and_limits,
    constants,
    each_form,
    run,
    vote_cube,
)
from tests.support import assert_within_budget

SMALL = {"SEGMENT": 8, "CHUNK": 4, "TOKENS": 16, "FEATURES": 4, "INDICES": 8}


def features_of(columns, width, dtype):
    """Normal features, zero where a token is masked."""
    x = torch.randn(len(columns), columns.size(2), width, dtype=dtype)
    return x.masked_fill(columns.isnan().all(1).unsqueeze(-1), 0.0)


@pytest.mark.slow
@each_form
@given(case=columns_and_limits(), width=st.integers(1, 40))
def test_sums_are_those_over_the_joined_tokens(form, case, width):
    counts = vote_cube(*case).sum(1)
    x = features_of(case[0], width, case[0].dtype)
    found = run("add_joined", form, x, *run("rank", form, *case))
    assert found.dtype == x.dtype
    assert_within_budget(found, counts.to(x.dtype) @ x, counts.double() @ x.double())


@each_form
def test_a_place_without_a_token_adds_nothing(form):
    order = torch.tensor([[[2, -1, 0]]], dtype=torch.int32)
    reach = torch.tensor([[[1, 0, -1]]], dtype=torch.int32)
    x = torch.tensor([[[1.0], [10.0], [100.0]]])
    assert run("add_joined", form, x, order, reach).flatten().tolist() == [1, 0, 100]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "sizes"),
    [
        ("torch", {"BLOCK": 1}),
        ("torch", {"BLOCK": 300}),
        pytest.param("triton", SMALL, marks=TRITON.marks),
        pytest.param("triton", SMALL | {"HELD": 500}, marks=TRITON.marks),
    ],
)
@settings(max_examples=8)
@given(case=columns_and_limits(longest=20), width=st.integers(1, 6))
def test_blocks_and_segments_add_up(form, sizes, case, width):
    x = features_of(case[0], width, torch.float64)
    ranking = run("rank", form, *case)
    with constants(threshold_product, **sizes):
        found = run("add_joined", form, x, *ranking)
    torch.testing.assert_close(found, vote_cube(*case).sum(1).double() @ x, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@each_form
def test_the_error_does_not_grow_with_the_length(form):
    # Features of one sign: a sum in one go would lose a digit every tenfold length.
    length = 3000
    columns, x = torch.rand(1, 2, length) + 1, torch.randn(1, length, 4) + 10
    limits = torch.full((1, 2), 2.25)
    counts = vote_cube(columns, limits).sum(1)
    assert 0.3 < (counts > 0).double().mean() < 1
    found = run("add_joined", form, x, *run("rank", form, columns, limits))
    assert_within_budget(found, counts.float() @ x, counts.double() @ x.double())


def graphs(requires_grad=False):
    columns = torch.randn(2, 2, 4, 9, dtype=torch.float64)
    columns[0, 0, :, 3] = math.nan
    x = torch.randn(2, 2, 9, 5, dtype=torch.float64, requires_grad=requires_grad)
    return x, rank_tokens(columns, torch.full((2, 2, 4), 0.3, dtype=torch.float64))


def test_gradients_and_their_gradients():
    x, ranking = graphs(requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: sum_joined(t, ranking), [x])
    assert torch.autograd.gradgradcheck(lambda t: sum_joined(t, ranking), [x])


def test_strides_do_not_matter():
    x, ranking = graphs()
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(sum_joined(turned, ranking), sum_joined(x, ranking))
