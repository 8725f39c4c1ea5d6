"""Tokens that come after others are measured as if all had come at once."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph.jumps.adjacency.standard import BLOCK, Moments, causal_features
from tests.jumps.adjacency.support import drawn_heads
from tests.oracles import standard_scores

SCALE = 0.4


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
    for got, wanted in zip(features, whole, strict=True):
        assert_close(seen(got, valid), seen(wanted, valid), atol=1e-10, rtol=1e-10)
    assert_close(after, whole_after, atol=1e-10, rtol=1e-10)


@given(tokens=drawn_heads(BLOCK + 9))
def test_tokens_one_by_one_are_the_oracles(tokens):
    query, key, shown = tokens
    wanted = standard_scores(query, key, SCALE, shown, causal=True)
    valid = None if shown is None else shown.unsqueeze(1)
    (own_query, own_key), _ = in_chunks(query, key, valid, range(1, query.size(2) + 1))
    scores = SCALE * own_query @ own_key.mT
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
