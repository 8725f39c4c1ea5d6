import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.jumps.kernels import query_peaks, significance
from tests.jumps.kernels.support import TRITON, constants, run, torch_and_triton
from tests.support import assert_within_budget


@given(
    queries=st.integers(1, 40),
    length=st.integers(1, 40),
    width=st.sampled_from((1, 7, 8, 64)),
    share=st.sampled_from((0.0, 0.5, 1.0)),
    block=st.sampled_from((1, 100, 2**21)),
    seed=st.integers(0, 2**20),
)
def test_peaks_are_maxima_over_the_seen_queries(queries, length, width, share, block, seed):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(2, 3, queries, width, generator=generator, dtype=torch.float64)
    key = torch.randn(2, 3, length, width, generator=generator, dtype=torch.float64)
    seen = torch.rand(2, 1, queries, generator=generator) < share
    with constants(significance, BLOCK=block):
        peak = query_peaks(query, key, seen)
        everything = query_peaks(query, key, None)
    scores = query @ key.mT
    torch.testing.assert_close(everything, scores.amax(-2), rtol=1e-12, atol=1e-12)
    some = seen.any(-1, keepdim=True).expand(2, 3, length)
    wanted = scores.masked_fill(~seen.unsqueeze(-1), -torch.inf).amax(-2)
    torch.testing.assert_close(peak[some], wanted[some], rtol=1e-12, atol=1e-12)
    assert peak.isfinite().all()


@torch_and_triton
@given(
    queries=st.integers(1, 70),
    length=st.integers(1, 70),
    width=st.integers(1, 40),
    dtype=st.sampled_from((torch.float32, torch.float64)),
)
def test_each_form_finds_them(form, queries, length, width, dtype):
    # Sums of products of small integers are exact, in whatever order.
    query = torch.randint(-4, 5, (2, queries, width)).to(dtype)
    key = torch.randint(-4, 5, (2, length, width)).to(dtype)
    peak = run("peaks", form, query, key)
    assert peak.dtype == dtype
    assert torch.equal(peak, (key @ query.mT).amax(-1))
    # rows beyond the last query are no queries
    assert (run("peaks", form, query.abs() + 1, -key.abs() - 1) < 0).all()


@pytest.mark.parametrize("form", [TRITON])
@pytest.mark.parametrize("width", [8, 65, 256])
def test_products_are_as_exact_as_plain_ones(form, width):
    query, key = torch.randn(2, 90, width), torch.randn(2, 100, width)
    truth = (key.double() @ query.double().mT).amax(-1)
    assert_within_budget(run("peaks", form, query, key), (key @ query.mT).amax(-1), truth)
    double = run("peaks", form, query.double(), key.double())
    torch.testing.assert_close(double, truth, rtol=1e-10, atol=1e-10)
