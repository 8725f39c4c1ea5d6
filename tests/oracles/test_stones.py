"""What holds for stepping stones, whatever computes them."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.inputs import random_padding_mask
from tests.oracles import incidence, standard_scores, stone_propagation
from tests.support import assert_equal, random_tensors

SCALE = 0.7

seeds = st.integers(0, 9999)
lengths = st.integers(2, 12)


@given(seed=seeds, length=lengths)
def test_standard_scores_are_double_centred_and_of_size_one(seed, length):
    query, key = random_tensors(seed, *[(2, 2, length, 5)] * 2)
    valid = random_padding_mask(2, length, side="scattered", seed=seed, min_valid=2)
    scores = standard_scores(query, key, SCALE, valid)
    for b, h in itertools.product(range(2), range(2)):
        own = valid[b].nonzero().squeeze(-1)
        raw = SCALE * query[b, h, own] @ key[b, h, own].mT
        centred = raw - raw.mean(dim=0) - raw.mean(dim=1, keepdim=True) + raw.mean()
        assert_equal(scores[b, h, own][:, own], centred / centred.square().mean().sqrt())
    both = valid[:, None, :, None] & valid[:, None, None, :]
    assert not scores.masked_select(~both).any()


@given(
    seed=seeds,
    length=lengths,
    kind=st.sampled_from(("excess", "hard", "sigmoid")),
    side=st.sampled_from(("both", "positive")),
    self_weight=st.sampled_from((0.0, 0.1, 1.0)),
)
def test_each_row_of_the_walk_by_hand(seed, length, kind, side, self_weight):
    query, key = random_tensors(seed, *[(1, 1, length, 5)] * 2)
    stones = random_padding_mask(1, length, side="scattered", seed=seed)[:, None]
    scores = standard_scores(query, key, SCALE)
    links = incidence(scores, 0.5, kind, side, stones=stones)
    walk = stone_propagation(links, self_weight)[0, 0]
    b = links[0, 0].tolist()
    size = [sum(column) for column in zip(*b, strict=True)]
    for i, row in enumerate(b):
        leaving = sum(row) + self_weight
        for k, other in enumerate(b):
            ways = sum(x * y / s for x, y, s in zip(row, other, size, strict=True) if s)
            want = (ways + self_weight * (i == k)) / leaving if leaving else float(i == k)
            assert walk[i, k].item() == pytest.approx(want, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("padded", [False, True])
def test_causal_scores_use_what_each_token_has_seen(padded):
    length = 140  # two complete blocks of 64 and some more, also with some tokens of padding
    query, key = random_tensors(3, *[(1, 1, length, 5)] * 2)
    valid = torch.ones(1, length, dtype=torch.bool)
    if padded:
        valid[0, [0, 1, 40, 70, 139]] = False
    scores = standard_scores(query, key, SCALE, valid, causal=True)[0, 0]
    own = valid[0].nonzero().squeeze(-1)
    q, k = query[0, 0, own], key[0, 0, own]
    q, k = (torch.stack([x[r] - x[: r + 1].mean(dim=0) for r in range(len(x))]) for x in (q, k))
    centred = SCALE * q @ k.mT
    for rank in range(len(own)):
        counted = rank + 1 if rank < 64 else 64 if rank < 128 else 128
        sigma = centred[:counted, :counted].square().mean().sqrt()
        want = centred[rank, : rank + 1] / sigma if rank else torch.zeros(1, dtype=torch.float64)
        assert_equal(scores[own[rank], own[: rank + 1]], want)
    assert not scores.triu(1).any()
    assert not scores[~valid[0]].any() and not scores[:, ~valid[0]].any()
