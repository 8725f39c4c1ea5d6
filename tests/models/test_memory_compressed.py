"""Memory-compressed attention and its stack of layers against the slow loop."""

import pytest
import torch
from hypothesis import given
from torch import Tensor

from jat_graph.nn import JumpSelfAttention, SelfAttention
from models.blocks import embed
from models.memory_compressed import WINDOW, MemoryCompressedAttention, MemoryCompressedModel
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
from tests.oracles.sequences import (
    reference_attention,
    reference_compressed_memory,
    reference_compressed_visible,
)
from tests.support import MemoryMeter

BLOCK, WORDS = 4, 9


def oracle(layer: SelfAttention, x: Tensor) -> list[Tensor]:
    """Return what each head reads of one sequence."""
    assert isinstance(layer, MemoryCompressedAttention)
    conv = layer.compress
    memory = reference_compressed_memory(x, conv.weight, conv.bias, WINDOW)
    visible = reference_compressed_visible(len(x), WINDOW, WINDOW)
    return [reference_attention(*heads, visible) for heads in split(layer, x, memory)]


def make() -> MemoryCompressedAttention:
    torch.manual_seed(0)
    return MemoryCompressedAttention(CHANNELS, HEADS).double()


def make_model(layers: int = 3, block: int = BLOCK) -> MemoryCompressedModel:
    torch.manual_seed(0)
    model = MemoryCompressedModel(WORDS, CHANNELS, HEADS, layers, block, dropout=0.0)
    return model.double()


@given(padded_features())
def test_the_layer_follows_the_oracle(case: tuple[Tensor, Tensor | None]) -> None:
    assert_follows(make(), *case, oracle)


def test_precision_and_padding() -> None:
    assert_ignores_padding(make(), features(2, 7))
    assert_finite_without_tokens(make(), features(2, 7))
    assert_precise(make(), features(2, 13), oracle)


def test_every_slot_before_a_token_is_read_and_none_after() -> None:
    """A rule that hid more than it must would leak nothing, too."""
    layer, x = make(), features(1, 11).requires_grad_()
    assert_leaks_nothing(layer, features(2, 11))
    out = layer(x)
    for token in range(11):
        (grad,) = torch.autograd.grad(out[0, token].sum(), x, retain_graph=True)
        read = {place for place in range(11) if grad[0, place].any()} - {token}
        inside = {*range(token // WINDOW * WINDOW)}
        assert read == (inside | {0}) - {token}


def model_oracle(model: MemoryCompressedModel, tokens: Tensor) -> Tensor:
    """Run the layers on one sequence, a slow loop each: [n, V]."""
    x, place = embed(model.embedding, tokens[None])[0], torch.arange(len(tokens))
    for number, layer in enumerate(model.layers):
        attention, normed = layer.attention, layer.attention_norm(x)
        if number % 2 == 1:
            heads = oracle(attention, normed)
        else:
            visible = (place[:, None] // BLOCK == place // BLOCK).tril()
            heads = [reference_attention(*h, visible) for h in split(attention, normed, normed)]
        x = x + attention.attn_out(torch.cat(heads, dim=-1))
        x = x + layer.feed_forward(x)
    return model.norm(x) @ model.embedding.weight.T


@pytest.mark.parametrize("length", [1, 3, 4, 9, 13])
def test_the_model_follows_the_oracle(length: int) -> None:
    """Each kind of layer in its turn, so that tokens beyond a block are read, too."""
    model = make_model()
    tokens = torch.randint(WORDS, (length,), generator=torch.Generator().manual_seed(length))
    near, far = JumpSelfAttention, MemoryCompressedAttention
    assert [type(layer.attention) for layer in model.layers] == [near, far, near]
    assert_same(model(tokens[None])[0], model_oracle(model, tokens), tuple(model.parameters()))


def test_local_layers_store_no_square() -> None:
    model = make_model(layers=1, block=16)
    with MemoryMeter() as meter:
        model(torch.zeros(1, 512, dtype=torch.long)).sum().backward()
    assert meter.largest < 512 * 512 / 2
