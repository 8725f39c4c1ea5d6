"""TDMCA: which layers it takes turns with, and what they promise together."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph.nn import TDMCA, DecoderSelfAttention, MemoryCompressedAttention
from tests.inputs import random_padding_mask
from tests.nn.support import CHANNELS, HEADS, assert_leaks_nothing, features, split
from tests.oracles import (
    reference_attention,
    reference_compressed_memory,
    reference_compressed_visible,
)
from tests.support import MemoryMeter, assert_equal


def make(layers: int = 3, **options: int) -> TDMCA:
    torch.manual_seed(0)
    return TDMCA(CHANNELS, HEADS, layers, **{"block": 4, **options}).double()


def oracle(model: TDMCA, x: Tensor) -> Tensor:
    """Run the layers on one sequence, a slow loop each: [n, C]."""
    place = torch.arange(len(x))
    for number, layer in enumerate(model.layers):
        attention, tokens = layer.attention, layer.attention_norm(x)
        memory, visible = tokens, (place[:, None] // 4 == place // 4).tril()
        if number % 2 == 1:
            conv = attention.compress
            memory = reference_compressed_memory(tokens, conv.weight, conv.bias, 3)
            visible = reference_compressed_visible(len(x), 3, 3, True)
        heads = [reference_attention(*h, visible) for h in split(attention, tokens, memory)]
        x = x + attention.attn_out(torch.cat(heads, dim=-1))
        x = x + layer.feed_forward(x)
    return model.norm(x)


@given(st.sampled_from((1, 3, 4, 9, 13)), st.sampled_from(("right", "left", "scattered")))
def test_the_stack_follows_the_oracle(length: int, side: str) -> None:
    model, x = make(), features(2, length, seed=length).requires_grad_()
    mask = random_padding_mask(2, length, side=side, seed=length)
    want = torch.zeros_like(x)
    for b in range(2):
        want = want.index_put(
            (torch.tensor(b), mask[b].nonzero()[:, 0]), oracle(model, x[b, mask[b]])
        )
    got, cotangent = model(x, mask), features(2, length, seed=1)
    assert_equal(got, want)
    leaves = (x, *model.parameters())
    gradients = [torch.autograd.grad(out, leaves, cotangent) for out in (got, want)]
    for ours, theirs in zip(*gradients, strict=True):
        assert_equal(ours, theirs)


def test_layers_take_turns() -> None:
    kinds = [type(layer.attention) for layer in TDMCA(CHANNELS, HEADS).layers]
    near, far = DecoderSelfAttention, MemoryCompressedAttention
    assert kinds == [near, far, near, far, near]


def test_nothing_leaks_from_later_tokens() -> None:
    assert_leaks_nothing(make(), features(2, 11))


def test_far_tokens_are_read() -> None:
    """A stack of local layers alone would never leave its block."""
    model, x = make(layers=2), features(1, 11).requires_grad_()
    # One entry of the output: the sum of a normalised token is the same for every input.
    (grad,) = torch.autograd.grad(model(x)[0, -1, 0], x)
    assert (grad[0].abs().amax(-1) > 1e-6).all()


def test_local_layers_store_no_square() -> None:
    length = 512
    model = make(layers=1, block=16)
    with MemoryMeter() as meter:
        model(features(1, length)).sum().backward()
    assert meter.largest < length * length / 2


def test_padding_changes_nothing() -> None:
    model, x, cotangent = make(), features(2, 9), features(2, 9, seed=1)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 5:] = False
    results = []
    for tokens in (x, x.masked_fill(~mask.unsqueeze(-1), torch.nan)):
        out = model(tokens, mask)
        results.append((out, *torch.autograd.grad(out, model.parameters(), cotangent)))
    for clean, got in zip(*results, strict=True):
        assert torch.equal(clean, got)
    assert_close(results[0][0][1, :5], model(x[1:, :5])[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": 0}, "channels must be at least 1, got 0"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"block": 0}, "block"),
        ({"stride": 4}, "stride must be at most kernel_size=3"),
    ],
)
def test_bad_arguments(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TDMCA(**{"channels": CHANNELS, "heads": HEADS, **arguments})


@pytest.mark.parametrize(
    ("x", "mask", "message"),
    [
        (torch.zeros(2, 4, 11), None, r"x must be \[B, N, 12\] and not empty, got \[2, 4, 11\]"),
        (torch.zeros(2, 4, 12), torch.ones(2, 4), r"mask must be bool \[2, 4\]"),
        (torch.full((2, 4, 12), torch.nan), None, "x must be finite in valid tokens"),
    ],
)
def test_bad_input(x: Tensor, mask: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TDMCA(CHANNELS, HEADS)(x, mask)
