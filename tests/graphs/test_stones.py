import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import to_torch_csr_tensor

from jat_graph import JatConfig, jump_operator, stone_graph
from tests.inputs import random_heads
from tests.oracles import incidence, standard_scores
from tests.support import (
    CAUSAL_MASKS,
    PADDING_MASKS,
    assert_equal,
    heads_and_masks,
    needs_torch_sparse,
)

CONFIG = JatConfig.stones()


@st.composite
def stone_configs(draw, causal):
    settings = {
        "threshold": draw(st.sampled_from((0.0, 0.5, 1.0))),
        "incidence": draw(st.sampled_from(("excess", "hard", "sigmoid"))),
        "sides": draw(st.sampled_from(("both", "positive"))),
        "self_weight": draw(st.sampled_from((0.0, 0.1, 2.0))),
    }
    keys = ({}, {"key_selection": "strided", "key_step": 2})
    if not causal:
        keys += ({"key_selection": "significance", "num_keys": 3}, {"key_selection": "sampled"})
    return JatConfig.stones(**settings, **draw(st.sampled_from(keys)))


def links(graph):
    """B of one graph."""
    matrix = torch.zeros(graph.num_nodes, graph.num_stones, dtype=graph.hyperedge_weight.dtype)
    return matrix.index_put(tuple(graph.hyperedge_index), graph.hyperedge_weight)


def walk(graph, self_weight, causal=False):
    """P, from one graph alone, as the docstring of ``stone_graph`` says."""
    b = links(graph)
    sizes = b.cumsum(0) if causal else b.sum(0, keepdim=True)
    product = (b / sizes.where(sizes > 0, 1.0)) @ b.mT
    degree = b.sum(1, keepdim=True) + self_weight
    eye = torch.eye(len(b), dtype=b.dtype)
    product = (product.tril() if causal else product) + self_weight * eye
    return torch.where(degree > 0, product / degree.where(degree > 0, 1.0), eye)


# --- what a graph holds --------------------------------------------------------------------------


@pytest.mark.parametrize("masks", [PADDING_MASKS, CAUSAL_MASKS])
@given(data=st.data())
def test_a_graph_holds_all_that_its_walk_needs(masks, data):
    case = data.draw(heads_and_masks(masks))
    causal = masks == CAUSAL_MASKS
    config = data.draw(stone_configs(causal))
    operator = jump_operator(case.query, case.key, config=config, **case.options).to_dense()
    batch = stone_graph(case.query, case.key, config=config, **case.options)
    assert isinstance(batch, Batch)
    graphs = batch.to_data_list()
    heads = case.query.size(1)
    assert len(graphs) == len(case.query) * heads
    for number, graph in enumerate(graphs):
        b, h = divmod(number, heads)
        tokens = case.valid[b, h, :, 0].nonzero().squeeze(-1)
        assert (graph.sequence, graph.head, graph.num_nodes) == (b, h, len(tokens))
        assert torch.equal(graph.token, tokens)
        assert torch.isin(graph.stone, tokens).all()
        assert (links(graph) > 0).any(0).all()  # somebody stands on every stone
        wanted = operator[b, h][tokens][:, tokens]
        assert_equal(walk(graph, config.graph.self_weight, causal), wanted)


@given(sides=st.sampled_from(("both", "positive")), causal=st.booleans(), seed=st.integers(0, 999))
def test_stones_say_which_key_and_which_side(sides, causal, seed):
    query, key, _, _ = random_heads(2, 2, 9, 4, seed=seed)
    config = JatConfig.stones(sides=sides)
    scores = standard_scores(query, key, 0.5, causal=causal)
    wanted = incidence(
        scores, config.graph.threshold, sides=sides, causal=causal
    )  # [B, H, L, L or 2L]
    batch = stone_graph(query, key, config=config, is_causal=causal)
    for number, graph in enumerate(batch.to_data_list()):
        column = graph.stone + 9 * (graph.side == -1)
        b = wanted[divmod(number, 2)]
        assert torch.equal(column, b.any(0).nonzero().squeeze(-1))
        assert_equal(links(graph), b[:, column])
        assert set(graph.side.tolist()) <= ({1, -1} if sides == "both" else {1})


def test_graphs_can_be_stored_and_loaded_in_batches(tmp_path):
    query, key, _, _ = random_heads(1, 4, 8, 4)
    batch = stone_graph(query, key, config=CONFIG)
    graphs = pickle.loads(pickle.dumps(batch.to_data_list()))
    (again,) = DataLoader(graphs, batch_size=4)
    for name in ("hyperedge_index", "hyperedge_weight", "token", "stone", "side", "head"):
        assert torch.equal(again[name], batch[name]), name


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # that torch's CSR is in beta
@pytest.mark.parametrize("form", ["csr", pytest.param("torch_sparse", marks=needs_torch_sparse)])
def test_pyg_makes_a_sparse_matrix_of_a_batch_and_of_a_graph(form):
    make = to_torch_csr_tensor if form == "csr" else SparseTensor.from_edge_index
    query, key, _, _ = random_heads(2, 2, 9, 4)
    batch = stone_graph(query, key, config=CONFIG)
    for graph in (batch, batch[3]):
        edges = graph.hyperedge_index, graph.hyperedge_weight, (graph.num_nodes, graph.num_stones)
        assert torch.equal(make(*edges).to_dense(), links(graph))


# --- what it is good for -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["excess", "hard", "sigmoid"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_the_operator(kind, causal):
    config = JatConfig.stones(incidence=kind, threshold=0.5)
    query, key, value, _ = random_heads(1, 1, 9, 4)
    query.requires_grad_(), key.requires_grad_()
    options = {"config": config, "is_causal": causal}
    wanted = jump_operator(query, key, **options).matmul(value)
    (graph,) = stone_graph(query, key, **options).to_data_list()
    found = walk(graph, config.graph.self_weight, causal) @ value[0, 0]
    pairs = [torch.autograd.grad(x.square().sum(), (query, key)) for x in (found, wanted)]
    for got, want in zip(*pairs, strict=True):
        assert_equal(got, want)
        assert want.abs().max() > 1e-3


# --- edges of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [0, 1])
def test_graphs_without_a_link_are_empty(tokens):
    query, key, _, _ = random_heads(2, 2, 6, 4)
    mask = torch.arange(6) < torch.tensor([[6], [tokens]])
    batch = stone_graph(query, key, config=CONFIG, attention_mask=mask)
    graphs = batch.to_data_list()
    assert [graph.num_nodes for graph in graphs] == [6, 6, tokens, tokens]
    assert [graph.num_stones for graph in graphs[2:]] == [0, 0]
    assert graphs[0].num_stones > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": JatConfig()}, "graph must be 'stones' here, got 'pairs'; use attention_graph"),
        ({"config": None}, "config must be a JatConfig, got NoneType"),
        ({"key": torch.ones(1, 2, 5, 3)}, "key must be"),
        ({"scale": float("nan")}, "scale must be"),
        ({"excluded": torch.ones(1, 4, dtype=torch.bool)}, "excluded must be bool"),
        (
            {"attention_mask": torch.rand(1, 1, 5, 5) < 0.5},
            "standard scores need a mask of padding",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(change, message):
    query = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    arguments = {"query": query, "key": query, "config": CONFIG} | change
    with pytest.raises(ValueError, match=message) as error:
        stone_graph(**arguments)
    assert "\n" not in str(error.value)
