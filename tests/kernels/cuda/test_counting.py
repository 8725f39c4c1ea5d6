import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.cuda.support import DEVICE, REPEATS, all_votes, ballots, random_columns


@given(ballot=ballots(longest=70))
def test_votes_are_counted_to_the_bit(triton_kernels, ballot):
    columns = ballot[0]
    counts = triton_kernels.count(*ballot, 0, columns.size(2))
    assert counts.dtype == columns.dtype
    assert torch.equal(counts, all_votes(*ballot).sum(1).to(columns.dtype))


@given(ballot=ballots(), tile=st.sampled_from((4, 8, 16)))
def test_tiles_change_nothing(triton_kernels, triton_constants, ballot, tile):
    with triton_constants("counting", TILE=tile):
        counts = triton_kernels.count(*ballot, 0, ballot[0].size(2))
    assert torch.equal(counts, all_votes(*ballot).sum(1).to(counts.dtype))


@given(ballot=ballots(), ends=st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_some_rows_are_rows_of_the_whole(triton_kernels, triton_constants, ballot, ends):
    length = ballot[0].size(2)
    start, stop = min(*ends, length), min(max(ends), length)
    with triton_constants("counting", TILE=8):
        rows = triton_kernels.count(*ballot, start, stop)
    assert torch.equal(rows, all_votes(*ballot).sum(1)[:, start:stop].to(rows.dtype))


@pytest.mark.parametrize(("dtype", "joined"), [(torch.float64, 1), (torch.float32, 0)])
def test_the_product_is_rounded_before_it_is_compared(triton_kernels, dtype, joined):
    # (1 + 2⁻¹³)² is 1 + 2⁻¹² + 2⁻²⁶, whose last term float32 rounds away.
    columns = torch.full((1, 1, 2), 1 + 2.0**-13, dtype=dtype, device=DEVICE)
    limits = torch.full((1, 1), 1 + 2.0**-12, dtype=dtype, device=DEVICE)
    assert triton_kernels.count(columns, limits, 0, 2).tolist() == [[[joined] * 2] * 2]


def test_products_too_small_for_a_normal_number_count(triton_kernels):
    columns = torch.full((1, 1, 1), 1e-20, device=DEVICE)
    limits = torch.zeros(1, 1, device=DEVICE)
    assert triton_kernels.count(columns, limits, 0, 1).item() == 1


def test_runs_are_equal(triton_kernels):
    columns, limits = random_columns(0, 2, 9, 100), torch.full((2, 9), 0.2, device=DEVICE)
    first = triton_kernels.count(columns, limits, 0, 100)
    assert 0 < first.mean() < 9
    for _ in range(REPEATS):
        assert torch.equal(triton_kernels.count(columns, limits, 0, 100), first)
