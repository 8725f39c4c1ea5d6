import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.kernels.portable.threshold_product
from jat_graph.kernels import Ranking, rank_tokens, sum_joined
from jat_graph.testing import assert_within_budget
from jat_graph.voting.rule import VoteRule
from tests.kernels.support import IMPLEMENTATIONS, columns_and_limits, vote_cube

implementations = pytest.mark.parametrize("name", IMPLEMENTATIONS)


@implementations
@given(case=columns_and_limits(), features=st.integers(1, 40))
def test_sums_are_those_over_the_joined_tokens(name, case, features):
    columns, _ = case
    x = torch.randn(len(columns), columns.size(2), features, dtype=columns.dtype)
    x = x.masked_fill(columns.isnan().all(1).unsqueeze(-1), 0.0)
    truth = vote_cube(*case).double().sum(1) @ x.double()
    implementation = IMPLEMENTATIONS[name]
    found = implementation.add_joined(x, *implementation.rank(*case))
    low = (vote_cube(*case).sum(1).to(x.dtype) @ x).to(x.dtype)
    assert found.dtype == x.dtype
    assert_within_budget(found, low, truth)


@implementations
def test_any_ranking_will_do(name):
    # The numba product takes the order of the portable ranking, and the other way round.
    columns, limits = torch.randn(2, 5, 61), torch.full((2, 5), 0.3)
    x = torch.randn(2, 61, 20)
    truth = vote_cube(columns, limits).double().sum(1) @ x.double()
    for other in IMPLEMENTATIONS.values():
        found = IMPLEMENTATIONS[name].add_joined(x, *other.rank(columns, limits))
        torch.testing.assert_close(found.double(), truth, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("block", [1, 300])
def test_blocks_of_keys_change_nothing(block, monkeypatch):
    columns, limits = torch.randn(2, 5, 33).double(), torch.rand(2, 5).double()
    x = torch.randn(2, 33, 4).double()
    portable = IMPLEMENTATIONS["portable"]
    ranking = portable.rank(columns, limits)
    whole = portable.add_joined(x, *ranking)
    monkeypatch.setattr(jat_graph.kernels.portable.threshold_product, "BLOCK", block)
    torch.testing.assert_close(portable.add_joined(x, *ranking), whole, rtol=1e-12, atol=1e-12)


@implementations
def test_the_error_does_not_grow_with_the_length(name):
    length = 3000
    columns, x = torch.rand(1, 3, length) + 1, torch.randn(1, length, 4) + 10
    limits = torch.full((1, 3), 2.25)
    cube = vote_cube(columns, limits).sum(1)
    assert 0.3 < (cube > 0).double().mean() < 1
    found = IMPLEMENTATIONS[name].add_joined(x, *IMPLEMENTATIONS[name].rank(columns, limits))
    assert_within_budget(found, cube.float() @ x, cube.double() @ x.double())


def graphs(requires_grad=False):
    scores = torch.randn(2, 2, 9, 4, dtype=torch.float64)
    scores[0, 0, 3] = math.nan
    rule = VoteRule(torch.full((2, 2), 0.3, dtype=torch.float64))
    x = torch.randn(2, 2, 9, 5, dtype=torch.float64, requires_grad=requires_grad)
    return x, rank_tokens(*rule.settle(scores))


def test_gradients_and_their_gradients():
    x, ranking = graphs(requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: sum_joined(t, ranking), [x])
    assert torch.autograd.gradgradcheck(lambda t: sum_joined(t, ranking), [x])


def test_it_is_its_own_transpose():
    x, ranking = graphs()
    y = torch.randn_like(x)
    forth, back = (y * sum_joined(x, ranking)).sum(), (x * sum_joined(y, ranking)).sum()
    torch.testing.assert_close(forth, back)


def test_strides_do_not_matter():
    x, ranking = graphs()
    wanted = sum_joined(x, ranking)
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(sum_joined(turned, ranking), wanted)


@pytest.mark.parametrize("threads", [1, 2])
def test_fifty_runs_are_equal(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, ranking = graphs()
        runs = [sum_joined(x, ranking) for _ in range(50)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(run, runs[0]) for run in runs)


def test_the_operator_does_what_its_description_says():
    x, ranking = graphs(requires_grad=True)
    torch.library.opcheck(torch.ops.jat_graph.sum_joined, (x, *ranking))


def test_it_compiles_without_a_graph_break():
    x, ranking = graphs()
    compiled = torch.compile(
        lambda t, *r: sum_joined(t, Ranking(*r)), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(compiled(x, *ranking), sum_joined(x, ranking))
