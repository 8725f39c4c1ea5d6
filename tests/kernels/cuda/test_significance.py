import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.testing import assert_within_budget
from tests.kernels.cuda.support import REPEATS, random_rows


@given(
    graphs=st.integers(1, 2),
    queries=st.integers(1, 70),
    length=st.integers(1, 70),
    width=st.integers(1, 40),
    dtype=st.sampled_from((torch.float32, torch.float64)),
    seed=st.integers(0, 2**20),
)
def test_peaks_are_maxima_over_the_queries(
    triton_kernels, graphs, queries, length, width, dtype, seed
):
    # Sums of products of small integers are exact, in whatever order.
    query = random_rows(seed, graphs, queries, width).mul(2).round().to(dtype)
    key = random_rows(seed + 1, graphs, length, width).mul(2).round().to(dtype)
    peak = triton_kernels.peaks(query, key)
    assert peak.dtype == dtype
    assert torch.equal(peak, (key @ query.mT).amax(-1))


def test_rows_beyond_the_last_query_are_no_queries(triton_kernels):
    query = random_rows(0, 1, 5, 8).abs()
    assert (triton_kernels.peaks(query, -query) < 0).all()


@pytest.mark.parametrize("width", [8, 65, 256])
def test_products_are_as_exact_as_plain_ones(triton_kernels, width):
    query, key = random_rows(0, 2, 90, width), random_rows(1, 2, 100, width)
    truth = (key.double() @ query.double().mT).amax(-1)
    assert_within_budget(triton_kernels.peaks(query, key), (key @ query.mT).amax(-1), truth)
    double = triton_kernels.peaks(query.double(), key.double())
    torch.testing.assert_close(double, truth, rtol=1e-10, atol=1e-10)


def test_runs_are_equal(triton_kernels):
    query, key = random_rows(0, 2, 90, 16), random_rows(1, 2, 100, 16)
    first = triton_kernels.peaks(query, key)
    for _ in range(REPEATS):
        assert torch.equal(triton_kernels.peaks(query, key), first)
