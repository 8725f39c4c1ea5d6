import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.votes
from jat_graph.votes import VoteRule, count_votes, vote_product
from tests.support import random_tensors


def brute_force(rule, scores, norms):
    """Count votes with Python's numbers, one triple at a time."""
    batch, heads, length, keys = scores.shape
    counts = torch.zeros(batch, heads, length, length, dtype=scores.dtype)
    thresholds = rule.threshold.expand(batch, heads)
    for b, h, i, k, j in product(*map(range, (batch, heads, length, length, keys))):
        left, right = scores[b, h, i, j].item(), scores[b, h, k, j].item()
        value = left * right / (1.0 if norms is None else norms[b, h, j].item())
        rho = thresholds[b, h].item()
        vote = value >= rho if rule.inclusive else value > rho
        if rule.soft_temperature is not None:
            vote = 1 / (1 + math.exp(-(value - rho) / rule.soft_temperature))
        if math.isnan(value) or (rule.same_sign_only and left < 0 and right < 0):
            vote = 0.0
        counts[b, h, i, k] += vote
    return counts


@st.composite
def ballots(draw, soft=False):
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


@given(ballot=ballots())
def test_hard_votes_are_counted_to_the_bit(ballot):
    assert torch.equal(count_votes(*ballot), brute_force(*ballot))


@given(ballot=ballots(soft=True))
def test_soft_votes_are_summed(ballot):
    torch.testing.assert_close(count_votes(*ballot), brute_force(*ballot), rtol=1e-10, atol=1e-10)


@given(ballot=ballots(), tile=st.sampled_from((1, 3, 7, 20, 50)))
def test_tiles_change_nothing(ballot, tile):
    whole = count_votes(*ballot)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jat_graph.votes, "TILE", tile)
        assert torch.equal(count_votes(*ballot), whole)


@given(ballot=ballots(), ends=st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_some_rows_are_rows_of_the_whole(ballot, ends):
    length = ballot[1].size(2)
    rows = slice(min(*ends, length), min(max(ends), length))
    assert torch.equal(count_votes(*ballot, rows), count_votes(*ballot)[:, :, rows])


def test_inclusive_differs_where_the_product_meets_the_threshold():
    scores = torch.tensor([[1.0], [2.0], [3.0]])[None, None]
    threshold = torch.tensor([[3.0]])
    strict = count_votes(VoteRule(threshold), scores, None)
    loose = count_votes(VoteRule(threshold, inclusive=True), scores, None)
    assert (loose - strict)[0, 0].nonzero().tolist() == [[0, 2], [2, 0]]


def test_two_negative_scores_join_unless_only_one_sign_may():
    scores = torch.tensor([[-2.0], [-3.0], [2.0], [3.0]])[None, None]
    threshold = torch.tensor([[1.0]])
    both = count_votes(VoteRule(threshold), scores, None)[0, 0]
    one = count_votes(VoteRule(threshold, same_sign_only=True), scores, None)[0, 0]
    assert both[0, 1] == both[2, 3] == one[2, 3] == 1
    assert one[0, 1] == both[0, 2] == 0


def test_the_product_is_divided_by_the_norm():
    left, right = random_tensors(0, (5,), (5,))
    norm = torch.full((5,), 2.0, dtype=torch.float64)
    torch.testing.assert_close(vote_product(left, right, norm), left * right / 2)
    torch.testing.assert_close(vote_product(left, right, None), left * right)


def test_votes_are_compared_in_the_dtype_of_the_scores():
    # (1 + 2⁻¹³)² is 1 + 2⁻¹² + 2⁻²⁶, whose last term float32 rounds away.
    for dtype, joined in ((torch.float64, 1), (torch.float32, 0)):
        scores = torch.full((1, 1, 2, 1), 1 + 2.0**-13, dtype=dtype)
        rule = VoteRule(torch.tensor([[1 + 2.0**-12]], dtype=dtype))
        assert count_votes(rule, scores, None)[0, 0, 0, 1] == joined


@pytest.mark.parametrize("variants", [{}, {"same_sign_only": True}])
def test_soft_votes_become_hard_ones(variants):
    (scores,) = random_tensors(0, (2, 2, 7, 5))
    threshold = torch.tensor([[0.5, 1.0]], dtype=torch.float64)
    hard = count_votes(VoteRule(threshold, **variants), scores, None)
    off = ~torch.eye(7, dtype=torch.bool)
    assert 0.1 < (hard[..., off] > 0).double().mean() < 0.95
    errors = []
    for temperature in (1.0, 0.1, 0.01, 1e-6):
        soft = count_votes(
            VoteRule(threshold, **variants, soft_temperature=temperature), scores, None
        )
        errors.append((soft - hard).abs().max().item())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-10 < errors[0]


def test_gradients_flow_through_soft_votes_only():
    (scores,) = random_tensors(0, (1, 2, 5, 4))
    scores[0, 0, 1, 2] = math.nan
    scores.requires_grad_()
    threshold = torch.tensor([[0.5]], dtype=torch.float64)
    assert not count_votes(VoteRule(threshold), scores, None).requires_grad
    rule = VoteRule(threshold, soft_temperature=0.5)
    (grad,) = torch.autograd.grad(count_votes(rule, scores, None).sum(), scores)
    assert grad.isfinite().all()
    assert grad[0, 0, 1, 2] == 0
    assert grad.count_nonzero() == grad.numel() - 1


@pytest.mark.parametrize("tile", [1, 2**20])
def test_gradcheck_of_soft_votes(tile, monkeypatch):
    monkeypatch.setattr(jat_graph.votes, "TILE", tile)
    scores, norms = random_tensors(0, (1, 2, 4, 3), (1, 2, 3))
    threshold = torch.tensor([[0.3, 0.9]], dtype=torch.float64)
    rule = VoteRule(threshold, soft_temperature=0.6)
    leaves = [scores.requires_grad_(), (norms.abs() + 1).requires_grad_()]
    assert torch.autograd.gradcheck(lambda *s: count_votes(rule, *s), leaves, fast_mode=True)


def test_soft_votes_need_a_temperature():
    one = torch.ones(1)
    with pytest.raises(ValueError, match="soft_temperature must be a number"):
        VoteRule(one).soft_votes(one, one, None, one)


def test_the_operator_counts_what_its_description_says():
    scores = torch.randn(2, 3, 6, 4)
    threshold = torch.full((2, 3), 0.5)
    torch.library.opcheck(
        torch.ops.jat_graph.count_votes, (scores, threshold, None, False, False, 1, 4)
    )
