"""Memory-compressed attention and its stack of layers against the slow loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.nn import DecoderSelfAttention, SelfAttention
from models.memory_compressed import TDMCA, MemoryCompressedAttention
from tests.inputs import random_padding_mask
from tests.nn.support import (
    CHANNELS,
    HEADS,
    assert_finite_without_tokens,
    assert_follows,
    assert_ignores_padding,
    assert_leaks_nothing,
    assert_precise,
    assert_same,
    features,
    padded_features,
    split,
)
from tests.oracles import (
    reference_attention,
    reference_compressed_memory,
    reference_compressed_visible,
)
from tests.support import MemoryMeter

WINDOWS = ((3, 3), (1, 1), (3, 2), (4, 1), (5, 4))


def oracle(layer: SelfAttention, x: Tensor) -> list[Tensor]:
    """Return what each head reads of one sequence."""
    assert isinstance(layer, MemoryCompressedAttention)
    conv = layer.compress
    memory = reference_compressed_memory(x, conv.weight, conv.bias, layer.stride)
    visible = reference_compressed_visible(len(x), layer.kernel_size, layer.stride, layer.is_causal)
    return [reference_attention(*heads, visible) for heads in split(layer, x, memory)]


def make(window: tuple[int, int] = (3, 3), is_causal: bool = False) -> MemoryCompressedAttention:
    torch.manual_seed(0)
    return MemoryCompressedAttention(CHANNELS, HEADS, *window, is_causal=is_causal).double()


def make_stack(layers: int = 3, block: int = 4) -> TDMCA:
    torch.manual_seed(0)
    return TDMCA(CHANNELS, HEADS, layers, block).double()


@given(padded_features(), st.sampled_from(WINDOWS), st.booleans())
def test_the_layer_follows_the_oracle(case, window, is_causal):
    assert_follows(make(window, is_causal), *case, oracle)


@pytest.mark.parametrize("is_causal", [False, True])
def test_precision_and_padding(is_causal):
    assert_ignores_padding(make(is_causal=is_causal), features(2, 7))
    assert_finite_without_tokens(make(is_causal=is_causal), features(2, 7))
    assert_precise(make(is_causal=is_causal), features(2, 13), oracle)


@pytest.mark.parametrize("window", WINDOWS)
def test_no_later_token_is_read(window):
    assert_leaks_nothing(make(window, is_causal=True), features(2, 11))


@pytest.mark.parametrize("window", [(0, 1), (3, 0), (3, 4)])
def test_windows_that_lose_tokens_are_refused(window):
    with pytest.raises(ValueError, match="stride"):
        make(window)


def stack_oracle(model: TDMCA, x: Tensor) -> Tensor:
    """Run the layers on one sequence, a slow loop each: [n, C]."""
    place = torch.arange(len(x))
    for number, layer in enumerate(model.layers):
        attention, tokens = layer.attention, layer.attention_norm(x)
        if number % 2 == 1:
            heads = oracle(attention, tokens)
        else:
            visible = (place[:, None] // 4 == place // 4).tril()
            heads = [reference_attention(*h, visible) for h in split(attention, tokens, tokens)]
        x = x + attention.attn_out(torch.cat(heads, dim=-1))
        x = x + layer.feed_forward(x)
    return model.norm(x)


@given(st.sampled_from((1, 3, 4, 9, 13)), st.sampled_from(("right", "left", "scattered")))
def test_the_stack_follows_the_oracle(length, side):
    model, x = make_stack(), features(2, length, seed=length).requires_grad_()
    mask = random_padding_mask(2, length, side=side, seed=length)
    want = torch.zeros_like(x)
    for b in range(2):
        where = (torch.tensor(b), mask[b].nonzero()[:, 0])
        want = want.index_put(where, stack_oracle(model, x[b, mask[b]]))
    spoilt = x.masked_fill(~mask.unsqueeze(-1), torch.nan)
    assert_same(model(spoilt, mask), want, (x, *model.parameters()))


def test_layers_take_turns_and_leak_nothing():
    kinds = [type(layer.attention) for layer in TDMCA(CHANNELS, HEADS).layers]
    near, far = DecoderSelfAttention, MemoryCompressedAttention
    assert kinds == [near, far, near, far, near]
    assert_leaks_nothing(make_stack(), features(2, 11))


def test_local_layers_store_no_square():
    with MemoryMeter() as meter:
        make_stack(layers=1, block=16)(features(1, 512)).sum().backward()
    assert meter.largest < 512 * 512 / 2
