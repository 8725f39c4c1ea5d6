"""Standard scores are the oracle's, of all tokens at once and of those that come after others."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph import JatConfig, PairGraph
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from jat_graph.jumps.adjacency.standard import BLOCK, Moments, causal_features, standard_features
from tests.oracles import standard_scores

SCALE = 0.37


@st.composite
def drawn_heads(draw, longest):
    """Draw queries and keys ``[B, H, L, D]``, and which tokens are valid, ``[B, L]`` or None."""
    batch, heads, width = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 5))
    length = draw(st.integers(1, longest))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    query, key = torch.randn(2, batch, heads, length, width, generator=generator).double() + 1
    share = draw(st.sampled_from((None, None, 0.2, 0.9)))
    if share is None:
        return query, key, None
    return query, key, torch.rand(batch, length, generator=generator) < share


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


def in_chunks(query, key, valid, ends):
    """Return the standard features of each token, chunk by chunk, and what is left behind."""
    found, before, start = [], None, 0
    for end in ends:
        rows = slice(start, end)
        shown = None if valid is None else valid[..., rows]
        *features, before = causal_features(
            query[:, :, rows], key[:, :, rows], SCALE, shown, before
        )
        found.append(features)
        start = end
    return [torch.cat(parts, dim=2) for parts in zip(*found, strict=True)], before


@given(tokens=drawn_heads(3 * BLOCK), data=st.data())
def test_chunks_give_what_the_whole_gives(tokens, data):
    query, key, valid = tokens
    valid = None if valid is None else valid.unsqueeze(1)
    length = query.size(2)
    some = data.draw(st.sets(st.integers(1, length), max_size=4))
    one_by_one = data.draw(st.integers(0, length))
    ends = sorted({*some, *range(max(1, length - one_by_one), length + 1)})
    features, after = in_chunks(query, key, valid, ends)
    *whole, whole_after = causal_features(query, key, SCALE, valid)
    shown = 1.0 if valid is None else valid.unsqueeze(-1)
    for got, wanted in zip(features, whole, strict=True):
        assert_close(got * shown, wanted * shown, atol=1e-10, rtol=1e-10)
    assert_close(after, whole_after, atol=1e-10, rtol=1e-10)


@given(length=st.integers(1, 200))
def test_what_is_left_behind_does_not_grow_with_the_tokens(length):
    query, key = torch.randn(2, 1, 2, length, 3)
    number, *after = causal_features(query, key, SCALE, None)[2]
    assert number == length
    assert [part.shape for part in after] == [part.shape for part in Moments.of_nothing(query)[1:]]
    for part in after:
        assert part.untyped_storage().nbytes() == part.nbytes
