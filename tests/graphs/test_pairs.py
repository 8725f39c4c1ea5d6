import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import contains_self_loops

from jat_graph import JatConfig, PairGraph, attention_graph
from jat_graph.nn import JumpConv
from tests.inputs import random_heads, random_padding_mask
from tests.oracles import reference_prune, reference_scores
from tests.support import (
    CAUSAL_MASKS,
    PADDING_MASKS,
    PAIR_MASKS,
    assert_equal,
    configs,
    heads_and_masks,
    oracle_graph,
    with_half_joined,
)


def dense(graph):
    """Return A of one graph: rows are targets."""
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=graph.edge_weight.dtype)
    source, target = graph.edge_index
    matrix[target, source] = graph.edge_weight
    return matrix


# --- what a graph holds --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("masks", [PADDING_MASKS, CAUSAL_MASKS, PAIR_MASKS])
@given(data=st.data())
def test_a_graph_is_its_operators_matrix_between_valid_tokens(masks, data):
    case = data.draw(heads_and_masks(masks))
    config = data.draw(configs("auto", masks, case.query.size(1)))
    config = with_half_joined(config, case)
    batch = attention_graph(case.query, case.key, config=config, **case.options)
    assert isinstance(batch, Batch)
    adjacency = oracle_graph(config, case).adjacency
    heads = case.query.size(1)
    graphs = batch.to_data_list()
    assert len(graphs) == adjacency.size(0) * heads
    for number, graph in enumerate(graphs):
        b, h = divmod(number, heads)
        tokens = case.valid[b, h, :, 0].nonzero().squeeze(-1)
        assert (graph.sequence, graph.head) == (b, h)
        assert torch.equal(graph.token, tokens)
        assert graph.num_nodes == len(tokens)
        assert (graph.dropped_edges, graph.dropped_weight) == (0, 0)
        assert not contains_self_loops(graph.edge_index)
        wanted = adjacency[b, h][tokens][:, tokens]
        assert_equal(dense(graph), wanted)
        assert graph.num_edges == int(wanted.count_nonzero())


def test_a_batch_stands_on_its_device_and_may_have_graphs_without_a_pair(device):
    query, key, _, _ = random_heads(3, 2, 6, 4, device=device)
    valid = torch.tensor([6, 1, 0], device=device).unsqueeze(1)
    mask = torch.arange(6, device=device) < valid
    batch = attention_graph(query, key, config=JatConfig(), attention_mask=mask)
    assert batch.num_graphs == 6
    assert batch.token.tolist() == list(range(6)) * 2 + [0] * 2
    assert batch.edge_index.device.type == device.type
    assert batch.edge_weight.dtype == torch.float64
    assert [graph.num_edges > 0 for graph in batch.to_data_list()] == [True] * 2 + [False] * 4


def test_soft_votes_join_every_pair_and_carry_gradients():
    query, key, _, _ = random_heads(1, 2, 6, 4)
    query.requires_grad_()
    batch = attention_graph(query, key, config=JatConfig(PairGraph(soft_temperature=1.0)))
    assert batch.num_edges == 2 * 6 * 5
    (grad,) = torch.autograd.grad(batch.edge_weight.sum(), query)
    assert grad.abs().max() > 0


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # that torch's CSR is in beta
@pytest.mark.parametrize("layout", [None, torch.sparse_csr])
def test_pyg_makes_a_sparse_matrix_of_a_batch_and_of_a_graph(layout):
    query, key, _, _ = random_heads(2, 2, 9, 4)
    batch = attention_graph(query, key, config=JatConfig(), max_neighbors=2)
    transform = ToSparseTensor(attr="edge_weight", layout=layout)
    for graph in (batch, batch[3]):
        adj_t = transform(graph).adj_t
        assert isinstance(adj_t, SparseTensor if layout is None and WITH_TORCH_SPARSE else Tensor)
        assert torch.equal(adj_t.to_dense(), dense(graph))
        x = torch.randn(graph.num_nodes, 3, dtype=torch.float64)
        assert_equal(JumpConv(3)(x, adj_t), JumpConv(3)(x, graph.edge_index, graph.edge_weight))


# --- maps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("selection", ["all", "significance", "sampled", "strided"])
@pytest.mark.parametrize("variants", [{}, {"same_sign_only": True, "nodes": "selected"}])
def test_scores_give_the_graph_of_their_queries_and_keys(selection, variants):
    query, key, _, density = random_heads(2, 2, 12, 8)
    assert 0.1 <= density <= 0.9
    mask = random_padding_mask(2, 12, side="left", min_valid=6)
    config = JatConfig.paper(key_selection=selection, key_factor=2.0, **variants)
    options = {"config": config, "attention_mask": mask}
    scores = reference_scores(query, key).masked_fill(~mask[:, None, None], -math.inf)
    batch = attention_graph(query, key, **options)
    other = attention_graph(scores=scores, kind="scores", **options)
    assert batch.num_edges > 10
    assert torch.equal(batch.edge_index, other.edge_index)
    assert_equal(batch.edge_weight, other.edge_weight)


