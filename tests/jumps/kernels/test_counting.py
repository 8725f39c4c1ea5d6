import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.jumps.kernels import counting
from tests.jumps.kernels.support import (
    columns_and_limits,
    constants,
    each_form,
    run,
    vote_cube,
)


@each_form
@given(case=columns_and_limits(), ends=st.tuples(st.integers(0, 70), st.integers(0, 70)))
def test_votes_are_counted_to_the_bit(form, case, ends):
    wanted = vote_cube(*case).sum(1).to(case[0].dtype)
    length = wanted.size(-1)
    start, stop = sorted(min(end, length) for end in ends)
    assert torch.equal(run("count", form, *case, 0, length), wanted)
    assert torch.equal(run("count", form, *case, start, stop), wanted[:, start:stop])


@pytest.mark.slow
@each_form
@pytest.mark.parametrize("size", [4, 8, 64])
def test_tiles_change_nothing(form, size):
    columns, limits = torch.randn(2, 5, 33), torch.rand(2, 5)
    wanted = vote_cube(columns, limits).sum(1).float()
    assert 0.1 < (wanted > 0).double().mean() < 1
    with constants(counting, PAIRS=size, TILE=size):
        assert torch.equal(run("count", form, columns, limits, 0, 33), wanted)
        assert torch.equal(run("count", form, columns, limits, 5, 20), wanted[:, 5:20])


@each_form
@pytest.mark.parametrize(("dtype", "joined"), [(torch.float64, 1), (torch.float32, 0)])
def test_the_product_is_rounded_before_it_is_compared(form, dtype, joined):
    # (1 + 2⁻¹³)² is 1 + 2⁻¹² + 2⁻²⁶, whose last term float32 rounds away.
    columns = torch.full((1, 1, 2), 1 + 2.0**-13, dtype=dtype)
    limits = torch.full((1, 1), 1 + 2.0**-12, dtype=dtype)
    assert run("count", form, columns, limits, 0, 2).tolist() == [[[joined] * 2] * 2]


@each_form
def test_products_too_small_for_a_normal_number_count(form):
    columns, limits = torch.full((1, 1, 1), 1e-20), torch.zeros(1, 1)
    assert run("count", form, columns, limits, 0, 1).item() == 1
