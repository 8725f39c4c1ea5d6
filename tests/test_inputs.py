import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inputs import random_heads, random_padding_mask
from tests.oracles import reference_graph


def shares(adjacency: torch.Tensor, pairs: int) -> torch.Tensor:
    """Return the share of joined pairs of each head: [B, H]."""
    return (adjacency > 0).sum((-1, -2)) / pairs


@settings(max_examples=25, deadline=None)
@given(
    length=st.integers(6, 20),
    threshold=st.floats(0.1, 50.0),
    density=st.floats(0.2, 0.8),
    is_causal=st.booleans(),
    seed=st.integers(0, 999),
)
def test_every_head_has_the_wanted_density(length, threshold, density, is_causal, seed):
    options = {"threshold": threshold, "is_causal": is_causal}
    heads = random_heads(2, 2, length, 8, density=density, seed=seed, **options)
    adjacency = reference_graph(heads.query, heads.key, **options).adjacency
    pairs = length * (length - 1) // (2 if is_causal else 1)
    reached = shares(adjacency, pairs)
    assert abs(reached.mean().item() - heads.density) < 1e-6
    # A graph of few pairs may hold no key that joins as many as wanted.
    assert ((reached > 0) & (reached < 1)).all()
    if length >= 12:
        assert (reached - density).abs().max() < 0.1


def test_padding_is_left_out_of_the_density():
    mask = random_padding_mask(3, 16, min_valid=8, seed=1)
    heads = random_heads(3, 2, 16, 8, attention_mask=mask)
    adjacency = reference_graph(heads.query, heads.key, attention_mask=mask).adjacency
    count = mask.sum(-1)
    reached = shares(adjacency, (count * (count - 1))[:, None])
    assert not mask.all()
    assert ((reached > 0.4) & (reached < 0.6)).all()


def test_density_holds_in_float32():
    heads = random_heads(dtype=torch.float32)
    assert heads.query.dtype == heads.value.dtype == torch.float32
    assert 0.45 <= heads.density <= 0.55


def test_seeds_and_shapes():
    first, again, other = random_heads(seed=1), random_heads(seed=1), random_heads(seed=2)
    assert torch.equal(first.query, again.query)
    assert not torch.equal(first.query, other.query)
    assert random_heads(3, 1, 5, 7).value.shape == (3, 1, 5, 7)


@pytest.mark.parametrize("threshold", [0.0, -1.0, float("inf"), float("nan")])
def test_thresholds_that_no_scale_can_meet_are_refused(threshold):
    with pytest.raises(ValueError, match="threshold must be positive and finite"):
        random_heads(threshold=threshold)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_sequences_are_finite(length):
    heads = random_heads(2, 2, length, 4)
    assert all(t.isfinite().all() for t in heads[:3])
    assert 0 <= heads.density <= 1


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 5),
    length=st.integers(1, 12),
    side=st.sampled_from(["left", "right", "scattered"]),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_padding_masks(batch, length, side, seed, data):
    least = data.draw(st.integers(0, length))
    mask = random_padding_mask(batch, length, side=side, min_valid=least, seed=seed)
    assert mask.shape == (batch, length) and mask.dtype == torch.bool
    assert mask[0].all()
    assert (mask.sum(-1) >= least).all()
    steps = mask.to(torch.int8).diff(dim=-1)
    assert side == "scattered" or (steps >= 0 if side == "left" else steps <= 0).all()
    if batch > 1 and least < length:
        assert not mask[1:].all()


def test_bad_padding_is_refused():
    with pytest.raises(ValueError, match="side must be"):
        random_padding_mask(2, 4, side="top")
    with pytest.raises(ValueError, match="min_valid must lie in 0 to 4, got 5"):
        random_padding_mask(2, 4, min_valid=5)
