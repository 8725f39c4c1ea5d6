"""Triplet attention against the oracle's loop over triplets, and without the released traps."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph.nn import TripletAttention
from tests.inputs import random_padding_mask
from tests.nn.support import assert_finite_without_tokens, assert_same, features
from tests.oracles import reference_triplet_attention

PAIRS = ("partner", "sum", "max")
CHANNELS, HEADS = 18, 3  # six heads in three dimensions: more than there are kinds of partners


def make_layer(pairs: str = "partner", **options: object) -> TripletAttention:
    torch.manual_seed(0)
    layer = TripletAttention(CHANNELS, HEADS, pairs, **options).double()
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
        None if layer.key2 is None else layer.key2(x),
        aggregation=layer.pairs,
        shuffled=torch.rand(len(x), dtype=torch.float64, generator=source).argsort().tolist(),
    )
    return layer.attn_out(read)


@pytest.mark.parametrize("length", [1, 2, 5, 6])
@pytest.mark.parametrize("pairs", PAIRS)
def test_values_and_gradients_are_the_oracles(pairs: str, length: int) -> None:
    layer, x = make_layer(pairs, qkv_bias=True), features(length, width=CHANNELS).requires_grad_()
    assert_same(layer(x[None])[0], oracle(layer, x), (x, *layer.parameters()))


@given(
    pairs=st.sampled_from(PAIRS),
    side=st.sampled_from(["left", "right", "scattered"]),
    length=st.integers(2, 9),
    seed=st.integers(0, 99),
)
def test_padding_changes_nothing_whatever_it_holds(
    pairs: str, side: str, length: int, seed: int
) -> None:
    layer = make_layer(pairs, seed=seed)
    mask = random_padding_mask(3, length, side=side, min_valid=1, seed=seed)
    x = features(3, length, width=CHANNELS, seed=seed).masked_fill(~mask.unsqueeze(-1), torch.nan)
    got = layer(x, mask)
    assert not got[~mask].any()
    for row, valid, out in zip(x, mask, got, strict=True):
        assert_close(out[valid], oracle(layer, row[valid]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("pairs", PAIRS)
def test_a_sequence_of_padding_gives_zeros_and_finite_gradients(pairs: str) -> None:
    assert_finite_without_tokens(make_layer(pairs), features(2, 5, width=CHANNELS))


def test_random_partners_come_from_the_seed_and_leave_the_global_state_alone() -> None:
    x = features(2, 9, width=CHANNELS)
    state = torch.get_rng_state()
    outputs = [make_layer(seed=seed).eval() for seed in (1, 1, 2)]
    torch.set_rng_state(state)
    first, same, other = (layer(x) for layer in outputs)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, same)
    assert not torch.allclose(first, other)
    with torch.device("meta"):  # a default device changes no draw
        assert torch.equal(outputs[0](x), first)


def test_fewer_heads_than_kinds_of_partners_run() -> None:
    torch.manual_seed(0)
    layer, x = TripletAttention(6, 2, head_channels=3).double(), torch.randn(4, 6).double()
    assert_close(layer(x), oracle(layer, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_lower_precision_runs_and_keeps_its_dtype(dtype: torch.dtype) -> None:
    layer, x = make_layer(), features(2, 6, width=CHANNELS)
    want = layer(x)
    got = layer.to(dtype)(x.to(dtype))
    assert got.dtype == dtype
    assert_close(got.double(), want, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("options", [{"pairs": "all"}, {"channels": 16, "heads": 2}, {"seed": -1}])
def test_bad_settings_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        TripletAttention(**{"channels": CHANNELS, "heads": HEADS} | options)


def test_scores_are_volumes_over_the_root_of_three() -> None:
    layer, axes = TripletAttention(3, 1, qkv_bias=True).double(), 2 * torch.eye(3).double()
    with torch.no_grad():
        for lin, weight, bias in (
            (layer.q, 0, axes[0]),
            (layer.k, 0, axes[1]),
            (layer.key2, axes / 2, 0),
            (layer.v, axes[[2, 1, 0]] / 4, 0),
            (layer.attn_out, axes / 2, 0),
        ):
            lin.weight.zero_().add_(weight)
            lin.bias.zero_().add_(bias)
    out = layer(torch.stack([axes[2], 0 * axes[2]]))  # values 1 and 0
    weight = torch.tensor(8 / math.sqrt(3), dtype=torch.float64).sigmoid()  # 2 · 2 · 2 against 0
    assert_close(out[:, 0], weight.expand(2), rtol=1e-6, atol=0)
