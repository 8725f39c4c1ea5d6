import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.testing import assert_within_budget
from tests.kernels.cuda.support import DEVICE, REPEATS, random_rows


@given(
    graphs=st.integers(1, 2),
    queries=st.integers(1, 70),
    length=st.integers(1, 70),
    width=st.integers(1, 40),
    dtype=st.sampled_from((torch.float32, torch.float64)),
    seed=st.integers(0, 2**20),
)
def test_peaks_are_maxima_and_sums_over_the_seen_queries(
    triton_kernels, graphs, queries, length, width, dtype, seed
):
    # Sums of products of small integers are exact, in whatever order.
    query = random_rows(seed, graphs, queries, width).mul(2).round().to(dtype)
    key = random_rows(seed + 1, graphs, length, width).mul(2).round().to(dtype)
    seen = random_rows(seed + 2, graphs, queries) > -0.5
    products = key @ query.mT
    peak, total = triton_kernels.peaks(query, key, seen)
    assert peak.dtype == total.dtype == dtype
    assert torch.equal(peak, products.masked_fill(~seen[:, None], -math.inf).amax(-1))
    assert torch.equal(total, products.masked_fill(~seen[:, None], 0.0).sum(-1))


def test_where_no_query_is_seen_nothing_is_the_largest(triton_kernels):
    query, key = random_rows(0, 2, 5, 8), random_rows(1, 2, 7, 8)
    seen = torch.tensor([[False] * 5, [True] * 5], device=DEVICE)
    peak, total = triton_kernels.peaks(query, key, seen)
    assert peak[0].tolist() == [-math.inf] * 7
    assert total[0].tolist() == [0.0] * 7
    assert peak[1].isfinite().all()


@pytest.mark.parametrize("width", [8, 65, 256])
def test_products_are_as_exact_as_plain_ones(triton_kernels, width):
    query, key = random_rows(0, 2, 90, width), random_rows(1, 2, 100, width)
    seen = random_rows(2, 2, 90) > -1
    wanted, plain = (
        (key.to(dtype) @ query.to(dtype).mT).masked_fill(~seen[:, None], math.nan)
        for dtype in (torch.float64, torch.float32)
    )
    single = triton_kernels.peaks(query, key, seen)
    assert_within_budget(single[0], _largest(plain), _largest(wanted))
    assert_within_budget(single[1], _sum(plain), _sum(wanted))
    double = triton_kernels.peaks(query.double(), key.double(), seen)
    torch.testing.assert_close(double[0], _largest(wanted), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(double[1], _sum(wanted), rtol=1e-10, atol=1e-10)


def _largest(products):
    return products.nan_to_num(-math.inf).amax(-1)


def _sum(products):
    return products.nan_to_num(0.0).sum(-1)


def test_runs_are_equal(triton_kernels):
    query, key = random_rows(0, 2, 90, 16), random_rows(1, 2, 100, 16)
    seen = random_rows(2, 2, 90) > -1
    first = triton_kernels.peaks(query, key, seen)
    for _ in range(REPEATS):
        again = triton_kernels.peaks(query, key, seen)
        assert torch.equal(first[0], again[0])
        assert torch.equal(first[1], again[1])
