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
from tests.jumps.adjacency.support import drawn_heads
from tests.oracles import standard_scores

SCALE = 0.37


def fast_scores(query, key, valid, causal, scale=SCALE):
    mask = TokenMask(None if valid is None else valid.unsqueeze(1), causal)
    scores = QueryKeyScores(*standard_features(query, key, scale, mask), scale).columns(None)
    return scores.masked_fill(~seen(scores, valid, causal), 0.0)


def seen(scores, valid, causal):
    pairs = torch.ones(scores.shape, dtype=torch.bool)
    if valid is not None:
        pairs &= valid[:, None, :, None] & valid[:, None, None, :]
    return pairs.tril() if causal else pairs


@given(drawn=drawn_heads(150), causal=st.booleans(), scale=st.sampled_from((SCALE, -2.0)))
def test_they_are_the_oracles(drawn, causal, scale):
    query, key, valid = drawn
    leaves = query.requires_grad_(), key.requires_grad_()
    expected = standard_scores(query, key, scale, valid, causal)
    scores = fast_scores(query, key, valid, causal, scale)
    assert_close(scores, expected, atol=1e-9, rtol=1e-9)
    cotangent = torch.randn_like(expected)
    got, wanted = (torch.autograd.grad(x, leaves, cotangent) for x in (scores, expected))
    assert_close(got, wanted, atol=1e-9, rtol=1e-9)


def test_equal_tokens_have_no_scores():
    same = torch.randn(1, 1, 1, 4).expand(1, 1, 7, 4) + 0.1
    for causal in (False, True):
        assert not fast_scores(same, torch.randn(1, 1, 7, 4), None, causal).any()


@given(drawn=drawn_heads(20))
def test_a_map_is_centred_likewise(drawn):
    query, key, valid = drawn
    mask = TokenMask(None if valid is None else valid.unsqueeze(1))
    pairs = PairAdjacency.of_map(
        JatConfig(PairGraph(standardize=True)), SCALE * query @ key.mT, mask
    )
    scores = pairs.source.columns(None)
    assert_close(scores, fast_scores(query, key, valid, False), atol=1e-8, rtol=1e-8)


def test_masks_of_pairs_and_causal_maps_are_refused():
    heads = torch.randn(1, 1, 3, 4)
    pairs = TokenMask(pairs=torch.ones(1, 1, 3, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="mask of padding or causal order, got one of pairs"):
        standard_features(heads, heads, 1.0, pairs)
    config = JatConfig(PairGraph(standardize=True))
    with pytest.raises(ValueError, match="standardize needs query and key in causal order"):
        PairAdjacency.of_map(config, torch.randn(1, 1, 3, 3), TokenMask(causal=True))
