"""Kinds and features of edges, in layers of PyG in heads, against the layers called by hand."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.nn import (
    GATv2Conv,
    GCNConv,
    GENConv,
    GeneralConv,
    GINEConv,
    RGATConv,
    RGCNConv,
    TransformerConv,
)

from jat_graph import JatConfig, attach
from tests.hf.models import main_output, run, tiny_inputs, tiny_model

LENGTHS, HEADS, KINDS, FEATURES = (9, 5), (0, 2), 3, 4


class Own(GCNConv):
    """A layer of somebody's own, which takes all that edges have."""

    edge_dim = FEATURES

    def forward(self, x, edge_index, edge_weight, edge_type, edge_attr) -> Tensor:
        weight = edge_weight * (edge_type + edge_attr.sigmoid().sum(-1))
        return super().forward(x, edge_index, weight)


class ByName(Own):
    """The same, which takes it by name alone."""

    def forward(self, x, edge_index, *, edge_weight, edge_type=None, edge_attr=None) -> Tensor:
        return super().forward(x, edge_index, edge_weight, edge_type, edge_attr)


class WeightsByName(GCNConv):
    def forward(self, x, edge_index, *, edge_weight=None) -> Tensor:
        return super().forward(x, edge_index, edge_weight)


LAYERS: dict[str, tuple[Any, list[str]]] = {  # and what each takes of edges
    "RGCNConv": (partial(RGCNConv, num_relations=KINDS), ["edge_type"]),
    "GATv2Conv": (partial(GATv2Conv, edge_dim=FEATURES), ["edge_attr"]),
    "TransformerConv": (partial(TransformerConv, edge_dim=FEATURES), ["edge_attr"]),
    "RGATConv": (partial(RGATConv, num_relations=KINDS, edge_dim=4), ["edge_type", "edge_attr"]),
    "GENConv": (partial(GENConv, edge_dim=FEATURES, norm="layer"), ["edge_attr"]),
    "GeneralConv": (partial(GeneralConv, in_edge_channels=FEATURES), ["edge_attr"]),
    "GINEConv": (lambda x, _: GINEConv(nn.Linear(x, x), edge_dim=FEATURES), ["edge_attr"]),
    "Own": (Own, ["edge_weight", "edge_type", "edge_attr"]),
    "by name": (ByName, ["edge_weight", "edge_type", "edge_attr"]),
    "weights by name": (WeightsByName, ["edge_weight"]),
}


def graph_of(nodes: int, **other: Any) -> Data:
    """Return a random graph, in which two tokens may be joined more than once."""
    draw = torch.Generator().manual_seed(nodes)
    source = torch.randint(nodes, (3 * nodes,), generator=draw)
    target = (source + torch.randint(1, nodes, source.shape, generator=draw)) % nodes
    made: dict[str, Any] = {
        "edge_weight": torch.rand(3 * nodes, generator=draw).double(),
        "edge_type": torch.randint(KINDS, (3 * nodes,), generator=draw),
        "edge_attr": torch.randn(3 * nodes, FEATURES, generator=draw).double(),
    }
    return Data(edge_index=torch.stack([source, target]), num_nodes=nodes, **made | other)


def with_layer(conv: Any) -> Any:
    model = tiny_model("bert", num_hidden_layers=2)
    return attach(model, JatConfig(heads=HEADS, strength=0.5), conv=conv).double()


class ByHand(nn.Module):
    """A layer that is called for each head of each sequence on its own graph, which it knows."""

    def __init__(self, conv: nn.Module, graphs: list[Data], takes: list[str]) -> None:
        super().__init__()
        self.conv, self.takes, self.of_heads = conv, takes, [g for g in graphs for _ in HEADS]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if len(x) == 2:  # it is tried on
            return x
        parts = x.split([graph.num_nodes for graph in self.of_heads])
        edges = [(g.edge_index, {n: g[n] for n in self.takes}) for g in self.of_heads]
        alone = [self.conv(y, e, **more) for y, (e, more) in zip(parts, edges, strict=True)]
        return torch.cat(alone)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("form", [list, Batch.from_data_list])
def test_a_layer_in_heads_is_the_layer_called_by_hand(name, form):
    graphs, (conv, takes) = [graph_of(length) for length in LENGTHS], LAYERS[name]
    inputs, found = tiny_inputs("bert", LENGTHS), []
    for layer in (lambda x: conv(x, x), lambda x: ByHand(conv(x, x), graphs, takes)):
        model = with_layer(layer)
        states = main_output(model(**inputs, graphs=form(graphs)))
        states[inputs["attention_mask"].bool()].sin().square().sum().backward()
        grads = {n.replace(".conv.", "."): p.grad for n, p in model.named_parameters()}
        found.append((states, grads))
    assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)
    assert any(".jump_conv." in n and g is not None and g.any() for n, g in found[0][1].items())


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("RGCNConv", {"edge_type": None}, r"have edge_type \[E\] for RGCNConv, got none; jat_gr"),
        ("RGCNConv", {"edge_type": torch.full((27,), 3)}, r"edge_type must be in \[0, 3\), got 3"),
        ("GATv2Conv", {"edge_attr": None}, r"edge_attr \[E, 4\] for GATv2Conv, got none"),
        ("GATv2Conv", {"edge_attr": torch.ones(27, 2)}, r"\[E, 4\] for GATv2Conv, got \[E, 2\]"),
        ("GATv2Conv", {"edge_attr": torch.ones(27, 4, 2)}, r"GATv2Conv, got \[E, 4, 2\]"),
    ],
)
def test_what_a_layer_lacks_is_said(name, change, message):
    model, wrong = with_layer(LAYERS[name][0]), graph_of(9, **change)
    with pytest.raises(ValueError, match=message):
        run(model, tiny_inputs("bert", (9,)), graphs=[wrong])
    if None in change.values():
        with pytest.raises(ValueError, match="in all of its graphs, or in none"):
            run(model, tiny_inputs("bert", LENGTHS), graphs=[wrong, graph_of(5)])


def test_weights_come_by_position_beside_features():
    class Beside(Own):
        def forward(self, x, edge_index, weight, *, edge_attr) -> Tensor:
            return super().forward(x, edge_index, weight, 0, edge_attr)

    given, inputs = [graph_of(9, edge_type=torch.zeros(27).long())], tiny_inputs("bert", (9,))
    models = (with_layer(lambda x, kind=kind: kind(x, x)) for kind in (Beside, Own))
    assert_close(*(run(model, inputs, graphs=given) for model in models))


def test_features_that_nobody_takes_are_refused():
    model, graphs = attach(tiny_model("bert"), JatConfig()), [graph_of(9, edge_weight=None)]
    with pytest.raises(ValueError, match=r"edge_attr must be \[27\] or \[27, 1\], got \[27, 4"):
        run(model, tiny_inputs("bert", (9,)), graphs=graphs, word_ids=[list(range(9))])
