"""Layers along one graph, asked what PyG's users ask of GCNConv."""

import re

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.nn import GCNConv, HeteroConv, to_hetero

from jat_graph.nn import JumpConv, StoneConv

LAYERS = [JumpConv, StoneConv]
EDGES = torch.tensor([[0, 1, 1, 3, 2], [1, 2, 0, 0, 0]])
WEIGHT = torch.tensor([0.25, 1.0, 0.5, 0.75, 0.1])
TO, FRO = ("a", "to", "b"), ("b", "fro", "a")


class Net(nn.Module):
    """A model of one layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.layer(x, edge_index)
        return out


@pytest.mark.parametrize("make", LAYERS)
def test_edges_between_kinds_of_nodes_are_refused_in_the_words_of_pyg(make):
    x = torch.randn(4, 3)
    with pytest.raises(ValueError, match="received a tuple") as theirs:
        GCNConv(3, 2)((x, x), EDGES)
    words = re.escape(str(theirs.value).replace("GCNConv", make.__name__, 1))
    nodes, edges = {kind: x for kind in "ab"}, {TO: EDGES, FRO: EDGES}
    for net, given in (
        (make(3, 2), ([x, x], EDGES)),
        (to_hetero(Net(make(3, 2)), (["a", "b"], [TO, FRO])), (nodes, edges)),
        (HeteroConv({TO: make(3, 2), FRO: make(3, 2)}), (nodes, edges)),
    ):
        with pytest.raises(ValueError, match=words):
            net(*given)


@pytest.mark.parametrize("make", LAYERS)
def test_kinds_of_edges_between_nodes_of_one_kind_add_up(make):
    torch.manual_seed(0)
    kinds = ("a", "likes", "a"), ("a", "cites", "a")
    net = to_hetero(Net(make(3, 2)), (["a"], list(kinds)))
    x, edges = torch.randn(4, 3), dict(zip(kinds, (EDGES, EDGES[:, :2]), strict=True))
    apart = [net.layer["__".join(kind)](x, edges[kind]) for kind in kinds]
    assert not torch.allclose(*apart)
    assert_close(net({"a": x}, edges)["a"], sum(apart))


@pytest.mark.parametrize("make", LAYERS)
def test_weights_may_be_a_column(make):
    x, layer = torch.randn(4, 3), make(3, 2)
    column = WEIGHT.unsqueeze(-1).requires_grad_()
    flat = WEIGHT.clone().requires_grad_()
    out = layer(x, EDGES, column)
    assert_close(out, layer(x, EDGES, flat), rtol=0, atol=0)
    assert not torch.allclose(out, layer(x, EDGES))
    out.square().sum().backward()
    layer(x, EDGES, flat).square().sum().backward()
    assert_close(column.grad, flat.grad.unsqueeze(-1), rtol=0, atol=0)
    none = torch.empty(2, 0, dtype=torch.long)
    assert_close(layer(x, none, torch.empty(0, 1)), layer(x, none), rtol=0, atol=0)


@pytest.mark.parametrize("make", LAYERS)
def test_other_shapes_of_weights_are_refused(make):
    for shape in ((5, 2), (1, 5), (5, 1, 1), ()):
        with pytest.raises(ValueError, match="_weight must be"):
            make(3, 2)(torch.randn(4, 3), EDGES, torch.ones(shape))


@pytest.mark.slow
@pytest.mark.parametrize("make", LAYERS)
def test_scripting_is_refused_and_what_to_take_instead_works(make):
    said = f"^'{make.__name__}' does not support torch.jit.script; use torch.compile$"
    layer, x = make(3, 2), torch.randn(4, 3)
    for module in (layer, Net(layer), nn.Sequential(Net(layer))):
        with pytest.raises(NotImplementedError, match=said):
            torch.jit.script(module)
    for weight in (WEIGHT, WEIGHT.unsqueeze(-1)):
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        assert_close(compiled(x, EDGES, weight), layer(x, EDGES, weight))
