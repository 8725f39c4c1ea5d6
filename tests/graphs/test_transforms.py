"""AttentionToGraph against attention_graph, alone and in PyG's pipelines."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import AddSelfLoops, Compose

from jat_graph import JatConfig, PairGraph, attention_graph
from jat_graph.nn import JumpConv
from jat_graph.transforms import AttentionToGraph
from tests.inputs import random_heads

PAPER = JatConfig.paper()


def _data(length: int = 10, heads: int = 3, seed: int = 0) -> Data:
    """Return queries and keys of which about half of the pairs are joined, and an x and a y."""
    drawn = random_heads(1, heads, length, 8, seed=seed)
    assert 0.1 <= drawn.density <= 0.9
    query, key = (tensor[0].transpose(0, 1) for tensor in (drawn.query, drawn.key))  # [N, H, D]
    return Data(x=torch.randn(length, 4), y=torch.tensor([seed]), query=query, key=key)


def _scores(data: Data) -> Tensor:
    return torch.einsum("ihd,khd->hik", data.query, data.key) * data.query.size(-1) ** -0.5


def _assert_same_graph(got: Data, wanted: Data) -> None:
    assert got.num_nodes == wanted.num_nodes
    assert torch.equal(got.edge_index, wanted.edge_index)
    assert_close(got.edge_weight, wanted.edge_weight, rtol=1e-12, atol=1e-12)
    assert 0 < got.num_edges < got.num_nodes * (got.num_nodes - 1)


@pytest.mark.parametrize("head", [0, 2])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.4, "max_neighbors": 3}])
def test_the_head_of_queries_and_keys(head, options):
    data = _data()
    query, key = (tensor.transpose(0, 1)[None] for tensor in (data.query, data.key))
    wanted = attention_graph(query, key, config=PAPER, **options)[head]
    result = AttentionToGraph(PAPER, head=head, **options)(data)
    _assert_same_graph(result, wanted)
    assert (result.dropped_edges > 0) == ("max_neighbors" in options)
    assert result.dropped_edges == wanted.dropped_edges
    assert_close(result.dropped_weight, float(wanted.dropped_weight))


def test_maps_of_scores_and_of_probabilities():
    data = _data()
    transform = AttentionToGraph(PAPER, head=1)
    _assert_same_graph(transform(Data(scores=_scores(data))), transform(data))
    probabilities = _scores(data).softmax(-1)
    config = JatConfig(PairGraph(vote_rate=0.05))
    graphs = attention_graph(scores=probabilities[None], kind="probabilities", config=config)
    result = AttentionToGraph(config, head=2)(Data(probabilities=probabilities))
    _assert_same_graph(result, graphs[2])


def test_each_head_has_its_own_threshold():
    data = _data()
    table = JatConfig(PairGraph(threshold=((6.0, float("inf"), 2.0),)))
    assert AttentionToGraph(table, head=1)(data).num_edges == 0
    two = AttentionToGraph(JatConfig(PairGraph(threshold=2.0)), head=2)(data)
    _assert_same_graph(AttentionToGraph(table, head=2)(data), two)
    with pytest.raises(ValueError, match=r"row 0 must have 3 entries, .* got 2"):
        AttentionToGraph(JatConfig(PairGraph(threshold=((6.0, 2.0),))))(data)


def test_all_else_stays_and_the_input_is_not_changed():
    data = _data()
    data.edge_index = torch.tensor([[0, 1], [1, 0]])
    data.edge_attr = torch.ones(2, 5)
    names = set(data.keys())
    result = AttentionToGraph(PAPER)(data)
    assert set(data.keys()) == names and data.edge_index.shape == (2, 2)
    assert result.x is data.x and result.y is data.y
    assert set(result.keys()) == {
        *("x", "y", "num_nodes", "edge_index", "edge_weight", "dropped_edges", "dropped_weight")
    }


def test_nodes_without_an_edge_stay():
    data = _data()
    del data.x
    result = AttentionToGraph(JatConfig(PairGraph(threshold=float("inf"))))(data)
    assert result.num_nodes == 10 and result.num_edges == 0


def test_in_a_pipeline_and_a_layer():
    pipeline = Compose([AttentionToGraph(PAPER), AddSelfLoops(attr="edge_weight")])
    data = pipeline(_data())
    assert data.has_self_loops()
    x = data.x.double()
    gcn = GCNConv(4, 2, add_self_loops=False, bias=False).double()
    jump = JumpConv(4, 2, bias=False).double()
    jump.lins[0].weight = gcn.lin.weight
    wanted = gcn(x, data.edge_index, data.edge_weight)
    assert_close(jump(x, data.edge_index, data.edge_weight), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": None}, "data must hold query and key, .* got key"),
        ({"query": None, "key": None}, "got none of them"),
        ({"scores": torch.zeros(3, 10, 10)}, "got query and key and scores"),
        ({"query": torch.zeros(10, 8)}, r"query must be \[N, H, D\], got \[10, 8\]"),
        ({"key": torch.zeros(10, 2, 8)}, r"key must be \[10, 3, 8\] like query"),
        ({"x": torch.zeros(9, 4)}, "data must have 10 nodes like its attention, got 9"),
        ({"x": None, "num_nodes": 12}, "data must have 10 nodes like its attention, got 12"),
        ({"query": torch.full((10, 3, 8), torch.nan).double()}, "query must be finite"),
    ],
)
def test_data_that_does_not_fit(changes, message):
    data = _data()
    for name, value in changes.items():
        data[name] = value
    with pytest.raises(ValueError, match=message):
        AttentionToGraph(PAPER)(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Data(scores=torch.zeros(4, 4)), r"scores must be \[H, N, N\], got \[4, 4\]"),
        (Data(scores=torch.zeros(2, 4, 5)), r"scores must be \[B, H, L, L\], got"),
        (Data(probabilities=torch.zeros(2, 4, 4)), r"threshold must be in \[0, 1\)"),
        (Batch.from_data_list([_data()]), "data must be the Data of one graph, got DataBatch"),
        (HeteroData(), "data must be the Data of one graph, got HeteroData"),
    ],
)
def test_other_data(data, message):
    with pytest.raises(ValueError, match=message):
        AttentionToGraph(PAPER)(data)


def test_bad_arguments():
    with pytest.raises(ValueError, match="head must be below the 3 heads of query, got 3"):
        AttentionToGraph(PAPER, head=3)(_data())
    with pytest.raises(ValueError, match="head must be at least 0, got -1"):
        AttentionToGraph(PAPER, head=-1)
    with pytest.raises(ValueError, match="config must be a JatConfig, got float"):
        AttentionToGraph(6.0)
    with pytest.raises(ValueError, match="scale must be None with scores"):
        AttentionToGraph(PAPER, scale=0.5)(Data(scores=torch.zeros(2, 4, 4)))
