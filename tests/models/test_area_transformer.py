"""Area attention against the oracle in every mode, with masks, grids, memories and noise."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from models.area_transformer import KEY_MODES, VALUE_MODES, AreaAttention, Areas
from tests.inputs import random_padding_mask
from tests.nn.support import (
    CHANNELS,
    HEADS,
    assert_finite_without_tokens,
    assert_leaks_nothing,
    assert_same,
    features,
)
from tests.oracles.areas import (
    ReferenceArea,
    reference_area_attention,
    reference_area_mask,
    reference_area_pool,
    reference_areas,
)
from tests.support import assert_equal, assert_within_budget

SIDES = ["left", "right", "scattered"]


def make_layer(**options: object) -> AreaAttention:
    torch.manual_seed(0)
    return AreaAttention(CHANNELS, HEADS, **{"max_width": 3} | options).double().eval()


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def oracle_keys(layer: AreaAttention, key: Tensor, areas: list[ReferenceArea]) -> Tensor:
    """The keys of areas outside of training, by loops."""
    part, mode = layer.area_key, layer.area_key.mode
    centre = reference_area_pool(key, areas, "max" if mode.startswith("max") else "mean")
    if not part.embeds_sizes:
        return centre
    parts = [centre]
    if mode in ("concat", "sum"):
        parts.append(reference_area_pool(key, areas, "std"))
    tall, wide = part.height_embedding.weight, part.width_embedding.weight
    rows = [torch.cat([tall[area.height - 1], wide[area.width - 1]]) for area in areas]
    parts.append(torch.stack(rows).expand_as(centre))
    joined = torch.cat(parts, -1) if mode.endswith("concat") else torch.stack(parts).sum(0)
    hidden = F.relu(joined @ part.hidden.weight.T + part.hidden.bias)
    return hidden @ part.output.weight.T + part.output.bias


def oracle(layer: AreaAttention, x: Tensor, memory: Tensor, allowed: Tensor) -> Tensor:
    """The layer's output by loops; allowed: bool [B, Lq, L]."""
    sizes = layer.areas
    areas = reference_areas(
        memory.size(1), max_width=sizes.max_width, max_height=sizes.max_height, height=sizes.height
    )
    mask = reference_area_mask(allowed, areas)[:, None].expand(-1, HEADS, -1, -1)
    out = reference_area_attention(
        heads(layer.q(x)),
        oracle_keys(layer, heads(layer.k(memory)), areas),
        reference_area_pool(heads(layer.v(memory)), areas, layer.value_mode),
        mask,
        scale=layer.head_channels**-0.5,
        temperature=layer.temperature,
        top_k=layer.top_k,
    )
    return layer.attn_out(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("value_mode", VALUE_MODES)
@pytest.mark.parametrize("key_mode", KEY_MODES)
def test_values_and_gradients_are_the_oracles(key_mode, value_mode, top_k):
    modes = {"key_mode": key_mode, "value_mode": value_mode}
    layer = make_layer(**modes, top_k=top_k, max_height=2, height=2, temperature=0.5)
    x = features(2, 8).requires_grad_()
    mask = torch.tensor([[True] * 8, [True] * 3 + [False] + [True] * 4])
    want = oracle(layer, x, x, mask[:, None].expand(-1, 8, -1)) * mask.unsqueeze(-1)
    assert_same(layer(x, mask), want, (x, *layer.parameters()))


@given(
    key_mode=st.sampled_from(tuple(KEY_MODES)),
    value_mode=st.sampled_from(VALUE_MODES),
    top_k=st.sampled_from([None, 2]),
    is_causal=st.booleans(),
    side=st.sampled_from(SIDES),
    seed=st.integers(0, 99),
)
def test_padding_changes_nothing_whatever_it_holds(
    key_mode, value_mode, top_k, is_causal, side, seed
):
    layer = make_layer(key_mode=key_mode, value_mode=value_mode, top_k=top_k, is_causal=is_causal)
    mask = random_padding_mask(3, 7, side=side, min_valid=1, seed=seed)
    x = features(3, 7, seed=seed).masked_fill(~mask.unsqueeze(-1), torch.nan)
    got = layer(x, mask)
    assert not got[~mask].any()
    for row, valid, out in zip(x, mask, got, strict=True):
        assert_equal(out[valid], layer(row[valid][None])[0])


@pytest.mark.parametrize("side", SIDES)
def test_a_memory_is_read_as_the_oracle_reads_it_whatever_its_padding_holds(side):
    layer = make_layer(key_mode="concat", memory_channels=5)
    mask = random_padding_mask(3, 7, side=side, min_valid=1, seed=4)
    memory = features(3, 7, width=5).masked_fill(~mask.unsqueeze(-1), torch.nan)
    x = features(3, 4, seed=1)
    got = layer(x, memory=memory, memory_mask=mask)
    for b in range(3):
        valid = memory[b : b + 1, mask[b]]
        allowed = torch.ones(1, 4, valid.size(1), dtype=torch.bool)
        assert_equal(got[b : b + 1], oracle(layer, x[b : b + 1], valid, allowed))
    grid = make_layer(max_height=2, height=3, memory_channels=5)
    memory, mask = features(2, 12, width=5, seed=3), random_padding_mask(2, 12, side=side, seed=2)
    want = oracle(grid, x[:2], memory * mask.unsqueeze(-1), mask[:, None].expand(-1, 4, -1))
    assert_equal(grid(x[:2], memory=memory, memory_mask=mask), want)


@pytest.mark.parametrize("top_k", [None, 2])
def test_causal_areas_end_at_the_query(top_k):
    layer, x = make_layer(is_causal=True, top_k=top_k), features(2, 7)
    earlier = torch.ones(7, 7, dtype=torch.bool).tril().expand(2, -1, -1)
    assert_equal(layer(x), oracle(layer, x, x, earlier))
    assert_leaks_nothing(layer, x)


@pytest.mark.parametrize("top_k", [None, 2])
@pytest.mark.parametrize("key_mode", KEY_MODES)
def test_a_sequence_of_padding_gives_zeros_and_finite_gradients(key_mode, top_k):
    layer, x = make_layer(key_mode=key_mode, top_k=top_k), features(2, 5).requires_grad_()
    assert_finite_without_tokens(layer, x)
    out = layer(x, memory=x, memory_mask=torch.tensor([[True] * 5, [False] * 5]))
    assert_close(out[1], layer.attn_out.bias.expand(5, -1))
    gradients = torch.autograd.grad(out.sum(), [x, *layer.parameters()], allow_unused=True)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_noise_is_for_training_and_has_the_areas_deviation():
    layer = make_layer(key_mode="sample")
    assert torch.equal(layer(features(2, 6)), layer(features(2, 6)))
    layer.train()
    key = features(1, 1, 4)
    torch.manual_seed(0)
    samples = torch.stack([layer.area_key(key, layer.areas) for _ in range(2000)])
    listed = reference_areas(4, max_width=3)
    for got, kind in ((samples.mean(0), "mean"), (samples.std(0), "std")):
        assert_close(got, reference_area_pool(key, listed, kind), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_lower_precision_runs_and_keeps_its_dtype(dtype):
    layer, x = make_layer(key_mode="concat"), features(2, 6)
    got = copy.deepcopy(layer).to(dtype)(x.to(dtype))
    assert got.dtype == dtype
    assert_close(got.double(), layer(x), rtol=0.1, atol=0.1)


def test_what_does_not_fit_is_refused():
    x = features(2, 5)
    for options in ({"max_width": 0}, {"top_k": 0}, {"key_mode": "std"}, {"value_mode": "std"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            make_layer(**options)
    with pytest.raises(ValueError, match="must be even for 'concat', got 3"):
        AreaAttention(9, 3, 3, key_mode="concat")
    with pytest.raises(ValueError, match="height must divide the 5 tokens, got 2"):
        make_layer(height=2)(x)
    with pytest.raises(ValueError, match="memory"):
        make_layer(is_causal=True)(x, memory=x)


def pooled(areas: Areas, x: Tensor, kind: str) -> Tensor:
    if kind == "std":
        return areas.means_and_deviations(x)[1]
    return {"sum": areas.sums, "mean": areas.means, "max": areas.maxima}[kind](x)


@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 5),
    max_height=st.integers(1, 5),
    max_width=st.integers(1, 6),
    kind=st.sampled_from(("sum", "mean", "max", "std")),
    seed=st.integers(0, 99),
)
def test_areas_are_the_loops(rows, columns, max_height, max_width, kind, seed):
    """Features of areas and their gradients, sizes, and which areas are read."""
    length, areas = rows * columns, Areas(max_width, max_height, rows)
    x = features(2, length, width=3, seed=seed).requires_grad_()
    listed = reference_areas(length, max_width=max_width, max_height=max_height, height=rows)
    assert_same(pooled(areas, x, kind), reference_area_pool(x, listed, kind), (x,))
    assert areas.sizes(x).tolist() == [[area.height, area.width] for area in listed]
    assert_equal(areas.means_and_deviations(x)[0], areas.means(x))
    allowed = features(2, length, width=1, seed=seed).squeeze(-1) < 0.5
    assert torch.equal(areas.readable(allowed), reference_area_mask(allowed, listed))


@pytest.mark.parametrize("kind", ["sum", "mean", "std"])
def test_long_inputs_keep_their_digits_in_single_precision(kind):
    exact = 3.0 + features(16384, width=1)  # a mean that a running sum heaps up
    exact = exact.float().double()
    listed = reference_areas(16384, max_width=3)
    truth = reference_area_pool(exact, listed, kind)
    low = reference_area_pool(exact.float(), listed, kind)
    assert_within_budget(pooled(Areas(max_width=3), exact.float(), kind), low, truth)


def test_a_large_mean_does_not_swallow_the_deviation():
    exact = (1000.0 + features(64, width=2)).float().double()
    truth = reference_area_pool(exact, reference_areas(64, max_width=4), "std")
    got = pooled(Areas(max_width=4), exact.float(), "std").double()
    assert_close(got, truth, rtol=1e-3, atol=1e-4)


def test_equal_tokens_have_a_finite_gradient():
    x = torch.ones(6, 2, requires_grad=True)
    deviation = Areas(max_width=3).means_and_deviations(x)[1]
    (gradient,) = torch.autograd.grad(deviation.sum(), x)
    assert deviation.max() < 0.01
    assert gradient.isfinite().all()
