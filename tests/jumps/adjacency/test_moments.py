"""Tokens that come after others are measured as if all had come at once."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph.jumps.adjacency.standard import BLOCK, Moments, causal_features
from tests.oracles import standard_scores

SCALE = 0.4


@st.composite
def drawn_tokens(draw, longest=3 * BLOCK):
    """Draw queries, keys, and which tokens are valid."""
    batch, heads, width = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 5))
    length = draw(st.integers(1, longest))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    query, key = torch.randn(2, batch, heads, length, width, generator=generator).double() + 1
    share = draw(st.sampled_from((None, 0.2, 0.9)))
    if share is None:
        return query, key, None
    return query, key, torch.rand(batch, 1, length, generator=generator) < share


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


def seen(x, valid):
    return x if valid is None else x * valid.unsqueeze(-1)


@given(tokens=drawn_tokens(), data=st.data())
def test_chunks_give_what_the_whole_gives(tokens, data):
    query, key, valid = tokens
    length = query.size(2)
    some = data.draw(st.sets(st.integers(1, length), max_size=4))
    one_by_one = data.draw(st.integers(0, length))
    ends = sorted({*some, *range(max(1, length - one_by_one), length + 1)})
    features, after = in_chunks(query, key, valid, ends)
    *whole, whole_after = causal_features(query, key, SCALE, valid)
    for got, wanted in zip(features, whole, strict=True):
        assert_close(seen(got, valid), seen(wanted, valid), atol=1e-10, rtol=1e-10)
    assert_close(after, whole_after, atol=1e-10, rtol=1e-10)


@given(tokens=drawn_tokens(BLOCK + 9))
def test_tokens_one_by_one_are_the_oracles(tokens):
    query, key, valid = tokens
    (own_query, own_key), _ = in_chunks(query, key, valid, range(1, query.size(2) + 1))
    scores = SCALE * own_query @ own_key.mT
    shown = None if valid is None else valid[:, 0].expand(len(query), -1)
    wanted = standard_scores(query, key, SCALE, shown, causal=True)
    pairs = torch.ones_like(scores).tril()
    if valid is not None:
        pairs = pairs * valid.unsqueeze(-1) * valid.unsqueeze(-2)
    assert_close(scores * pairs, wanted * pairs, atol=1e-9, rtol=1e-9)


@given(length=st.integers(1, 200))
def test_what_is_left_behind_does_not_grow_with_the_tokens(length):
    query, key = torch.randn(2, 1, 2, length, 3)
    number, *after = causal_features(query, key, SCALE, None)[2]
    assert number == length
    assert [part.shape for part in after] == [part.shape for part in Moments.of_nothing(query)[1:]]
    for part in after:
        assert part.untyped_storage().nbytes() == part.nbytes
