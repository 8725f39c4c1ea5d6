"""Votes are those of their definition, and the threshold is the quantile that is asked for."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.jumps.adjacency.pairs
from jat_graph import JatConfig, PairGraph, jump_operator
from jat_graph.core.masks import resolve_mask
from jat_graph.jumps.adjacency.keys import select_keys
from jat_graph.jumps.adjacency.pairs import (
    SAMPLED_TRIPLES,
    VoteRule,
    adaptive_threshold,
    sum_soft_votes,
)
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from jat_graph.jumps.kernels import count_votes
from tests.inputs import random_heads
from tests.jumps.adjacency.support import sampled_triples
from tests.oracles import reference_graph, reference_scores
from tests.support import (
    PADDING_MASKS,
    SELECTIONS,
    Case,
    heads_and_masks,
    oracle_graph,
    random_tensors,
)


def votes_by_definition(rule, scores, norms):
    """Count the votes for each pair of tokens, [B, H, L, L], key by key."""
    left, right = scores.unsqueeze(-2), scores.unsqueeze(-3)
    product = left * right / (1.0 if norms is None else norms[:, :, None, None])
    rho = rule.threshold.expand(scores.shape[:2])[..., None, None, None]
    if rule.soft_temperature is None:
        vote = (product >= rho if rule.inclusive else product > rho).to(scores.dtype)
        negative = torch.minimum(left, right) < 0
    else:
        vote = ((product - rho) / rule.soft_temperature).sigmoid()
        negative = torch.maximum(left, right) < 0
    gone = product.isnan() | (negative & rule.same_sign_only)
    return vote.masked_fill(gone, 0.0).sum(-1)


@st.composite
def adjacencies(draw, soft=False):
    """Draw scores that are small integers, masked ones among them, so that products meet ρ."""
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    length, keys = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    shape = (batch, heads, length, keys)
    scores = torch.randint(-2, 3, shape, generator=generator).double()
    masked = torch.rand(shape, generator=generator) < draw(st.sampled_from((0.0, 0.3)))
    norms = None
    if draw(st.booleans()):
        norms = 2.0 ** torch.randint(0, 2, (batch, heads, keys), generator=generator)
    threshold = torch.randint(0, 5, (draw(st.sampled_from((1, batch))), heads), generator=generator)
    rule = VoteRule(
        threshold.double(),
        inclusive=draw(st.booleans()),
        same_sign_only=draw(st.booleans()),
        soft_temperature=0.7 if soft else None,
    )
    norms = None if norms is None else norms.double()
    return rule, scores.masked_fill(masked, math.nan), norms


def hard_votes(rule, *scored):
    """Whether products of scores reach ρ, by the definition."""
    product = rule.product(*scored)
    rho = rule.threshold.unsqueeze(-1)
    return product >= rho if rule.inclusive else product > rho


@given(adjacency=adjacencies())
def test_hard_votes_are_counted_to_the_bit(adjacency):
    rule, *scored = adjacency
    assert torch.equal(count_votes(*rule.settle(*scored)), votes_by_definition(*adjacency))


@given(adjacency=adjacencies(soft=True))
def test_soft_votes_are_summed(adjacency):
    found = sum_soft_votes(*adjacency)
    torch.testing.assert_close(found, votes_by_definition(*adjacency), rtol=1e-10, atol=1e-10)


@given(
    dtype=st.sampled_from((torch.float32, torch.float64)),
    threshold=st.sampled_from((0.0, 1e-44, 1e-38, 0.1, 1.0, 3.0, 6.02, 1e30, math.inf)),
    inclusive=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_a_limit_is_the_largest_product_that_is_no_vote(dtype, threshold, inclusive, seed):
    generator = torch.Generator().manual_seed(seed)
    norms = 1 + 9 * torch.rand(1, 2, 5, generator=generator, dtype=dtype)
    rho = torch.full((1, 2), threshold, dtype=dtype)
    rule, scores = VoteRule(rho, inclusive), torch.zeros(1, 2, 1, 5, dtype=dtype)
    limit, plain = (rule.settle(scores, divisor)[1] for divisor in (norms, None))
    above = torch.full_like(limit, math.inf)
    for limits, divisor in ((limit, norms), (plain, None)):
        product = torch.stack([limits, limits.nextafter(above)])
        votes = hard_votes(rule, product, torch.ones_like(product), divisor)
        if threshold == 0 and inclusive:
            assert (limits < 0).all()
            assert hard_votes(rule, *torch.zeros(2, 1, 2, 5), divisor).all()
        else:
            assert not votes[0].any()
            assert votes[1].all() or (threshold == math.inf and not inclusive)


@pytest.mark.parametrize("tile", [1, 2**20])
def test_gradcheck_of_soft_votes(tile, monkeypatch):
    monkeypatch.setattr(jat_graph.jumps.adjacency.pairs, "SOFT_VOTES", tile)
    scores, norms = random_tensors(0, (1, 2, 4, 3), (1, 2, 3))
    threshold = torch.tensor([[0.3, 0.9]], dtype=torch.float64)
    rule = VoteRule(threshold, soft_temperature=0.6)
    leaves = [scores.requires_grad_(), (norms.abs() + 1).requires_grad_()]
    assert torch.autograd.gradcheck(lambda *s: sum_soft_votes(rule, *s), leaves, fast_mode=True)


def found_threshold(config, case):
    mask = resolve_mask(case.mask, case.is_causal, case.query)
    source = QueryKeyScores(case.query, case.key, case.scale or case.query.size(-1) ** -0.5)
    keys = select_keys(config, source, mask)
    return adaptive_threshold(config, VoteRule.of(config.graph, source), source, keys, mask)


@pytest.mark.filterwarnings("ignore:vote_rate=.*:UserWarning")
@given(
    case=heads_and_masks(PADDING_MASKS),
    rate=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
    selection=st.sampled_from(SELECTIONS),
    variants=st.tuples(st.booleans(), st.booleans()),
)
def test_the_quantile_is_the_oracles(case, rate, seed, selection, variants):
    config = JatConfig(
        PairGraph(
            vote_rate=rate,
            key_selection=selection,
            key_factor=1.0,
            same_sign_only=variants[0],
            normalize_keys=variants[1],
        ),
        seed=seed,
    )
    found = found_threshold(config, case)
    torch.testing.assert_close(found, oracle_graph(config, case).threshold, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rate", [0.05, 0.1234, 0.4])
def test_the_quantile_is_a_sampled_product_without_interpolation(rate):
    # So many tokens that hardly two sampled products are equal.
    query, key = random_tensors(0, (1, 1, 120, 8), (1, 1, 120, 8))
    config = JatConfig(PairGraph(vote_rate=rate))
    scores = reference_scores(query, key)[0, 0]
    i, k, j = sampled_triples(config, 120).T
    products = (scores[i, j] * scores[k, j]).sort().values
    assert len(products.unique()) > 0.9 * SAMPLED_TRIPLES
    found = found_threshold(config, Case(query, key, key, None, False))
    wanted = np.quantile(products.numpy(), 1 - rate, method="inverted_cdf")
    assert math.isclose(found.item(), wanted, rel_tol=1e-12)
    assert int((products > found.item() * (1 + 1e-12)).sum()) == int(rate * SAMPLED_TRIPLES)


def test_a_share_that_only_negative_products_could_reach_is_warned_about():
    query, key, _, _ = random_heads(1, 1, 12, 4)
    config = JatConfig(PairGraph(vote_rate=0.9))
    with pytest.warns(UserWarning, match=r"vote_rate=0.9 needs a threshold below 0; 0 is used"):
        operator = jump_operator(query, key, config=config)
    zero = reference_graph(query, key, threshold=0.0)
    torch.testing.assert_close(operator.base.to_dense(), zero.adjacency)
