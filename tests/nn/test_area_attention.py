"""AreaAttention against the oracle in every mode, with masks, grids, memories and noise."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph.nn import AreaAttention
from jat_graph.nn.area_attention import VALUE_MODES
from jat_graph.nn.areas import KEY_MODES
from tests.inputs import random_padding_mask
from tests.oracles import (
    reference_area_attention,
    reference_area_mask,
    reference_area_pool,
    reference_areas,
)
from tests.oracles.areas import ReferenceArea

CHANNELS, HEADS = 8, 2


def make_layer(**options: object) -> AreaAttention:
    torch.manual_seed(0)
    return AreaAttention(CHANNELS, HEADS, **{"max_width": 3} | options).double().eval()


def features(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, CHANNELS, dtype=torch.float64, generator=generator)


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
    rows = [
        torch.cat([part.height_embedding.weight[a.height - 1], part.width_embedding.weight[w]])
        for a in areas
        for w in [a.width - 1]
    ]
    parts.append(torch.stack(rows).expand_as(centre))
    joined = torch.cat(parts, -1) if mode.endswith("concat") else torch.stack(parts).sum(0)
    hidden = F.relu(joined @ part.hidden.weight.T + part.hidden.bias)
    return hidden @ part.output.weight.T + part.output.bias


def oracle(layer: AreaAttention, x: Tensor, memory: Tensor, allowed: Tensor) -> Tensor:
    """The layer's output by loops; allowed: bool [B, Lq, L]."""
    sizes = layer.areas
    areas = reference_areas(
        memory.size(1),
        max_width=sizes.max_width,
        max_height=sizes.max_height,
        height=sizes.height,
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
def test_values_and_gradients_are_the_oracles(
    key_mode: str, value_mode: str, top_k: int | None
) -> None:
    layer = make_layer(
        key_mode=key_mode,
        value_mode=value_mode,
        top_k=top_k,
        max_height=2,
        height=2,
        temperature=0.5,
    )
    x = features(2, 8).requires_grad_()
    mask = torch.tensor([[True] * 8, [True] * 3 + [False] + [True] * 4])
    got = layer(x, mask)
    want = oracle(layer, x, x, mask[:, None].expand(-1, 8, -1)) * mask.unsqueeze(-1)
    assert_close(got, want, rtol=1e-10, atol=1e-10)
    inputs = [x, *layer.parameters()]
    weight = features(2, 8, seed=1)
    gradients = [torch.autograd.grad((out * weight).sum(), inputs) for out in (got, want)]
    assert_close(*gradients, rtol=1e-10, atol=1e-10)


def test_areas_of_one_token_are_plain_attention() -> None:
    layer, x = make_layer(max_width=1), features(2, 6)
    mask = random_padding_mask(2, 6, min_valid=3, seed=1)
    plain = F.scaled_dot_product_attention(
        heads(layer.q(x)), heads(layer.k(x)), heads(layer.v(x)), mask[:, None, None]
    )
    want = layer.attn_out(plain.transpose(1, 2).flatten(2)) * mask.unsqueeze(-1)
    assert_close(layer(x, mask), want, rtol=1e-12, atol=1e-12)


@given(
    key_mode=st.sampled_from(KEY_MODES),
    value_mode=st.sampled_from(VALUE_MODES),
    top_k=st.sampled_from([None, 2]),
    is_causal=st.booleans(),
    side=st.sampled_from(["left", "right", "scattered"]),
    seed=st.integers(0, 99),
)
def test_padding_changes_nothing_whatever_it_holds(
    key_mode: str, value_mode: str, top_k: int | None, is_causal: bool, side: str, seed: int
) -> None:
    layer = make_layer(key_mode=key_mode, value_mode=value_mode, top_k=top_k, is_causal=is_causal)
    mask = random_padding_mask(3, 7, side=side, min_valid=1, seed=seed)
    x = features(3, 7, seed=seed).masked_fill(~mask.unsqueeze(-1), torch.nan)
    got = layer(x, mask)
    assert not got[~mask].any()
    for row, valid, out in zip(x, mask, got, strict=True):
        assert_close(out[valid], layer(row[valid][None])[0], rtol=1e-10, atol=1e-10)


@given(side=st.sampled_from(["left", "right", "scattered"]), seed=st.integers(0, 99))
def test_padding_of_a_memory_changes_nothing(side: str, seed: int) -> None:
    layer = make_layer(key_mode="concat")
    mask = random_padding_mask(3, 7, side=side, min_valid=1, seed=seed)
    memory = features(3, 7, seed=seed).masked_fill(~mask.unsqueeze(-1), torch.nan)
    x = features(3, 4, seed=seed + 1)
    got = layer(x, memory=memory, memory_mask=mask)
    for b in range(3):
        alone = layer(x[b : b + 1], memory=memory[b : b + 1, mask[b]])
        assert_close(got[b : b + 1], alone, rtol=1e-10, atol=1e-10)


def test_a_query_reads_a_grid_as_the_oracle_does() -> None:
    layer = make_layer(max_height=2, height=3, memory_channels=5)
    memory = torch.randn(2, 12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    x, mask = features(2, 4), random_padding_mask(2, 12, side="scattered", min_valid=6, seed=2)
    memory = memory * mask.unsqueeze(-1)
    got = layer(x, memory=memory, memory_mask=mask)
    want = oracle(layer, x, memory, mask[:, None].expand(-1, 4, -1))
    assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("top_k", [None, 2])
def test_causal_areas_end_at_the_query(top_k: int | None) -> None:
    layer, x = make_layer(is_causal=True, top_k=top_k), features(2, 7)
    earlier = torch.ones(7, 7, dtype=torch.bool).tril().expand(2, -1, -1)
    got = layer(x)
    assert_close(got, oracle(layer, x, x, earlier), rtol=1e-10, atol=1e-10)
    for cut in range(1, 7):
        changed = x.clone()
        changed[:, cut:] *= -3
        assert torch.equal(layer(changed)[:, :cut], got[:, :cut])
        assert not torch.allclose(layer(changed)[:, cut:], got[:, cut:])
        assert_close(layer(x[:, :cut]), got[:, :cut], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("top_k", [None, 2])
@pytest.mark.parametrize("key_mode", KEY_MODES)
def test_a_sequence_of_padding_gives_zeros_and_finite_gradients(
    key_mode: str, top_k: int | None
) -> None:
    layer, x = make_layer(key_mode=key_mode, top_k=top_k), features(2, 5).requires_grad_()
    mask = torch.tensor([[True] * 5, [False] * 5])
    out = layer(x, mask)
    assert not out[1].any()
    read = layer(x, memory=x, memory_mask=mask)
    assert_close(read[1], layer.attn_out.bias.expand(5, -1))
    for result in (out, read):
        inputs = [x, *layer.parameters()]
        gradients = torch.autograd.grad(result.square().sum(), inputs, allow_unused=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert gradients[0][0].any() and not gradients[0][1].any()


@pytest.mark.parametrize("key_mode", [mode for mode in KEY_MODES if mode.startswith("sample")])
def test_samples_are_noise_in_training_and_means_elsewhere(key_mode: str) -> None:
    layer = make_layer(key_mode=key_mode, generator=torch.Generator())
    x = features(2, 6)
    assert torch.equal(layer(x), layer(x))
    layer.train()
    layer.generator.manual_seed(1)
    state = torch.get_rng_state()
    first, second = layer(x), layer(x)
    assert not torch.allclose(first, second)
    assert torch.equal(torch.get_rng_state(), state)
    layer.generator.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert torch.equal(copy.deepcopy(layer).eval()(x), layer.eval()(x))


def test_the_noise_has_the_areas_deviation() -> None:
    layer = make_layer(key_mode="sample").train()
    key = features(1, 1, 4)
    torch.manual_seed(0)
    samples = torch.stack([layer.area_key(key, layer.areas) for _ in range(2000)])
    listed = reference_areas(4, max_width=3)
    for got, kind in ((samples.mean(0), "mean"), (samples.std(0), "std")):
        assert_close(got, reference_area_pool(key, listed, kind), rtol=0.1, atol=0.1)


def test_flat_graphs_are_dense_ones() -> None:
    layer, x = make_layer(key_mode="sum"), features(11)
    batch = torch.tensor([0] * 4 + [1] * 7)
    parts = [layer(x[batch == graph][None])[0] for graph in (0, 1)]
    assert_close(layer(x, batch), torch.cat(parts), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_lower_precision_runs_and_keeps_its_dtype(dtype: torch.dtype) -> None:
    layer, x = make_layer(key_mode="concat"), features(2, 6)
    got = copy.deepcopy(layer).to(dtype)(x.to(dtype))
    assert got.dtype == dtype
    assert_close(got.double(), layer(x), rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_width": 0}, "max_width must be at least 1, got 0"),
        ({"max_height": 0}, "max_height must be at least 1, got 0"),
        ({"height": 0}, "height must be at least 1, got 0"),
        ({"key_mode": "none"}, "key_mode must be one of mean, max, .*, got 'none'"),
        ({"value_mode": "concat"}, "value_mode must be one of sum, mean, max, got 'concat'"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"dropout": 1.5}, "dropout probability has to be between 0 and 1, but got 1.5"),
        ({"head_channels": 3, "key_mode": "sum"}, "must be even for key_mode 'sum', got 3"),
    ],
)
def test_bad_settings_are_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AreaAttention(CHANNELS, HEADS, **{"max_width": 3} | options)


def test_bad_calls_are_one_line() -> None:
    layer, x = make_layer(height=2), features(2, 5)
    with pytest.raises(ValueError, match="height must divide the 5 tokens, got 2"):
        layer(x)
    with pytest.raises(ValueError, match="memory_mask needs a memory, got None"):
        layer(x, memory_mask=torch.ones(2, 5, dtype=torch.bool))
    with pytest.raises(
        ValueError, match=r"memory must be \[B, M, 8\] beside x .*, got \[1, 4, 8\]"
    ):
        layer(x, memory=features(1, 4))
    with pytest.raises(ValueError, match=r"memory must be \[B, M, 3\], got None"):
        make_layer(memory_channels=3)(x)
    with pytest.raises(ValueError, match="memory must be None in a causal layer"):
        make_layer(is_causal=True)(x, memory=x)
