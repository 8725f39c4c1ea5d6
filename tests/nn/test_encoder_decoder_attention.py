"""Attention from a decoder to an encoder, against the oracle and torch's own."""

import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from jat_graph import JatConfig
from jat_graph.nn import EncoderDecoderAttention
from tests.nn.support import CHANNELS, HEADS, assert_same, features, padded_features, split
from tests.oracles import reference_attention


def cross(memory_channels: int = 5) -> EncoderDecoderAttention:
    torch.manual_seed(0)
    return EncoderDecoderAttention(CHANNELS, HEADS, memory_channels).double()


@given(case=padded_features(), other=padded_features())
def test_every_token_reads_the_valid_memory_whatever_padding_holds(case, other):
    batch = min(len(case[0]), len(other[0]))
    x, mask, memory, memory_mask = (None if t is None else t[:batch] for t in (*case, *other))
    memory = memory[..., :5]
    layer, leaves = cross(), [tensor.clone().requires_grad_() for tensor in (x, memory)]
    valid = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    seen = torch.ones(memory.shape[:2], dtype=torch.bool) if memory_mask is None else memory_mask
    rows = []
    for b in range(batch):
        visible = seen[b].expand(x.size(1), -1)
        heads = [reference_attention(*h, visible) for h in split(layer, leaves[0][b], leaves[1][b])]
        rows.append(layer.attn_out(torch.cat(heads, dim=-1)) * valid[b].unsqueeze(-1))
    spoilt = [
        leaf.masked_fill(~there.unsqueeze(-1), torch.nan)
        for leaf, there in zip(leaves, (valid, seen), strict=True)
    ]
    got = layer(*spoilt, mask, memory_mask)
    assert_same(got, torch.stack(rows), (*leaves, *layer.parameters()))


def test_a_memory_without_tokens_is_finite():
    layer = cross(CHANNELS)
    leaves = [features(2, 4).requires_grad_(), features(2, 6).requires_grad_()]
    out = layer(*leaves, None, torch.zeros(2, 6, dtype=torch.bool))
    assert_close(out, layer.attn_out.bias.expand(2, 4, -1))
    gradients = torch.autograd.grad(out.sum(), [*leaves, *layer.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


X = torch.zeros(2, 4, CHANNELS)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": X[..., 1:]},
        {"memory": X[:, :0]},
        {"memory": X[:1]},
        {"mask": torch.ones(2, 4)},
        {"memory_mask": torch.ones(2, 3).bool()},
        {"memory": X + torch.nan},
    ],
)
def test_bad_input_is_named(arguments):
    layer = EncoderDecoderAttention(CHANNELS, HEADS)
    with pytest.raises(ValueError, match=f"^{next(iter(arguments))} "):
        layer(**{"x": X, "memory": X, **arguments})


def test_jumps_are_refused_between_two_sequences():
    with pytest.raises(ValueError, match="JatConfig"):
        EncoderDecoderAttention(CHANNELS, HEADS, JatConfig.paper())
