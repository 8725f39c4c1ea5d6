import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.kernels.portable.significance
from jat_graph.kernels import query_peaks


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jat_graph.kernels.portable.significance, "BLOCK", block)
        peak = query_peaks(query, key, seen)
        everything = query_peaks(query, key, None)
    scores = query @ key.mT
    torch.testing.assert_close(everything, scores.amax(-2), rtol=1e-12, atol=1e-12)
    some = seen.any(-1, keepdim=True).expand(2, 3, length)
    wanted = scores.masked_fill(~seen.unsqueeze(-1), -torch.inf).amax(-2)
    torch.testing.assert_close(peak[some], wanted[some], rtol=1e-12, atol=1e-12)
    assert peak.isfinite().all()


def test_no_gradient_flows_through_peaks():
    query = torch.randn(1, 1, 4, 3, requires_grad=True)
    assert not query_peaks(query, query, None).requires_grad


def test_the_operator_does_what_its_description_says():
    arguments = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 5, 4)
    torch.library.opcheck(torch.ops.jat_graph.query_peaks, arguments)
