"""Kinds and features of edges, in layers of PyG in heads, against the layers called by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.nn import (
    FiLMConv,
    GATv2Conv,
    GCNConv,
    RGATConv,
    RGCNConv,
    Sequential,
    TransformerConv,
)
from transformers import AutoModel

from jat_graph import JatConfig, PairGraph, attach, from_pretrained, using_graphs
from tests.hf.models import main_output, run, tiny_inputs, tiny_model

LENGTHS = (9, 5)
KINDS, FEATURES = 3, 4
QUERIES, KEYS = 0.5, 0.25  # strengths


class Own(nn.Module):
    """A layer of somebody's own, which takes all that edges have."""

    num_relations, edge_dim = KINDS, FEATURES

    def __init__(self, size: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(size, size) for _ in range(KINDS))
        self.gate = nn.Linear(FEATURES, 1)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_type: Any, edge_attr: Any
    ) -> Tensor:
        weight = edge_weight * self.gate(edge_attr)[:, 0].sigmoid()
        parts = ((edge_type == k, conv) for k, conv in enumerate(self.convs))
        return sum(conv(x, edge_index[:, own], weight[own]) for own, conv in parts)


def sequential(size: int) -> nn.Module:
    conv = RGCNConv(size, size, KINDS)
    return Sequential("x, edge_index, edge_type", [(conv, "x, edge_index, edge_type -> x")])


# Layers, and what each takes of edges.
LAYERS = {
    "RGCNConv": (partial(RGCNConv, num_relations=KINDS), ["edge_type"]),
    "FiLMConv": (partial(FiLMConv, num_relations=KINDS), ["edge_type"]),
    "GATv2Conv": (partial(GATv2Conv, edge_dim=FEATURES), ["edge_attr"]),
    "TransformerConv": (partial(TransformerConv, edge_dim=FEATURES), ["edge_attr"]),
    "RGATConv": (
        partial(RGATConv, num_relations=KINDS, edge_dim=FEATURES),
        ["edge_type", "edge_attr"],
    ),
    "Sequential": (sequential, ["edge_type"]),
    "Own": (lambda size: Own(size), ["edge_weight", "edge_type", "edge_attr"]),
}


def graph_of(nodes: int, **dropped: None) -> Data:
    """Return a random graph, in which two tokens may be joined more than once."""
    draw = torch.Generator().manual_seed(nodes)
    source = torch.randint(nodes, (3 * nodes,), generator=draw)
    target = (source + torch.randint(1, nodes, source.shape, generator=draw)) % nodes
    number = len(source)
    made: dict[str, Any] = {
        "edge_index": torch.stack([source, target]),
        "edge_weight": torch.rand(number, generator=draw),
        "edge_type": torch.randint(KINDS, (number,), generator=draw),
        "edge_attr": torch.randn(number, FEATURES, generator=draw),
    }
    return Data(num_nodes=nodes, **made | dropped)


def with_layer(conv: Any, name: str = "bert", **settings: Any) -> Any:
    config = JatConfig(heads=(0, 2), strength=(QUERIES, KEYS, 0))
    model = tiny_model(name, num_hidden_layers=1, **settings)
    return attach(model, config, conv=conv).double()


def by_hand(model: Any, inputs: dict[str, Tensor], graphs: list[Data], takes: list[str]) -> Tensor:
    """Return the states of a BERT of one layer, each head of each sequence on its own graph."""
    hidden = model.embeddings(inputs["input_ids"])
    layer, heads = model.encoder.layer[0], model.config.num_attention_heads
    own = layer.attention.self
    cut = [
        part(hidden).unflatten(-1, (heads, -1)).transpose(1, 2)
        for part in (own.query, own.key, own.value)
    ]
    context = torch.zeros_like(cut[0])
    for row, graph in enumerate(graphs):
        edges = {
            name: graph[name].double() if graph[name].is_floating_point() else graph[name]
            for name in takes
        }
        for head in range(heads):
            q, k, v = (x[row, head, : graph.num_nodes] for x in cut)
            if head in (0, 2):
                conv = own.jump_conv.layers[0]
                q = q + QUERIES * (conv(q, graph.edge_index, **edges) - q)
                k = k + KEYS * (conv(k, graph.edge_index, **edges) - k)
            rows = (q @ k.T / q.size(-1) ** 0.5).softmax(-1)
            context[row, head, : graph.num_nodes] = rows @ v
    context = context.transpose(1, 2).flatten(2)
    mixed = layer.attention.output(context, hidden)
    return layer.output(layer.intermediate(mixed), mixed)


def valid(states: Tensor) -> Tensor:
    return torch.cat([row[:length] for row, length in zip(states, LENGTHS, strict=True)])


