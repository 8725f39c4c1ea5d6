"""Layers whose heads read by clusters."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torch_geometric.nn import GCNConv

from jat_graph import JatConfig, clustered_attention
from jat_graph.nn import JumpSelfAttention

SETTINGS: dict[str, Any] = {"keys": 2, "size": 2, "segment": 4, "dense_below": 0}
NODES, CHANNELS, HEADS = 24, 16, 4


def layer(**overrides: Any) -> JumpSelfAttention:
    torch.manual_seed(0)
    made = JumpSelfAttention(CHANNELS, HEADS, JatConfig.clustered(**SETTINGS | overrides))
    with torch.no_grad():
        made.q.weight.mul_(6)
        made.k.weight.mul_(6)
    return made.double()


def test_heads_read_as_the_function_does_and_others_as_sdpa():
    made, x = layer(heads=(0, 2)), torch.randn(2, NODES, CHANNELS, dtype=torch.float64)
    mask = torch.arange(NODES) < torch.tensor([[NODES], [15]])
    parts = made.project(x * mask.unsqueeze(-1), x * mask.unsqueeze(-1))
    read = clustered_attention(*parts, attention_mask=mask, **SETTINGS)
    keys = mask[:, None, None, :]
    dense = torch.nn.functional.scaled_dot_product_attention(*parts, keys)
    assert not torch.allclose(read, dense, atol=1e-3)
    together = torch.stack([read[:, 0], dense[:, 1], read[:, 2], dense[:, 3]], dim=1)
    assert_close(made(x, mask), made.merge(together, mask), rtol=0, atol=1e-12)
    assert "jump_heads=(0, 2)" in repr(made)
    assert not any("strength" in key for key in made.state_dict())


def test_graphs_of_a_batch_are_sequences_of_their_own():
    made, sizes = layer(), (14, 24, 9)
    x = torch.randn(sum(sizes), CHANNELS, dtype=torch.float64, requires_grad=True)
    batch = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    got = made(x, batch=batch)
    for graph, nodes in enumerate(x.split(sizes)):
        assert_close(got[batch == graph], made(nodes), rtol=0, atol=1e-10)
    got.square().sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all())
    assert made.q.weight.grad is not None and bool(made.q.weight.grad.any())


def test_in_causal_order_no_later_node_counts():
    rule: dict[str, Any] = {"keys": 2, "groups": 1, "size": 2, "segment": 4, "window": 2}
    config = JatConfig.clustered(heads=(0, 2), dense_below=0, **rule)
    made = JumpSelfAttention(CHANNELS, HEADS, config, is_causal=True).double()
    x = torch.randn(2, NODES, CHANNELS, dtype=torch.float64)
    other = torch.cat([x[:, :15], torch.randn_like(x[:, 15:])], dim=1)
    assert_close(made(x)[:, :15], made(other)[:, :15], rtol=0, atol=1e-12)
    dense = JumpSelfAttention(CHANNELS, HEADS, None, is_causal=True).double()
    dense.load_state_dict(made.state_dict())
    assert_close(made(x)[:, :9], dense(x)[:, :9], rtol=0, atol=1e-12)
    assert not torch.allclose(made(x)[:, 20:], dense(x)[:, 20:], atol=1e-4)


def test_layers_of_pyg_are_refused():
    with pytest.raises(ValueError, match="conv must not be set with graph='clusters'"):
        JumpSelfAttention(CHANNELS, HEADS, JatConfig.clustered(), conv=GCNConv)
