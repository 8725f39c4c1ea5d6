"""What all kernels keep to as operators of torch: shapes, gradients, threads, running sums."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import jat_graph.jumps.adjacency.pairs  # noqa: F401 - which has one of the operators
from jat_graph.jumps.adjacency.standard import running_sums
from jat_graph.jumps.kernels import counting, rank_tokens
from tests.jumps.kernels.support import each_form, run, threads

X, COLUMNS, LIMITS = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 4, 6), torch.rand(2, 3, 4)
TURNED = torch.randn(2, 3, 6, 4).mT, LIMITS[:1, :, :1].expand(2, 3, 4)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("count_votes", (COLUMNS, LIMITS, 1, 4)),
        ("count_votes", (*TURNED, 0, 6)),
        ("rank_tokens", (COLUMNS, LIMITS)),
        ("rank_tokens", TURNED),
        ("query_peaks", (X, torch.randn(2, 3, 5, 4))),
        ("largest_silent", (torch.rand(1, 2, 1), 1 + torch.rand(3, 2, 5))),
    ],
)
def test_choices_do_what_their_descriptions_say(name, arguments):
    torch.library.opcheck(getattr(torch.ops.jat_graph, name), arguments)


def test_sums_do_what_their_description_says():
    x, ranking = X.clone().requires_grad_(), rank_tokens(COLUMNS, LIMITS)
    torch.library.opcheck(torch.ops.jat_graph.sum_joined, (x, *ranking))


@pytest.mark.slow
@each_form
@pytest.mark.parametrize("number", [1, 2])
def test_runs_are_equal(form, number):
    columns, limits = torch.randn(3, 7, 2 * counting.WIDTH + 3), torch.rand(3, 7)
    columns = columns if form == "numba" else columns[..., :41].contiguous()
    x = torch.randn(3, columns.size(-1), 6)
    with threads(number):
        ranking = run("rank", form, columns, limits)
        counts = [run("count", form, columns, limits, 0, len(x[0])) for _ in range(5)]
        sums = [run("add_joined", form, x, *ranking) for _ in range(5)]
    for first, *others in (counts, sums):
        assert all(torch.equal(other, first) for other in others)
    assert torch.equal(counts[0], counts[0].mT)
    assert torch.equal(counts[0], run("count", "torch", columns, limits, 0, len(x[0])))


@given(
    shape=st.tuples(*[st.integers(1, 5)] * 3),
    dim=st.integers(0, 2),
    backward=st.booleans(),
    gradient=st.booleans(),
)
def test_running_sums_are_cumsums(shape, dim, backward, gradient):
    x = torch.randn(shape).double()
    wanted = x.flip(dim).cumsum(dim).flip(dim) if backward else x.cumsum(dim)
    assert_close(running_sums(x.clone().requires_grad_(gradient), dim, backward), wanted)
