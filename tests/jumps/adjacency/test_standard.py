import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph import JatConfig, PairGraph
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from jat_graph.jumps.adjacency.standard import standard_features
from tests.oracles import standard_scores

SCALE = 0.37


@st.composite
def drawn_heads(draw, longest=150):
    """Draw queries, keys, which tokens are valid, and whether later tokens are hidden."""
    batch, heads, width = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 5))
    length = draw(st.integers(1, longest))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    query, key = torch.randn(2, batch, heads, length, width, generator=generator).double() + 1
    valid = None
    if draw(st.booleans()):
        valid = torch.rand(batch, length, generator=generator) < draw(st.sampled_from((0.2, 0.9)))
    return query.requires_grad_(), key.requires_grad_(), valid, draw(st.booleans())


def fast_scores(query, key, valid, causal, scale=SCALE):
    mask = TokenMask(None if valid is None else valid.unsqueeze(1), causal)
    scores = QueryKeyScores(*standard_features(query, key, scale, mask), scale).columns(None)
    return scores.masked_fill(~seen(scores, valid, causal), 0.0)


def seen(scores, valid, causal):
    pairs = torch.ones(scores.shape, dtype=torch.bool)
    if valid is not None:
        pairs &= valid[:, None, :, None] & valid[:, None, None, :]
    return pairs.tril() if causal else pairs


@given(drawn=drawn_heads(), scale=st.sampled_from((SCALE, -2.0)))
def test_they_are_the_oracles(drawn, scale):
    query, key, valid, causal = drawn
    expected = standard_scores(query, key, scale, valid, causal)
    scores = fast_scores(query, key, valid, causal, scale)
    assert_close(scores, expected, atol=1e-9, rtol=1e-9)
    cotangent = torch.randn_like(expected)
    assert_close(
        torch.autograd.grad(scores, (query, key), cotangent),
        torch.autograd.grad(expected, (query, key), cotangent),
        atol=1e-9,
        rtol=1e-9,
    )


@given(drawn=drawn_heads(40), shift=st.floats(-5, 5), factor=st.floats(0.1, 9))
def test_shifts_and_sizes_change_nothing(drawn, shift, factor):
    query, key, valid, causal = drawn
    other = fast_scores(factor * query + shift, key - shift, valid, causal)
    assert_close(other, fast_scores(query, key, valid, causal), atol=1e-8, rtol=1e-8)


def test_equal_tokens_have_no_scores():
    same = torch.randn(1, 1, 1, 4).expand(1, 1, 7, 4) + 0.1
    for causal in (False, True):
        assert not fast_scores(same, torch.randn(1, 1, 7, 4), None, causal).any()


@given(drawn=drawn_heads(20))
def test_a_map_is_centred_likewise(drawn):
    query, key, valid, _ = drawn
    mask = TokenMask(None if valid is None else valid.unsqueeze(1))
    pairs = PairAdjacency.of_map(
        JatConfig(PairGraph(standardize=True)), SCALE * query @ key.mT, mask
    )
    scores = pairs.source.columns(None)
    assert_close(scores, fast_scores(query, key, valid, False), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("mask", [TokenMask(pairs=torch.ones(1, 1, 3, 3, dtype=torch.bool))])
def test_masks_of_pairs_are_refused(mask):
    heads = torch.randn(1, 1, 3, 4)
    with pytest.raises(ValueError, match="mask of padding or causal order, got one of pairs"):
        standard_features(heads, heads, 1.0, mask)


def test_a_causal_map_is_refused():
    with pytest.raises(ValueError, match="standardize needs query and key in causal order"):
        PairAdjacency.of_map(
            JatConfig(PairGraph(standardize=True)), torch.randn(1, 1, 3, 3), TokenMask(causal=True)
        )
