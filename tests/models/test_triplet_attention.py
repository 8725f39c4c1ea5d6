"""Triplet attention against the oracle's loop over triplets, and without the released traps."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from models.triplet_attention import TripletAttention
from tests.inputs import random_padding_mask
from tests.nn.support import assert_finite_without_tokens, assert_same, features
from tests.oracles import reference_triplet_attention
from tests.support import assert_equal

CHANNELS, HEADS = 18, 3  # six heads in three dimensions: more than there are kinds of partners


def make_layer(seed: int = 0) -> TripletAttention:
    torch.manual_seed(0)
    layer = TripletAttention(CHANNELS, HEADS, seed=seed).double()
    with torch.no_grad():
        for lin in (layer.q, layer.k):  # so that the softmax is far from uniform
            lin.weight *= 3
    return layer


def oracle(layer: TripletAttention, x: Tensor) -> Tensor:
    """The layer on one sequence without padding."""
    source = torch.Generator().manual_seed(layer.seed)
    read = reference_triplet_attention(
        layer.q(x),
        layer.k(x),
        layer.v(x),
        layer.key2(x),
        shuffled=torch.rand(len(x), dtype=torch.float64, generator=source).argsort().tolist(),
    )
    return layer.attn_out(read)


@pytest.mark.parametrize("length", [1, 2, 5, 6])
def test_values_and_gradients_are_the_oracles(length):
    layer, x = make_layer(), features(length, width=CHANNELS).requires_grad_()
    assert_same(layer(x[None])[0], oracle(layer, x), (x, *layer.parameters()))


@given(
    side=st.sampled_from(["left", "right", "scattered"]),
    length=st.integers(2, 9),
    seed=st.integers(0, 99),
)
def test_padding_changes_nothing_whatever_it_holds(side, length, seed):
    layer = make_layer(seed)
    mask = random_padding_mask(3, length, side=side, min_valid=1, seed=seed)
    x = features(3, length, width=CHANNELS, seed=seed).masked_fill(~mask.unsqueeze(-1), torch.nan)
    got = layer(x, mask)
    assert not got[~mask].any()
    for row, valid, out in zip(x, mask, got, strict=True):
        assert_equal(out[valid], oracle(layer, row[valid]))


def test_a_sequence_of_padding_gives_zeros_and_finite_gradients():
    assert_finite_without_tokens(make_layer(), features(2, 5, width=CHANNELS))


def test_random_partners_come_from_the_seed_and_leave_the_global_state_alone():
    x = features(2, 9, width=CHANNELS)
    state = torch.get_rng_state()
    outputs = [make_layer(seed).eval() for seed in (1, 1, 2)]
    torch.set_rng_state(state)
    first, same, other = (layer(x) for layer in outputs)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, same)
    assert not torch.allclose(first, other)
    with torch.device("meta"):  # a default device changes no draw
        assert torch.equal(outputs[0](x), first)


def test_fewer_heads_than_kinds_of_partners_run():
    torch.manual_seed(0)
    layer, x = TripletAttention(6, 2, head_channels=3).double(), torch.randn(4, 6).double()
    assert_equal(layer(x), oracle(layer, x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_lower_precision_runs_and_keeps_its_dtype(dtype):
    layer, x = make_layer(), features(2, 6, width=CHANNELS)
    want = layer(x)
    got = layer.to(dtype)(x.to(dtype))
    assert got.dtype == dtype
    assert_close(got.double(), want, rtol=0.1, atol=0.1)


def test_features_that_are_no_threes_are_refused():
    with pytest.raises(ValueError, match="must be a multiple of 3, got 16"):
        TripletAttention(16, 2)
