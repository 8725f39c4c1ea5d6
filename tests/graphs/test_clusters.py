import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import HypergraphConv, SAGEConv

from jat_graph import JatConfig, PairGraph, cluster_graph, clustered_attention, jump_attention
from jat_graph.graphs import stone_graph
from jat_graph.operators import DenseOperator
from tests.inputs import random_padding_mask
from tests.support import assert_equal, random_tensors

CONFIG = JatConfig.clustered(clusters=5, keys=3, block=4)


@st.composite
def cluster_configs(draw):
    return JatConfig.clustered(
        clusters=draw(st.sampled_from((None, 1, 4, 50))),
        keys=draw(st.sampled_from((0, 1, 3, 50))),
        block=draw(st.sampled_from((0, 1, 4, 50))),
    )


def heads(*shape, seed=0):
    """Queries and keys."""
    return random_tensors(seed, shape, shape)


def cluster_mean(graph):
    """P of one graph: every token takes the mean of its cluster."""
    joined = graph["joined"].edge_index[1]
    same = (joined[:, None] == joined).double()
    return same / same.sum(-1, keepdim=True)


# --- what a graph holds --------------------------------------------------------------------------


@given(
    config=cluster_configs(),
    length=st.sampled_from((1, 2, 9, 16)),
    side=st.sampled_from(("right", "left", "scattered")),
    seed=st.integers(0, 999),
)
def test_a_graph_says_who_joined_which_keys_are_best_and_what_is_read(config, length, side, seed):
    query, key = heads(2, 2, length, 4, seed=seed)
    mask = random_padding_mask(2, length, side=side, seed=seed)
    batch = cluster_graph(query, key, config=config, attention_mask=mask, scale=0.7)
    assert isinstance(batch, Batch)
    graphs, rule = batch.to_data_list(), config.graph
    assert [(graph.sequence.item(), graph.head.item()) for graph in graphs] == [
        (0, 0), (0, 1), (1, 0), (1, 1)
    ]  # fmt: skip
    for graph in graphs:
        assert graph.validate()
        tokens = mask[graph.sequence].nonzero()[:, -1]
        assert torch.equal(graph["token"].position, tokens)
        n, m = graph["token"].num_nodes, graph["cluster"].num_nodes
        assert (n, m) == (len(tokens), len(graph["cluster"].query))
        q, k = (x[graph.sequence, graph.head].squeeze(0)[tokens] for x in (query, key))
        k = k - k.mean(0)
        assert_equal(graph["token"].key, k)
        # Every token joined one cluster, and nobody's cluster is empty.
        joined = graph["token", "joined", "cluster"]
        assert torch.equal(joined.edge_index[0], torch.arange(n))
        assert torch.equal(joined.edge_index[1].unique(), torch.arange(m))
        centres = graph["cluster"].query / 0.7
        assert_equal(centres[joined.edge_index[1]], cluster_mean(graph) @ q)
        # Its best keys are those that its row of scores is highest at.
        rows = graph["cluster"].query @ k.T
        best, number = graph["cluster", "best", "token"], min(rule.keys, n)
        assert best.num_edges == m * number
        named = torch.zeros(m, n, dtype=torch.bool)
        named[tuple(best.edge_index)] = True
        assert_equal(best.score, rows[tuple(best.edge_index)])
        assert (named.sum(-1) == number).all()
        assert (rows.masked_fill(~named, torch.inf).amin(-1) >= rows.masked_fill(
            named, -torch.inf).amax(-1)).all()  # fmt: skip
        # And a token reads these, and the blocks around it.
        place = torch.arange(n) // max(rule.block, 1)
        near = ((place[:, None] - place).abs() <= 1) & (rule.block > 0)
        read = graph["token", "read_by", "token"]
        pairs = torch.zeros(n, n, dtype=torch.bool)
        pairs[tuple(read.edge_index.flip(0))] = True
        assert torch.equal(pairs, near | named[joined.edge_index[1]])
        assert read.num_edges == pairs.sum()
        assert_equal(read.score, 0.7 * (q @ k.T)[tuple(read.edge_index.flip(0))])


def test_likeness_is_the_cosine_of_rows_of_scores():
    query, key = heads(1, 1, 30, 6)
    graph = cluster_graph(query, key, config=CONFIG)[0]
    likeness, (_, joined) = graph["joined"].likeness, graph["joined"].edge_index
    rows = query[0, 0] @ graph["token"].key.T
    of_cluster = (graph["cluster"].query @ graph["token"].key.T)[joined]
    own, other = rows - rows.mean(0), of_cluster * 6**0.5 - rows.mean(0)
    assert_equal(likeness, torch.cosine_similarity(own, other, dim=-1))
    assert likeness.mean() > 0.5


