import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.kernels.cpu.counting
import jat_graph.kernels.portable.counting
from jat_graph.kernels import count_votes
from jat_graph.voting.rule import VoteRule
from tests.kernels.support import (
    IMPLEMENTATIONS,
    ballots,
    brute_force,
    columns_and_limits,
    vote_cube,
)

implementations = pytest.mark.parametrize("name", IMPLEMENTATIONS)


@given(ballot=ballots())
def test_hard_votes_are_counted_to_the_bit(ballot):
    rule, *scored = ballot
    assert torch.equal(count_votes(*rule.settle(*scored)), brute_force(*ballot))


@implementations
@given(case=columns_and_limits(), ends=st.tuples(st.integers(0, 70), st.integers(0, 70)))
def test_every_implementation_counts_the_votes(name, case, ends):
    wanted = vote_cube(*case).sum(1).to(case[0].dtype)
    length = wanted.size(-1)
    start, stop = sorted(min(end, length) for end in ends)
    count = IMPLEMENTATIONS[name].count
    assert torch.equal(count(*case, 0, length), wanted)
    assert torch.equal(count(*case, start, stop), wanted[:, start:stop])


@implementations
@pytest.mark.parametrize("tile", [1, 3, 7, 64])
def test_tiles_change_nothing(name, tile, monkeypatch):
    columns, limits = torch.randn(2, 5, 33), torch.rand(2, 5)
    count = IMPLEMENTATIONS[name].count
    whole = count(columns, limits, 0, 33)
    monkeypatch.setattr(jat_graph.kernels.portable.counting, "TILE", tile)
    assert torch.equal(count(columns, limits, 0, 33), whole)
    assert 0.1 < (whole > 0).double().mean() < 1


def test_counts_wider_than_a_tile():
    length = 2 * jat_graph.kernels.cpu.counting.WIDTH + 3
    columns, limits = torch.randn(1, 3, length), torch.rand(1, 3)
    counts = [kernel.count(columns, limits, 0, length) for kernel in IMPLEMENTATIONS.values()]
    assert torch.equal(*counts)
    assert torch.equal(counts[0], counts[0].mT)


@given(ballot=ballots(), ends=st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_some_rows_are_rows_of_the_whole(ballot, ends):
    rule, *scored = ballot
    columns, limits = rule.settle(*scored)
    length = columns.size(3)
    rows = slice(min(*ends, length), min(max(ends), length))
    whole = count_votes(columns, limits)
    assert torch.equal(count_votes(columns, limits, rows), whole[:, :, rows])


def test_inclusive_differs_where_the_product_meets_the_threshold():
    scores = torch.tensor([[1.0], [2.0], [3.0]])[None, None]
    threshold = torch.tensor([[3.0]])
    strict = count_votes(*VoteRule(threshold).settle(scores))
    loose = count_votes(*VoteRule(threshold, inclusive=True).settle(scores))
    assert (loose - strict)[0, 0].nonzero().tolist() == [[0, 2], [2, 0]]


def test_two_negative_scores_join_unless_only_one_sign_may():
    scores = torch.tensor([[-2.0], [-3.0], [2.0], [3.0]])[None, None]
    threshold = torch.tensor([[1.0]])
    both = count_votes(*VoteRule(threshold).settle(scores))[0, 0]
    one = count_votes(*VoteRule(threshold, same_sign_only=True).settle(scores))[0, 0]
    assert both[0, 1] == both[2, 3] == one[2, 3] == 1
    assert one[0, 1] == both[0, 2] == 0


def test_votes_are_compared_in_the_dtype_of_the_scores():
    # (1 + 2⁻¹³)² is 1 + 2⁻¹² + 2⁻²⁶, whose last term float32 rounds away.
    for dtype, joined in ((torch.float64, 1), (torch.float32, 0)):
        scores = torch.full((1, 1, 2, 1), 1 + 2.0**-13, dtype=dtype)
        rule = VoteRule(torch.tensor([[1 + 2.0**-12]], dtype=dtype))
        assert count_votes(*rule.settle(scores))[0, 0, 0, 1] == joined


def test_no_gradient_flows_through_counts():
    columns, limits = torch.randn(1, 2, 4, 5, requires_grad=True), torch.rand(1, 2, 4)
    assert not count_votes(columns, limits.requires_grad_()).requires_grad


@pytest.mark.parametrize("threads", [1, 2])
def test_fifty_runs_are_equal(threads):
    before = torch.get_num_threads()
    columns, limits = torch.randn(3, 7, 41), torch.rand(3, 7)
    torch.set_num_threads(threads)
    try:
        runs = [IMPLEMENTATIONS["cpu"].count(columns, limits, 0, 41) for _ in range(50)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(run, runs[0]) for run in runs)


def test_the_operator_does_what_its_description_says():
    columns, limits = torch.randn(2, 3, 4, 6), torch.rand(2, 3, 4)
    for rows in ((1, 4), (0, 6)):
        torch.library.opcheck(torch.ops.jat_graph.count_votes, (columns, limits, *rows))
    turned = torch.randn(2, 3, 6, 4).mT, limits[:1, :, :1].expand(2, 3, 4)
    torch.library.opcheck(torch.ops.jat_graph.count_votes, (*turned, 0, 6))