def gradients(model: nn.Module, states: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    draw = torch.Generator().manual_seed(5)
    (torch.randn(states.shape, generator=draw, dtype=states.dtype) * states).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("as_batch", [False, True])
def test_a_layer_in_heads_is_the_layer_called_by_hand(name: str, as_batch: bool) -> None:
    conv, takes = LAYERS[name]
    model, inputs = with_layer(conv), tiny_inputs("bert", LENGTHS)
    graphs = [graph_of(length) for length in LENGTHS]
    with using_graphs(model, Batch.from_data_list(graphs) if as_batch else graphs):
        found = valid(main_output(model(**inputs)))
    wanted = valid(by_hand(model, inputs, graphs, takes))
    assert_close(found, wanted, rtol=1e-9, atol=1e-9)
    ours, theirs = gradients(model, found), gradients(model, wanted)
    assert ours.keys() == theirs.keys()
    assert any(".jump_conv." in path for path in ours)
    for path, gradient in theirs.items():
        assert_close(ours[path], gradient, rtol=1e-8, atol=1e-8, msg=path)


def test_kinds_and_features_change_what_heads_read_and_padding_does_not() -> None:
    model, inputs = with_layer(LAYERS["RGATConv"][0]), tiny_inputs("bert", LENGTHS)
    graphs = [graph_of(length) for length in LENGTHS]
    with using_graphs(model, graphs):
        states = run(model, inputs)
    with using_graphs(model, graphs[1:]):
        alone = run(model, {name: x[1:, :5] for name, x in inputs.items()})
    assert_close(alone[0], states[1, :5])
    for change in ("edge_type", "edge_attr"):
        other = [graph.clone() for graph in graphs]
        other[0][change] = other[0][change].flip(0)
        with using_graphs(model, other):
            changed = run(model, inputs)
        assert not torch.allclose(changed[0], states[0], atol=1e-6)
        assert_close(changed[1, :5], states[1, :5])


def test_words_hand_what_their_edges_have_to_their_tokens() -> None:
    model, inputs = with_layer(LAYERS["Own"][0]), tiny_inputs("bert", (6,))
    edges = torch.tensor([[0, 2], [1, 0]])  # word 0 to word 1, word 2 to word 0
    attr = torch.randn(2, FEATURES)
    kinds = torch.tensor([1, 2])
    words = Data(edge_index=edges, num_nodes=3, edge_type=kinds, edge_attr=attr)
    words.edge_weight = torch.ones(2)
    which = [0, 0, 1, 1]
    tokens = Data(
        edge_index=torch.tensor([[1, 2, 4, 4], [3, 3, 1, 2]]),
        edge_weight=torch.tensor([0.5, 0.5, 1.0, 1.0]),
        edge_type=kinds[which],
        edge_attr=attr[which],
        num_nodes=6,
    )
    with using_graphs(model, [words], word_ids=[[None, 0, 0, 1, 2, None]]):
        found = run(model, inputs)
    with using_graphs(model, [tokens]):
        assert_close(run(model, inputs), found)


def test_layers_with_kinds_are_saved_and_loaded(tmp_path: Any) -> None:
    model, inputs = with_layer(LAYERS["RGCNConv"][0]), tiny_inputs("bert", LENGTHS)
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(AutoModel, tmp_path).double().eval()
    graphs = [graph_of(length) for length in LENGTHS]
    with using_graphs(model, graphs), using_graphs(loaded, graphs):
        assert_close(run(loaded, inputs), run(model, inputs))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("RGCNConv", {"edge_type": None}, r"must have edge_type \[E\] for RGCNConv, got none"),
        ("RGCNConv", {"edge_type": torch.full((27,), 3)}, r"edge_type must be in \[0, 3\), got 3"),
        ("RGCNConv", {"edge_type": torch.ones(27)}, r"edge_type must be integers \[27\]"),
        ("GATv2Conv", {"edge_attr": None}, r"edge_attr \[E, 4\] for GATv2Conv, got none"),
        ("GATv2Conv", {"edge_attr": torch.ones(27, 2)}, r"edge_attr \[E, 4\] for GATv2Conv, got"),
        ("TransformerConv", {"edge_attr": torch.ones(5, 4)}, r"edge_attr must be \[27, F\]"),
    ],
)
def test_what_a_layer_lacks_is_said(name: str, changes: Any, message: str) -> None:
    model, inputs = with_layer(LAYERS[name][0]), tiny_inputs("bert", (9,))
    with using_graphs(model, [graph_of(9, **changes)]), pytest.raises(ValueError, match=message):
        run(model, inputs)


def test_the_heads_own_graph_has_no_kinds_but_one() -> None:
    inputs = tiny_inputs("bert", LENGTHS)
    own = PairGraph(standardize=True, threshold=1.0)
    for number in (1, KINDS):
        conv = partial(RGCNConv, num_relations=number)
        model = attach(tiny_model("bert"), JatConfig(own, strength=0.5), conv=conv)
        if number == 1:
            run(model, inputs)
            continue
        with pytest.raises(ValueError, match=r"edge_type .* got none; jat_graph\.using"):
            run(model, inputs)


def test_one_graph_without_kinds_among_others_raises() -> None:
    model, inputs = with_layer(LAYERS["RGCNConv"][0]), tiny_inputs("bert", LENGTHS)
    graphs = [graph_of(LENGTHS[0]), graph_of(LENGTHS[1], edge_type=None)]
    with using_graphs(model, graphs), pytest.raises(ValueError, match="edge_type in all of its"):
        run(model, inputs)


def test_features_that_nobody_takes_are_refused() -> None:
    model, inputs = attach(tiny_model("bert"), JatConfig(strength=0.5)), tiny_inputs("bert", (9,))
    graph = graph_of(9, edge_weight=None)
    for word_ids in (None, [list(range(9))]):
        with pytest.raises(ValueError, match=r"edge_attr must be \[27\] or \[27, 1\], got \[27, 4"):
            with using_graphs(model, [graph], word_ids=word_ids):
                run(model, inputs)