def test_a_token_joins_the_likest_of_evenly_spread_landmarks():
    query, key = heads(1, 1, 30, 6)
    graph = cluster_graph(query, key, config=CONFIG)[0]
    centred, keys = query[0, 0] - query[0, 0].mean(0), graph["token"].key
    rows, landmarks = centred @ keys.T, torch.arange(5) * 29 // 4
    cosine = torch.cosine_similarity(rows[:, None], rows[landmarks], dim=-1)
    assert torch.equal(graph["joined"].edge_index[1], cosine.argmax(-1))


def test_a_batch_numbers_tokens_and_clusters_on(device):
    query, key = (x.to(device) for x in heads(2, 3, 9, 4))
    mask = torch.tensor([[True] * 9, [False] * 3 + [True] * 6], device=device)
    batch = cluster_graph(query, key, config=CONFIG, attention_mask=mask)
    assert batch.sequence.tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.head.tolist() == [0, 1, 2] * 2
    assert batch["token"].position.tolist() == list(range(9)) * 3 + [3, 4, 5, 6, 7, 8] * 3
    size = torch.tensor([[0], [0]], device=device)
    for kind, ends in (("joined", ("token", "cluster")), ("best", ("cluster", "token"))):
        whole, offset = batch[kind].edge_index, size.clone()
        for graph in batch.to_data_list():
            own = graph[kind].edge_index
            assert torch.equal(whole[:, : own.size(1)], own + offset)
            whole = whole[:, own.size(1) :]
            offset += torch.tensor([[graph[end].num_nodes] for end in ends], device=device)
        assert whole.size(1) == 0
    assert batch["read_by"].score.device.type == device.type


def test_each_document_of_a_packed_row_is_a_sequence_of_its_own():
    query, key = heads(2, 2, 12, 4)
    document = torch.tensor([[0] * 5 + [1] * 7, [3] * 12])
    mask = (document[:, None, :, None] == document[:, None, None]).expand(2, 1, 12, 12)
    batch = cluster_graph(query, key, config=CONFIG, attention_mask=mask)
    assert batch.sequence.tolist() == [0, 0, 0, 0, 1, 1]
    assert batch.head.tolist() == [0, 1] * 3
    alone = cluster_graph(query[:1, :, 5:], key[:1, :, 5:], config=CONFIG)
    for head in (0, 1):
        own, wanted = batch[2 + head], alone[head]
        assert own["token"].position.tolist() == list(range(5, 12))
        assert torch.equal(own["read_by"].edge_index, wanted["read_by"].edge_index)
        assert_equal(own["read_by"].score, wanted["read_by"].score)


def test_a_table_of_settings_has_an_entry_for_each_head():
    query, key = heads(1, 3, 20, 4)
    config = CONFIG.replace(clusters=[[2, 5, 5]], keys=[[1, 0, 4]])
    batch = cluster_graph(query, key, config=config)
    assert [graph["best"].num_edges for graph in batch.to_data_list()] == [2, 0, 20]
    with pytest.raises(ValueError, match="clusters") as error:
        cluster_graph(query[:, :2], key[:, :2], config=config)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("tokens", [0, 1])
def test_graphs_of_hardly_a_token(tokens):
    query, key = heads(2, 2, 6, 4)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[1, tokens:] = False
    graphs = cluster_graph(query, key, config=CONFIG, attention_mask=mask).to_data_list()
    assert [graph["token"].num_nodes for graph in graphs] == [6, 6, tokens, tokens]
    assert [graph["read_by"].num_edges for graph in graphs[2:]] == [tokens] * 2


def test_graphs_can_be_stored_and_loaded_in_batches():
    query, key = heads(1, 4, 8, 4)
    batch = cluster_graph(query, key, config=CONFIG)
    graphs = pickle.loads(pickle.dumps(batch.to_data_list()))
    (again,) = DataLoader(graphs, batch_size=4)
    assert torch.equal(again.head.flatten(), batch.head.flatten())
    for kind in ("joined", "best", "read_by"):
        assert torch.equal(again[kind].edge_index, batch[kind].edge_index), kind


# --- what it is good for -------------------------------------------------------------------------


def propagated_operator(batch, shape):
    """P of all heads of sequences without padding, as an operator."""
    matrix = torch.stack([cluster_mean(graph) for graph in batch.to_data_list()])
    return DenseOperator(matrix.view(*shape[:3], shape[2]))