def test_a_causal_map_may_hold_anything_above_the_diagonal():
    query, key, _, _ = random_heads(1, 2, 9, 4, is_causal=True)
    scores = reference_scores(query, key)
    later = torch.ones(9, 9).triu(1).bool()
    options = {"config": JatConfig(), "is_causal": True}
    batch = attention_graph(query, key, **options)
    for garbage in (-math.inf, math.nan, 1e9):
        filled = scores.masked_fill(later, garbage)
        other = attention_graph(scores=filled, kind="scores", **options)
        assert torch.equal(batch.edge_index, other.edge_index)


@pytest.mark.parametrize("settings", [{"threshold": 0.01}, {"vote_rate": 0.1}])
def test_probabilities_vote_by_their_products(settings):
    query, key, _, _ = random_heads(1, 2, 10, 4)
    probabilities = reference_scores(query, key).softmax(-1)
    config = JatConfig.paper(**settings)
    batch = attention_graph(scores=probabilities, kind="probabilities", config=config)
    joined = batch.num_edges / (2 * 10 * 9)
    assert 0.1 <= joined <= 0.9
    if config.graph.vote_rate is None:
        products = probabilities[:, :, :, None] * probabilities[:, :, None]
        share = (products > 0.01).double().mean(-1)
        for number in (0, 1):
            wanted = share[0, number].fill_diagonal_(0.0)
            assert_equal(dense(batch[number]), wanted)


# --- pruning -------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**20),
    max_neighbors=st.sampled_from((None, 1, 2, 4, 99)),
    causal=st.booleans(),
)
def test_pruning_keeps_the_heaviest_and_says_what_it_dropped(seed, max_neighbors, causal):
    query, key, _, density = random_heads(2, 2, 9, 4, density=0.8, is_causal=causal, seed=seed)
    assert 0.1 <= density <= 0.9
    mask = random_padding_mask(2, 9, side="left", min_valid=5, seed=seed)
    # Few keys vote, so that many weights are tied.
    selection = {} if causal else {"key_selection": "strided", "num_keys": 4}
    options = {"config": JatConfig.paper(**selection), "attention_mask": mask, "is_causal": causal}
    whole = attention_graph(query, key, **options)
    pruned = attention_graph(query, key, max_neighbors=max_neighbors, **options)
    for before, after in zip(whole.to_data_list(), pruned.to_data_list(), strict=True):
        wanted = reference_prune(dense(before), max_neighbors)
        assert torch.equal(dense(after), wanted)
        assert before.num_edges == after.num_edges + after.dropped_edges
        dropped = before.edge_weight.sum() - after.edge_weight.sum()
        assert math.isclose(dropped, after.dropped_weight, abs_tol=1e-6)
        if not causal:
            assert torch.equal(wanted, wanted.T)


# --- bad input -----------------------------------------------------------------------------------

QUERY, KEY, _, _ = random_heads(1, 2, 4, 4)
SCORES = reference_scores(QUERY, KEY)
HEADS = {"query": QUERY, "key": KEY}
MAP = {"scores": SCORES, "kind": "scores"}
ROWS = {"scores": SCORES.softmax(-1), "kind": "probabilities"}


def of_graph(**settings):
    return {"config": JatConfig(PairGraph(**settings))}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs query and key, or scores"),
        ({"query": QUERY}, "needs query and key, or scores"),
        (HEADS | {"key": KEY[:, :, :3]}, "key"),
        (HEADS | {"kind": "scores"}, "kind"),
        (HEADS | {"query": QUERY * math.nan}, "query"),
        (HEADS | {"scale": math.inf}, "scale"),
        (HEADS | {"config": "paper"}, "config"),
        (MAP | {"query": QUERY}, "with scores"),
        ({"scores": SCORES}, "kind"),
        (MAP | {"kind": "map"}, "kind"),
        (MAP | {"scale": 1.0}, "scale"),
        (MAP | {"scores": SCORES[0]}, "scores"),
        (MAP | {"scores": SCORES[:, :, :3]}, "scores"),
        (MAP | {"scores": SCORES[..., :0, :0]}, "scores"),
        (MAP | {"scores": SCORES.long()}, "scores"),
        (MAP | {"scores": SCORES * math.nan}, "scores"),
        (ROWS, "threshold"),
        (ROWS | {"scores": SCORES} | of_graph(threshold=0.1), "probabilities"),
        (ROWS | of_graph(threshold=((0.5, 1.0),)), "threshold"),
        (MAP | of_graph(normalize_keys=True), "normalize_keys"),
        (HEADS | {"max_neighbors": 0}, "max_neighbors"),
        (HEADS | {"max_neighbors": 2.5}, "max_neighbors"),
        (HEADS | {"attention_mask": torch.ones(1, 5).bool()}, "attention_mask"),
        (HEADS | of_graph(key_selection="significance") | {"is_causal": True}, "later tokens"),
    ],
)
def test_bad_input_gives_one_clear_line(arguments, words):
    with pytest.raises(ValueError, match=words) as caught:
        attention_graph(**{"config": JatConfig(), **arguments})
    assert "\n" not in str(caught.value)
