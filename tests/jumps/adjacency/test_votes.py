import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.jumps.adjacency.pairs
from jat_graph.jumps.adjacency.pairs import VoteRule, sum_soft_votes
from jat_graph.jumps.kernels import count_votes
from tests.jumps.adjacency.support import adjacencies, brute_force
from tests.support import random_tensors


def hard_votes(rule, *scored):
    """Whether products of scores reach ρ, by the definition."""
    product = rule.product(*scored)
    rho = rule.threshold.unsqueeze(-1)
    return product >= rho if rule.inclusive else product > rho


@given(adjacency=adjacencies())
def test_hard_votes_are_counted_to_the_bit(adjacency):
    rule, *scored = adjacency
    assert torch.equal(count_votes(*rule.settle(*scored)), brute_force(*adjacency))


@given(adjacency=adjacencies(soft=True))
def test_soft_votes_are_summed(adjacency):
    found = sum_soft_votes(*adjacency)
    torch.testing.assert_close(found, brute_force(*adjacency), rtol=1e-10, atol=1e-10)


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
