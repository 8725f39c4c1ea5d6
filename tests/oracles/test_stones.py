"""What holds for stepping stones, whatever computes them."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.inputs import random_padding_mask
from tests.oracles import causal_stone_propagation, incidence, standard_scores, stone_propagation
from tests.support import assert_equal

KINDS = ("excess", "hard", "sigmoid")
SCALE = 0.7

seeds = st.integers(0, 9999)
lengths = st.integers(2, 12)
kinds = st.sampled_from(KINDS)
sides = st.sampled_from(("both", "positive"))
self_weights = st.sampled_from((0.0, 0.1, 1.0))


def random_tensors(
    seed: int, length: int, count: int = 3, batch: int = 2, heads: int = 2, width: int = 5
) -> list[Tensor]:
    """Gaussian tensors [B, H, L, D] that want a gradient."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, batch, heads, length, width)
    random = torch.randn(shape, generator=generator, dtype=torch.float64)
    return [x.clone().requires_grad_() for x in random]


def random_incidence(
    seed: int, length: int, kind: str = "excess", side: str = "both", causal: bool = False
) -> Tensor:
    """Incidence of Gaussian queries and keys, some of the keys being stones."""
    query, key = random_tensors(seed, length, 2)
    stones = random_padding_mask(2, length, side="scattered", seed=seed)[:, None]
    scores = standard_scores(query, key, SCALE, causal=causal).detach()
    return incidence(scores, 0.5, kind, side, stones=stones, causal=causal)


@given(seed=seeds, length=lengths)
def test_standard_scores_are_double_centred_and_of_size_one(seed, length):
    query, key = random_tensors(seed, length, 2)
    valid = random_padding_mask(2, length, side="scattered", seed=seed, min_valid=2)
    scores = standard_scores(query, key, SCALE, valid)
    for b, h in itertools.product(range(2), range(2)):
        own = valid[b].nonzero().squeeze(-1)
        raw = SCALE * query[b, h, own] @ key[b, h, own].mT
        centred = raw - raw.mean(dim=0) - raw.mean(dim=1, keepdim=True) + raw.mean()
        assert_equal(scores[b, h, own][:, own], centred / centred.square().mean().sqrt())
    both = valid[:, None, :, None] & valid[:, None, None, :]
    assert not scores.masked_select(~both).any()


@pytest.mark.parametrize("padded", [False, True])
def test_causal_scores_use_what_each_token_has_seen(padded):
    length = 140  # two complete blocks of 64 and some more, also with some tokens of padding
    query, key = random_tensors(3, length, 2, batch=1, heads=1)
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


@given(seed=seeds, length=lengths, threshold=st.floats(0, 2), temperature=st.floats(0.1, 2))
def test_each_rule_of_incidence_in_its_own_words(seed, length, threshold, temperature):
    (scores,) = random_tensors(seed, length, 1, width=length)
    for kind, rule in (
        ("excess", lambda z: max(0.0, z - threshold)),
        ("hard", lambda z: float(z > threshold)),
        ("sigmoid", lambda z: 1 / (1 + math.exp((threshold - z) / temperature))),
    ):
        links = incidence(scores, threshold, kind, "both", temperature)
        positive = incidence(scores, threshold, kind, "positive", temperature)
        assert torch.equal(positive, links[..., :length])
        assert_equal(positive, scores.detach().clone().apply_(rule))
        assert_equal(links[..., length:], (-scores.detach()).apply_(rule))


@given(seed=seeds, length=lengths, kind=kinds, side=sides, self_weight=self_weights)
def test_each_row_of_the_walk_by_hand(seed, length, kind, side, self_weight):
    links = random_incidence(seed, length, kind, side)[:1, :1]
    walk = stone_propagation(links, self_weight)[0, 0]
    b = links[0, 0].tolist()
    size = [sum(column) for column in zip(*b, strict=True)]
    for i, row in enumerate(b):
        leaving = sum(row) + self_weight
        for k, other in enumerate(b):
            ways = sum(x * y / s for x, y, s in zip(row, other, size, strict=True) if s)
            want = (ways + self_weight * (i == k)) / leaving if leaving else float(i == k)
            assert walk[i, k].item() == pytest.approx(want, rel=1e-10, abs=1e-10)


@given(seed=seeds, length=lengths, kind=kinds, side=sides, self_weight=self_weights)
def test_the_causal_walk_by_running_sums(seed, length, kind, side, self_weight):
    links = random_incidence(seed, length, kind, side, causal=True)
    (x,) = random_tensors(seed + 1, length, 1)
    walk = causal_stone_propagation(links, self_weight)
    size = links.cumsum(dim=-2)  # [B, H, L, U]: of each stone so far
    total = (links.unsqueeze(-1) * x.unsqueeze(-2)).cumsum(dim=-3)  # [B, H, L, U, D]
    mean = total / size.where(size > 0, 1.0).unsqueeze(-1)
    walked = (links.unsqueeze(-1) * mean).sum(dim=-2) + self_weight * x
    leaving = links.sum(dim=-1, keepdim=True) + self_weight
    want = torch.where(leaving > 0, walked / leaving.where(leaving > 0, 1.0), x)
    assert_equal(walk @ x, want)
    assert_equal(walk.sum(dim=-1), torch.ones_like(walk[..., 0]))
