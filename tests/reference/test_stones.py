"""What holds for stepping stones, whatever computes them."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import HypergraphConv

from jat_graph.reference import (
    causal_stone_propagation,
    incidence,
    jump_features,
    reference_adjacency,
    standard_scores,
    stone_attention,
    stone_pairs,
    stone_propagation,
)
from jat_graph.testing import random_padding_mask

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


def random_strengths(seed: int, hops: int = 2, heads: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, hops, heads, generator=generator, dtype=torch.float64)


def random_incidence(
    seed: int, length: int, kind: str = "excess", side: str = "both", causal: bool = False
) -> Tensor:
    """Incidence of Gaussian queries and keys, some of the keys being stones."""
    query, key = random_tensors(seed, length, 2)
    stones = random_padding_mask(2, length, side="scattered", seed=seed)[:, None]
    scores = standard_scores(query, key, SCALE, causal=causal).detach()
    return incidence(scores, 0.5, kind, side, stones=stones, causal=causal)


def propagation_of(links: Tensor, self_weight: float, causal: bool) -> Tensor:
    return (causal_stone_propagation if causal else stone_propagation)(links, self_weight)


def assert_close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def gradients(output: Tensor, inputs: list[Tensor], seed: int = 0) -> tuple[Tensor, ...]:
    """The gradients of a random weighing of the output."""
    generator = torch.Generator().manual_seed(seed)
    weighing = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    return torch.autograd.grad(output, inputs, weighing)


# --- standard scores -----------------------------------------------------------------------------


@given(seed=seeds, length=lengths)
def test_standard_scores_are_double_centred_and_of_size_one(seed, length):
    query, key = random_tensors(seed, length, 2)
    valid = random_padding_mask(2, length, side="scattered", seed=seed, min_valid=2)
    scores = standard_scores(query, key, SCALE, valid)
    for b, h in itertools.product(range(2), range(2)):
        own = valid[b].nonzero().squeeze(-1)
        raw = SCALE * query[b, h, own] @ key[b, h, own].mT
        centred = raw - raw.mean(dim=0) - raw.mean(dim=1, keepdim=True) + raw.mean()
        assert_close(scores[b, h, own][:, own], centred / centred.square().mean().sqrt())
    both = valid[:, None, :, None] & valid[:, None, None, :]
    assert not scores.masked_select(~both).any()


@given(seed=seeds, length=lengths)
def test_means_and_size_are_constants_for_the_gradient(seed, length):
    query, key = random_tensors(seed, length, 2)
    scores = standard_scores(query, key, SCALE)
    # The scores are linear in the centred queries and keys, so sigma falls out of one of them.
    centred_query, centred_key = (x - x.mean(dim=-2, keepdim=True) for x in (query, key))
    unit = SCALE / (SCALE * centred_query @ centred_key.mT).square().mean((-2, -1), True).sqrt()
    generator = torch.Generator().manual_seed(0)
    weighing = torch.randn(scores.shape, generator=generator, dtype=torch.float64)
    got = gradients(scores, [query, key])
    assert_close(got[0], unit * weighing @ centred_key)
    assert_close(got[1], unit * weighing.mT @ centred_query)


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
        assert_close(scores[own[rank], own[: rank + 1]], want)
    assert not scores.triu(1).any()
    assert not scores[~valid[0]].any() and not scores[:, ~valid[0]].any()


@given(seed=seeds, length=lengths, causal=st.booleans(), kind=kinds, factor=st.floats(0.01, 100))
def test_shifts_and_scales_of_queries_and_keys_change_no_link(seed, length, causal, kind, factor):
    query, key = random_tensors(seed, length, 2)
    shift, other_shift = random_tensors(seed + 1, 1, 2)
    links, moved = (
        incidence(standard_scores(q, k, SCALE, causal=causal), 0.5, kind, causal=causal)
        for q, k in ((query, key), (factor * query + 3 * shift, key / factor + 3 * other_shift))
    )
    assert_close(moved, links)
    assert links.any()


# --- incidence -----------------------------------------------------------------------------------


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
        assert_close(positive, scores.detach().clone().apply_(rule))
        assert_close(links[..., length:], (-scores.detach()).apply_(rule))


@given(seed=seeds, length=lengths, kind=kinds, side=sides, causal=st.booleans())
def test_only_allowed_links_count_and_have_gradients(seed, length, kind, side, causal):
    (scores,) = random_tensors(seed, length, 1, width=length)
    valid = random_padding_mask(2, length, side="scattered", seed=seed)
    stones = random_padding_mask(4, length, side="scattered", seed=seed + 1).view(2, 2, length)
    everywhere = incidence(scores, 0.2, kind, side)
    links = incidence(scores, 0.2, kind, side, stones=stones, valid=valid, causal=causal)
    allowed = torch.zeros_like(scores, dtype=torch.bool)
    for b, h, i, j in itertools.product(*map(range, scores.shape)):
        links_ij = valid[b, i] and valid[b, j] and stones[b, h, j]
        allowed[b, h, i, j] = links_ij and not (causal and j > i)
    allowed_sides = torch.cat([allowed, allowed], -1) if side == "both" else allowed
    assert torch.equal(links, everywhere * allowed_sides)
    (gradient,) = gradients(links, [scores])
    assert not gradient[~allowed].any()


def test_a_threshold_of_each_head():
    (scores,) = random_tensors(0, 6, 1, width=6)
    links = incidence(scores, torch.tensor([0.2, 0.9], dtype=torch.float64))
    for head, threshold in enumerate((0.2, 0.9)):
        want = incidence(scores[:, head : head + 1], threshold)
        assert_close(links[:, head : head + 1], want)


@given(seed=seeds, length=lengths, side=sides)
def test_hard_links_have_the_gradient_of_soft_ones(seed, length, side):
    (scores,) = random_tensors(seed, length, 1, width=length)
    hard, excess = (
        gradients(incidence(scores, 0.5, kind, side), [scores])[0] for kind in ("hard", "excess")
    )
    assert torch.equal(hard, excess)


def test_an_unknown_rule_is_named():
    with pytest.raises(ValueError, match="'excess', 'hard' or 'sigmoid', got 'soft'"):
        incidence(torch.zeros(1, 1, 2, 2), 1.0, "soft")


# --- the pair graph under it ---------------------------------------------------------------------


@given(seed=seeds, length=lengths, threshold=st.floats(0, 1.5))
def test_hard_stones_without_sizes_are_the_vote_for_two_high_scores(seed, length, threshold):
    query, key = random_tensors(seed, length, 2)
    stones = random_padding_mask(2, length, side="scattered", seed=seed)[:, None]  # [B, 1, L]
    scores = standard_scores(query, key, SCALE).detach()
    links = incidence(scores, threshold, "hard", "positive", stones=stones)
    pairs = stone_pairs(links, stones.sum(dim=-1))
    vote = torch.minimum(scores[:, :, :, None], scores[:, :, None]) > threshold  # [B, H, L, L, L]
    votes = (vote & stones[:, :, None, None]).double().sum(dim=-1)
    others = ~torch.eye(length, dtype=torch.bool)
    assert_close(pairs, votes / stones.sum(dim=-1)[..., None, None] * others)
    # Each is a vote of Eq. 2 for the squared threshold; a rounding may decide just at it.
    voters = stones.expand(2, 2, length)
    products = reference_adjacency(scores, max(0.0, threshold**2 - 1e-12), voters=voters)
    assert (pairs <= products + 1e-12).all()


def test_a_product_may_vote_where_one_score_is_weak():
    scores = torch.tensor([[9.0], [0.5]]).expand(1, 1, 2, 2)
    assert reference_adjacency(scores, 4.0).any()
    assert not stone_pairs(incidence(scores, 2.0, "hard", "positive"), 2).any()


# --- propagation ---------------------------------------------------------------------------------


@given(seed=seeds, length=lengths, side=sides)
def test_pygs_hypergraph_convolution_is_the_walk_without_self_weight(seed, length, side):
    links = random_incidence(seed, length, "hard", side)[0, 0]
    (x,) = random_tensors(seed + 1, length, 1, batch=1, heads=1)
    x = x[0, 0].detach()
    convolution = HypergraphConv(5, 5, bias=False).double()
    convolution.lin.weight.data = torch.eye(5, dtype=torch.float64)
    theirs = convolution(x, links.nonzero().T, num_edges=links.shape[-1])
    ours = stone_propagation(links[None, None], 0.0)[0, 0] @ x
    linked = links.any(dim=-1)
    assert_close(ours[linked], theirs[linked])
    assert torch.equal(ours[~linked], x[~linked])
    assert not theirs[~linked].any()


@given(seed=seeds, length=lengths, kind=kinds, side=sides, self_weight=self_weights)
def test_the_walk_is_similar_to_a_positive_semidefinite_matrix(
    seed, length, kind, side, self_weight
):
    links = random_incidence(seed, length, kind, side)
    walk = stone_propagation(links, self_weight)
    assert (walk >= 0).all()
    assert_close(walk.sum(dim=-1), torch.ones_like(walk[..., 0]))
    leaving = links.sum(dim=-1) + self_weight
    root = leaving.where(leaving > 0, 1.0).sqrt()
    symmetric = root[..., :, None] * walk / root[..., None, :]
    assert_close(symmetric, symmetric.mT)
    eigenvalues = torch.linalg.eigvalsh(symmetric)
    assert eigenvalues.min() >= -1e-12
    assert eigenvalues.max() <= 1 + 1e-12


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
    assert_close(walk @ x, want)
    assert_close(walk.sum(dim=-1), torch.ones_like(walk[..., 0]))
    assert_close(gradients(walk @ x, [x])[0], gradients(want, [x])[0])


@given(seed=seeds, length=lengths, kind=kinds, side=sides)
def test_the_causal_walk_as_a_matrix(seed, length, kind, side):
    links = random_incidence(seed, length, kind, side, causal=True)
    walk = causal_stone_propagation(links, 0.0)
    degree, size = links.sum(dim=-1, keepdim=True), links.cumsum(dim=-2)
    linked = degree > 0
    shares = (links / (degree * size)).nan_to_num(nan=0.0)  # 0 / 0: no link
    want = (shares @ links.mT).tril()
    assert_close(walk * linked, want)
    assert torch.equal(walk * ~linked, torch.eye(length, dtype=torch.float64) * ~linked)


@given(seed=seeds, length=lengths, kind=kinds, self_weight=self_weights, causal=st.booleans())
def test_powers_of_the_walk_average(seed, length, kind, self_weight, causal):
    links = random_incidence(seed, length, kind, causal=causal)
    (x,) = random_tensors(seed + 1, length, 1)
    for hops in range(1, 6):
        far = torch.linalg.matrix_power(propagation_of(links, self_weight, causal), hops) @ x
        assert (far <= x.amax(dim=-2, keepdim=True) + 1e-12).all()
        assert (far >= x.amin(dim=-2, keepdim=True) - 1e-12).all()


@given(seed=seeds, length=lengths, hops=st.integers(1, 3))
def test_jump_features_weigh_powers_of_the_walk(seed, length, hops):
    walk = stone_propagation(random_incidence(seed, length), 0.1)
    (x,) = random_tensors(seed + 1, length, 1)
    strengths = random_strengths(seed, hops)[0]  # [hops, H]
    want = x.clone()
    for hop, head in itertools.product(range(hops), range(2)):
        far = torch.linalg.matrix_power(walk[:, head], hop + 1) @ x[:, head]
        want[:, head] = want[:, head] + strengths[hop, head] * (far - x[:, head])
    got = jump_features(walk, x, strengths)
    assert_close(got, want)
    assert_close(gradients(got, [x])[0], gradients(want, [x])[0])


# --- the head ------------------------------------------------------------------------------------


@given(seed=seeds, length=lengths, kind=kinds, causal=st.booleans(), hops=st.integers(1, 3))
def test_strengths_of_zero_are_plain_attention(seed, length, kind, causal, hops):
    heads = random_tensors(seed, length)
    zeros = torch.zeros(3, hops, 2, dtype=torch.float64, requires_grad=True)
    got = stone_attention(*heads, zeros, threshold=0.5, scale=SCALE, incidence=kind, causal=causal)
    want = F.scaled_dot_product_attention(*heads, scale=SCALE, is_causal=causal)
    assert_close(got, want)
    for ours, theirs in zip(gradients(got, heads), gradients(want, heads), strict=True):
        assert_close(ours, theirs)


def test_strengths_of_zero_can_learn():
    heads = random_tensors(0, 8)
    zeros = torch.zeros(3, 2, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = gradients(stone_attention(*heads, zeros, threshold=0.5, scale=SCALE), [zeros])
    assert (gradient != 0).all()


@given(seed=seeds, length=lengths, kind=kinds, side=sides, causal=st.booleans())
def test_the_head_is_its_steps(seed, length, kind, side, causal):
    query, key, value = random_tensors(seed, length)
    valid = random_padding_mask(2, length, side="scattered", seed=seed)
    strength = random_strengths(seed, hops=2)
    scores = standard_scores(query, key, SCALE, valid, causal)
    links = incidence(scores, 0.5, kind, side, 0.8, valid=valid, causal=causal)
    walk = propagation_of(links, 0.3, causal)
    queries, keys = jump_features(walk, query, strength[0]), jump_features(walk, key, strength[1])
    mask = valid[:, None, None, :].expand_as(scores)
    mask = mask.tril() if causal else mask
    base = F.scaled_dot_product_attention(queries, keys, value, attn_mask=mask, scale=SCALE)
    far = strength[2, :, :, None, None]  # [hops, H, 1, 1]
    want = base + far[0] * (walk @ value) + far[1] * (walk @ walk @ value)
    got = stone_attention(
        query,
        key,
        value,
        strength,
        threshold=0.5,
        scale=SCALE,
        incidence=kind,
        sides=side,
        temperature=0.8,
        self_weight=0.3,
        valid=valid,
        causal=causal,
    )
    assert got.isfinite().all()
    rows = valid[:, None, :, None]
    assert_close(got * rows, want.nan_to_num() * rows)


@given(seed=seeds, length=lengths, kind=kinds, side=sides, significant=st.booleans())
def test_permuted_tokens_give_permuted_results(seed, length, kind, side, significant):
    heads = random_tensors(seed, length)
    strength = random_strengths(seed)
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed))

    def output(tensors: list[Tensor]) -> Tensor:
        significance = standard_scores(*tensors[:2], SCALE).amax(dim=-2)  # [B, H, L]
        smallest = significance.sort(dim=-1).values[..., length // 2, None]
        return stone_attention(
            *tensors,
            strength,
            threshold=0.5,
            scale=SCALE,
            incidence=kind,
            sides=side,
            stones=significance >= smallest if significant else None,
        )

    permuted = [x[:, :, order].detach().requires_grad_() for x in heads]
    got, want = output(permuted), output(heads)
    assert_close(got, want[:, :, order])
    weighing = random_tensors(seed + 1, length, 1)[0].detach()
    ours = torch.autograd.grad(got, permuted, weighing[:, :, order])
    theirs = torch.autograd.grad(want, heads, weighing)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other[:, :, order])


@given(
    seed=seeds,
    length=lengths,
    kind=kinds,
    causal=st.booleans(),
    side=st.sampled_from(("left", "right", "scattered")),
)
def test_padding_and_the_batch_change_nothing(seed, length, kind, causal, side):
    heads = random_tensors(seed, length, batch=3)
    valid = random_padding_mask(3, length, side=side, seed=seed)
    stones = random_padding_mask(3, length, side="scattered", seed=seed + 1)[:, None]
    weighing = random_tensors(seed + 1, length, 1, batch=3)[0].detach() * valid[:, None, :, None]

    def output(tensors: list[Tensor], valid: Tensor | None, stones: Tensor) -> Tensor:
        return stone_attention(
            *tensors,
            random_strengths(seed),
            threshold=0.5,
            scale=SCALE,
            incidence=kind,
            stones=stones,
            valid=valid,
            causal=causal,
        )

    together = output(heads, valid, stones)
    padded_gradients = torch.autograd.grad(together, heads, weighing)
    assert together.isfinite().all()
    for b in range(3):
        own = valid[b].nonzero().squeeze(-1)
        alone = [x[b : b + 1, :, own].detach().requires_grad_() for x in heads]
        result = output(alone, None, stones[b : b + 1, :, own])
        assert_close(together[b : b + 1, :, own], result)
        own_gradients = torch.autograd.grad(result, alone, weighing[b : b + 1, :, own])
        for padded, without in zip(padded_gradients, own_gradients, strict=True):
            assert_close(padded[b : b + 1, :, own], without)
            assert not padded[b, :, ~valid[b]].any()


@given(seed=seeds, length=st.integers(4, 12), kind=kinds, side=sides)
def test_later_tokens_change_nothing_in_a_causal_head(seed, length, kind, side):
    heads = random_tensors(seed, length)
    now = length // 2

    def output(tensors: list[Tensor]) -> Tensor:
        return stone_attention(
            *tensors,
            random_strengths(seed),
            threshold=0.5,
            scale=SCALE,
            incidence=kind,
            sides=side,
            causal=True,
        )

    whole = output(heads)
    assert_close(whole[:, :, :now], output([x[:, :, :now] for x in heads]))
    for gradient in gradients(whole[:, :, :now], heads):
        assert not gradient[:, :, now:].any()
        assert gradient[:, :, :now].any()


@pytest.mark.parametrize("now", [63, 64, 65, 100])
def test_later_tokens_change_nothing_beyond_a_block(now):
    heads = random_tensors(0, 130, batch=1, heads=1)
    strength = random_strengths(0, heads=1)
    whole, part = (
        stone_attention(*tensors, strength, threshold=1.0, scale=SCALE, causal=True)
        for tensors in (heads, [x[:, :, :now] for x in heads])
    )
    assert_close(whole[:, :, :now], part)
    for gradient in gradients(whole[:, :, :now], heads):
        assert not gradient[:, :, now:].any()


# --- nothing to stand on -------------------------------------------------------------------------


def _degenerate(name: str, seed: int) -> tuple[list[Tensor], float, Tensor | None]:
    """Heads, threshold and stones of which nothing can be said by linking."""
    length = 1 if name == "one token" else 6
    heads = random_tensors(seed, length)
    if name == "equal queries":
        heads[0] = heads[0][:, :, :1].detach().repeat(1, 1, length, 1).requires_grad_()
    if name == "equal keys":
        heads[1] = heads[1][:, :, :1].detach().repeat(1, 1, length, 1).requires_grad_()
    if name == "zero queries":
        heads[0] = torch.zeros_like(heads[0]).requires_grad_()
    stones = torch.zeros(2, 1, length, dtype=torch.bool) if name == "no stone" else None
    return heads, 1e9 if name == "no link" else 0.5, stones


NOTHING = ("one token", "equal queries", "equal keys", "zero queries", "no stone", "no link")


@pytest.mark.parametrize("name", NOTHING)
@given(seed=seeds, kind=kinds, self_weight=self_weights, causal=st.booleans())
def test_without_links_every_token_keeps_its_own_features(name, seed, kind, self_weight, causal):
    (query, key, value), threshold, stones = _degenerate(name, seed)
    scores = standard_scores(query, key, SCALE, causal=causal)
    links = incidence(scores, threshold, kind, stones=stones, causal=causal)
    walk = propagation_of(links, self_weight, causal)
    if name not in ("no stone", "no link"):
        assert not scores.any()
    if kind != "sigmoid":
        assert not links.any()
    # Sigmoid links are never 0 where there is a stone: scores of 0 put every token on it alike.
    if kind != "sigmoid" or name in ("one token", "no stone", "no link"):
        identity = torch.eye(query.shape[-2], dtype=torch.float64)
        assert_close(walk, identity.expand_as(walk))
    strength = random_strengths(seed).requires_grad_()
    output = stone_attention(
        query,
        key,
        value,
        strength,
        threshold=threshold,
        scale=SCALE,
        incidence=kind,
        self_weight=self_weight,
        stones=stones,
        causal=causal,
    )
    assert output.isfinite().all()
    for gradient in gradients(output, [query, key, value, strength]):
        assert gradient.isfinite().all()


@given(seed=seeds, length=lengths, kind=kinds, causal=st.booleans())
def test_a_sequence_of_padding_alone_is_finite(seed, length, kind, causal):
    heads = random_tensors(seed, length)
    valid = torch.ones(2, length, dtype=torch.bool)
    valid[1] = False
    output = stone_attention(
        *heads,
        random_strengths(seed),
        threshold=0.5,
        scale=SCALE,
        incidence=kind,
        self_weight=0.0,
        valid=valid,
        causal=causal,
    )
    assert output.isfinite().all()
    for gradient in gradients(output, heads):
        assert gradient.isfinite().all()


@given(seed=seeds, length=lengths, self_weight=st.floats(0.01, 1))
def test_a_token_leaves_its_last_stone_smoothly(seed, length, self_weight):
    links = random_incidence(seed, length)[:1, :1]
    assume(bool(links[0, 0, 0].any()))
    leaving = torch.zeros(length, 1, dtype=torch.float64)
    leaving[0] = 1
    gone, nearly = (
        stone_propagation(links * (1 - x * leaving), self_weight) for x in (1, 1 - 1e-9)
    )
    assert (gone - nearly)[0, 0, 0].abs().max() < 1e-6
    assert gone[0, 0, 0, 0] == 1