@given(seed=st.integers(0, 999))
def test_the_mean_over_clusters_is_pygs_hypergraph_convolution(seed):
    query, key, value = random_tensors(seed, *[(2, 2, 9, 4)] * 3)
    batch = cluster_graph(query, key, config=CONFIG)
    conv = HypergraphConv(4, 4, bias=False).double()
    torch.nn.init.eye_(conv.lin.weight)
    value.requires_grad_()
    found = conv(value.flatten(0, 2), batch["joined"].edge_index).view_as(value)
    wanted = propagated_operator(batch, value.shape).matmul(value)
    assert_equal(found, wanted)
    of_query = conv(query.flatten(0, 2), batch["joined"].edge_index) / 4**0.5  # the scale is 1/√D
    assert_equal(of_query, batch["cluster"].query[batch["joined"].edge_index[1]])
    grads = [torch.autograd.grad(x.square().sum(), value)[0] for x in (found, wanted)]
    assert_equal(*grads)


def test_any_layer_runs_on_the_pairs_that_are_read():
    query, key = heads(1, 2, 9, 4)
    batch = cluster_graph(query, key, config=CONFIG)
    edges, layer = batch["token", "read_by", "token"].edge_index, SAGEConv(4, 3)
    x = torch.randn(18, 4)
    changed = x.clone()
    changed[8] += 1
    with torch.no_grad():
        moved = (layer(changed, edges) - layer(x, edges)).abs().sum(-1).nonzero().flatten()
    readers = edges[1, edges[0] == 8]
    assert set(moved.tolist()) == {8, *readers.tolist()}
    assert 0 < len(readers) < 9
    assert int(moved.max()) < 9  # those of the first head alone


def test_the_propagated_row_is_a_jump_of_the_queries_alone():
    query, key, value = random_tensors(1, *[(2, 2, 13, 4)] * 3)
    config = JatConfig.clustered(clusters=4, keys=0, block=0)
    batch = cluster_graph(query, key, config=config)
    one_side = JatConfig(PairGraph(), heads="all", strength=(1.0, 0.0, 0.0))
    operator = propagated_operator(batch, query.shape)
    for x in (query, key, value):
        x.requires_grad_()
    jumped = jump_attention(query, key, value, config=one_side, graph=operator)
    settings = {"clusters": 4, "keys": 0, "block": 0, "dense_below": 0}
    found = clustered_attention(query, key, value, **settings)
    assert_equal(found, jumped)
    (cotangent,) = random_tensors(2, found.shape)
    pairs = [
        torch.autograd.grad((x * cotangent).sum(), (query, key, value)) for x in (found, jumped)
    ]
    for got, want in zip(*pairs, strict=True):
        assert_equal(got, want)
        assert want.abs().max() > 1e-3


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": JatConfig()}, "graph must be 'clusters' here, got 'pairs'; use attention_grap"),
        (
            {"config": JatConfig.stones()},
            "graph must be 'clusters' here, got 'stones'; use stone_graph",
        ),
        ({"config": None}, "config must be a JatConfig, got NoneType"),
        ({"key": torch.ones(1, 2, 5, 3)}, "key must be"),
        ({"scale": float("nan")}, "scale must be"),
        (
            {"attention_mask": torch.rand(1, 1, 5, 5) < 0.5},
            "attention_mask must be padding or documents",
        ),
        ({"attention_mask": torch.randn(1, 5)}, "attention_mask must be padding or documents"),
    ],
)
def test_bad_input_is_refused_in_one_line(change, message):
    query = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    arguments = {"query": query, "key": query, "config": CONFIG} | change
    with pytest.raises(ValueError, match=message) as error:
        cluster_graph(**arguments)
    assert "\n" not in str(error.value)


def test_other_graphs_refuse_clusters_and_name_the_way():
    query, key = heads(1, 2, 5, 4)
    with pytest.raises(ValueError, match=r"got 'clusters'; use jat_graph\.cluster_graph") as error:
        stone_graph(query, key, config=CONFIG)
    assert "\n" not in str(error.value)


def test_a_head_is_a_graph_of_pyg():
    query, key = heads(1, 1, 9, 4)
    graph = cluster_graph(query, key, config=CONFIG)[0]
    assert isinstance(graph, HeteroData)
    assert graph.node_types == ["token", "cluster"]
    assert graph.to_homogeneous().num_nodes == 9 + graph["cluster"].num_nodes
