"""Kinds and features of edges, in layers of PyG in heads, against the layers called by hand."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATv2Conv, GCNConv, RGATConv, RGCNConv, TransformerConv

from jat_graph import JatConfig, attach
from tests.hf.models import main_output, run, tiny_inputs, tiny_model

LENGTHS, HEADS, KINDS, FEATURES = (9, 5), (0, 2), 3, 4
QUERIES, KEYS = 0.5, 0.25  # strengths


class Own(nn.Module):
    """A layer of somebody's own, which takes all that edges have."""

    edge_dim = FEATURES

    def __init__(self, size: int) -> None:
        super().__init__()
        self.conv, self.gates = GCNConv(size, size), nn.Embedding(KINDS, FEATURES)

    def forward(self, x, edge_index, edge_weight, edge_type, edge_attr) -> Tensor:
        gate = (self.gates(edge_type) * edge_attr).sum(-1).sigmoid()
        return self.conv(x, edge_index, edge_weight * gate)


BOTH = ["edge_type", "edge_attr"]
LAYERS: dict[str, tuple[Any, list[str]]] = {  # and what each takes of edges
    "RGCNConv": (partial(RGCNConv, num_relations=KINDS), BOTH[:1]),
    "GATv2Conv": (partial(GATv2Conv, edge_dim=FEATURES), BOTH[1:]),
    "TransformerConv": (partial(TransformerConv, edge_dim=FEATURES), BOTH[1:]),
    "RGATConv": (partial(RGATConv, num_relations=KINDS, edge_dim=FEATURES), BOTH),
    "Own": (lambda size: Own(size), ["edge_weight", *BOTH]),
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


def with_layer(name: str) -> Any:
    config = JatConfig(heads=HEADS, strength=(QUERIES, KEYS, 0))
    return attach(tiny_model("bert", num_hidden_layers=1), config, conv=LAYERS[name][0]).double()


def by_hand(model: Any, ids: Tensor, graphs: list[Data], takes: list[str]) -> Tensor:
    """Return the states of a BERT of one layer, each head of each sequence on its own graph."""
    hidden, layer = model.embeddings(ids), model.encoder.layer[0]
    own = layer.attention.self
    cut = [part(hidden).unflatten(-1, (4, -1)) for part in (own.query, own.key, own.value)]
    context = torch.zeros_like(cut[0])
    for row, graph in enumerate(graphs):
        edges = {name: graph[name] for name in takes}
        for head in range(4):
            q, k, v = (x[row, : graph.num_nodes, head] for x in cut)
            if head in HEADS:
                conv = own.jump_conv.layers[0]
                q = q + QUERIES * (conv(q, graph.edge_index, **edges) - q)
                k = k + KEYS * (conv(k, graph.edge_index, **edges) - k)
            rows = (q @ k.T / q.size(-1) ** 0.5).softmax(-1)
            context[row, : graph.num_nodes, head] = rows @ v
    mixed = layer.attention.output(context.flatten(2), hidden)
    return layer.output(layer.intermediate(mixed), mixed)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("form", [list, Batch.from_data_list])
def test_a_layer_in_heads_is_the_layer_called_by_hand(name: str, form: Any) -> None:
    model, inputs = with_layer(name), tiny_inputs("bert", LENGTHS)
    graphs, valid = [graph_of(length) for length in LENGTHS], inputs["attention_mask"].bool()
    found = main_output(model(**inputs, graphs=form(graphs)))[valid]
    wanted = by_hand(model, inputs["input_ids"], graphs, LAYERS[name][1])[valid]
    assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    learned = {path: p for path, p in model.named_parameters() if "pooler" not in path}
    weights = torch.linspace(-1, 1, found.numel()).view_as(found)
    gradients = partial(torch.autograd.grad, inputs=list(learned.values()), materialize_grads=True)
    ours, theirs = (gradients((weights * x).sum()) for x in (found, wanted))
    for path, one, other in zip(learned, ours, theirs, strict=True):
        assert_close(one, other, rtol=1e-8, atol=1e-8, msg=path)
    assert any(x.any() for path, x in zip(learned, ours, strict=True) if ".jump_conv." in path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("RGCNConv", {"edge_type": None}, r"have edge_type \[E\] for RGCNConv, got none; jat_gr"),
        ("RGCNConv", {"edge_type": torch.full((27,), 3)}, r"edge_type must be in \[0, 3\), got 3"),
        ("RGCNConv", {"edge_type": torch.ones(27)}, r"edge_type must be integers \[27\]"),
        ("GATv2Conv", {"edge_attr": None}, r"edge_attr \[E, 4\] for GATv2Conv, got none"),
        ("GATv2Conv", {"edge_attr": torch.ones(27, 2)}, r"\[E, 4\] for GATv2Conv, got \[E, 2\]"),
        ("TransformerConv", {"edge_attr": torch.ones(5, 4)}, r"edge_attr must be \[27, F\]"),
    ],
)
def test_what_a_layer_lacks_is_said(name: str, change: Any, message: str) -> None:
    model, wrong = with_layer(name), graph_of(9, **change)
    with pytest.raises(ValueError, match=message):
        run(model, tiny_inputs("bert", (9,)), graphs=[wrong])
    if None in change.values():
        with pytest.raises(ValueError, match="in all of its graphs, or in none"):
            run(model, tiny_inputs("bert", LENGTHS), graphs=[wrong, graph_of(5)])


def test_features_that_nobody_takes_are_refused() -> None:
    model, graph = attach(tiny_model("bert"), JatConfig(strength=0.5)), graph_of(9)
    del graph["edge_weight"]
    for word_ids in (None, [list(range(9))]):
        with pytest.raises(ValueError, match=r"edge_attr must be \[27\] or \[27, 1\], got \[27, 4"):
            run(model, tiny_inputs("bert", (9,)), graphs=[graph], word_ids=word_ids)
