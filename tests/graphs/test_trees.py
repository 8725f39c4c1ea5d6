"""Trees over keys as graphs: each token reads all that it may read, each key once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.utils import softmax

from jat_graph import JatConfig, attention_graph, tree_graph
from tests.inputs import random_padding_mask
from tests.support import assert_equal, random_tensors

INSIDE = {kind: (kind, "in", "cluster") for kind in ("token", "cluster")}
READ = {kind: (kind, "read_by", "token") for kind in ("token", "cluster")}
OPENED = ("cluster", "opened_by", "token")
SETTINGS = {"keys": 4, "groups": 1, "size": 2, "segment": 8, "window": 4}
CONFIG = JatConfig.clustered(**SETTINGS)


CASES = st.fixed_dictionaries(
    {
        "keys": st.sampled_from((1, 4, 50)),
        "groups": st.sampled_from((1, 2, 50)),
        "size": st.sampled_from((1, 2, 4)),
        "segment": st.sampled_from((4, 8)),
        "window": st.sampled_from((1, 6)),
        "causal": st.booleans(),
        "length": st.sampled_from((1, 4, 13, 40, 90)),
        "side": st.sampled_from(("right", "left", "scattered")),
        "seed": st.integers(0, 999),
    }
)


def made(length, side, seed, causal, **settings):
    """Yield the graphs of two heads of two padded sequences, with their queries and keys."""
    query, key = heads(2, length, seed)
    mask = random_padding_mask(2, length, side=side, seed=seed)
    config = JatConfig.clustered(**settings)
    options = {"attention_mask": mask, "is_causal": causal, "scale": 0.7}
    batch = tree_graph(query, key, config=config, **options)
    for number, graph in enumerate(batch.to_data_list()):
        assert (graph.sequence.item(), graph.head.item()) == divmod(number, 2)
        position = mask[number // 2].nonzero()[:, -1]
        assert torch.equal(graph["token"].position, position)
        yield graph, query[number // 2, number % 2, position], key[number // 2, 0, position]


def heads(batch=1, length=90, seed=0):
    """Queries of two heads, which share one of keys."""
    return random_tensors(seed, (batch, 2, length, 4), (batch, 1, length, 4))


def table(graph, kind):
    """Return which sources have an edge to each target, as integers."""
    found = torch.zeros(graph[kind[2]].num_nodes, graph[kind[0]].num_nodes, dtype=torch.long)
    found[tuple(graph[kind].edge_index.flip(0))] = 1
    return found


def keys_below(graph):
    """Return which keys each node has, [m, n]."""
    found, children = table(graph, INSIDE["token"]), table(graph, INSIDE["cluster"])
    for level in graph["cluster"].level.unique()[1:]:
        own = graph["cluster"].level == level
        found[own] = children[own] @ found
    return found


# --- what a graph holds --------------------------------------------------------------------------


@given(CASES)
def test_nodes_are_means_of_their_keys(case):
    for graph, _, key in made(**case):
        assert graph.validate()
        nodes, below = graph["cluster"], keys_below(graph)
        assert_equal(graph["token"].key, key)
        assert torch.equal(below.sum(1), nodes.size)
        assert bool((nodes.size > 0).all())
        assert_equal(nodes.key, below.to(key) @ key / nodes.size.unsqueeze(1))
        child, parent = graph[INSIDE["cluster"]].edge_index
        assert torch.equal(nodes.level[parent], nodes.level[child] + 1)
        assert len(child) == len(child.unique())


@given(CASES)
def test_each_key_is_read_once_exactly_or_in_a_node_and_no_later_one_is_in_order(case):
    for graph, *_ in made(**case):
        exact, means = (table(graph, kind) for kind in READ.values())
        seen = torch.ones_like(exact)
        seen = seen.tril() if case["causal"] else seen
        assert torch.equal(exact + means @ keys_below(graph), seen)


@given(CASES)
def test_scores_are_those_of_keys_and_means_and_weights_their_softmax(case):
    for graph, query, _ in made(**case):
        for kind in (*READ.values(), OPENED):
            (source, target), nodes = graph[kind].edge_index, graph[kind[0]]
            size = nodes.size[source] if kind[0] == "cluster" else torch.ones(len(source))
            score = 0.7 * (query[target] * nodes.key[source]).sum(-1) + size.to(query).log()
            assert_equal(graph[kind].score, score)
        both = [graph[kind] for kind in READ.values()]
        score, weight = (torch.cat([own[name] for own in both]) for name in ("score", "weight"))
        assert_equal(weight, softmax(score, torch.cat([own.edge_index[1] for own in both])))


@given(CASES)
def test_what_is_opened_is_read_below_and_scores_best(case):
    for graph, query, key in made(**case):
        nodes, exact = graph["cluster"], table(graph, READ["token"])
        opened, means = table(graph, OPENED), table(graph, READ["cluster"])
        child, parent = graph[INSIDE["cluster"]].edge_index
        assert bool(((opened + means)[:, child] >= opened[:, parent]).all())
        whole = exact @ keys_below(graph).T == nodes.size
        assert bool(whole[(opened > 0) & (nodes.level == 0)].all())
        score = torch.zeros(opened.shape, dtype=torch.double)
        for kind in (OPENED, READ["cluster"]):
            score[tuple(graph[kind].edge_index.flip(0))] = graph[kind].score
        away = (key - nodes.key.unsqueeze(1)).square().sum(-1) * keys_below(graph)
        score += 1.4 * query.norm(dim=1, keepdim=True) * (away.sum(1) / nodes.size).sqrt()
        for level in nodes.level.unique():
            own = nodes.level == level
            most = case["groups"] if level else -(-case["keys"] // case["size"])
            assert opened[:, own].sum(1).max() <= most
            worst = score.masked_fill(opened == 0, torch.inf)[:, own].amin(1)
            assert bool((worst >= score.masked_fill(means == 0, -torch.inf)[:, own].amax(1)).all())


def test_a_deep_tree_is_descended_level_by_level():
    query, key = heads(length=1200)
    config = JatConfig.clustered(keys=4, groups=1, size=2, segment=128, window=5)
    graph = tree_graph(query, key, config=config, is_causal=True)[0]
    assert graph["cluster"].level.unique().tolist() == [0, 1, 2, 3]
    node, token = graph[OPENED].edge_index
    assert graph["cluster"].level[node[token == 1199]].tolist() == [0, 0, 1, 2, 3]


def test_one_token_reads_alone_what_it_reads_among_others():
    query, key = heads()
    for causal, length, place in ((True, 71, 70), (False, 90, 89)):
        options = {"config": CONFIG, "is_causal": causal}
        whole = tree_graph(query, key, **options)[1]
        alone = tree_graph(query[:, :, 70:71], key[:, :, :length], **options)[1]
        assert alone["token"].num_nodes == length
        for kind in READ.values():
            own = whole[kind].edge_index[1] == 70
            assert alone[kind].edge_index[1].unique().tolist() == [place]
            assert_equal(alone[kind].weight, whole[kind].weight[own])
        exact = [own[READ["token"]].edge_index for own in (whole, alone)]
        assert torch.equal(exact[1][0], exact[0][0, exact[0][1] == 70])


def test_each_document_of_a_packed_row_is_a_sequence_of_its_own():
    query, key = heads()
    document = torch.tensor([[0] * 30 + [1] * 60])
    mask = (document[:, None, :, None] == document[:, None, None]).tril()
    batch = tree_graph(query, key, config=CONFIG, attention_mask=mask, is_causal=True)
    assert batch.head.tolist() == [0, 1] * 2
    alone = tree_graph(query[:, :, 30:], key[:, :, 30:], config=CONFIG, is_causal=True)
    assert batch[3]["token"].position.tolist() == list(range(30, 90))
    for kind in READ.values():
        assert torch.equal(batch[3][kind].edge_index, alone[1][kind].edge_index)
        assert torch.equal(batch[3][kind].weight, alone[1][kind].weight)


# --- what it is good for -------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_the_attention_graph_of_clusters(causal):
    query, key = heads()
    found = attention_graph(query, key, config=CONFIG, is_causal=causal)
    wanted = tree_graph(query, key, config=CONFIG, is_causal=causal)
    for kind in READ.values():
        assert torch.equal(found[kind].weight, wanted[kind].weight)
    for more in ({"max_neighbors": 2}, {"kind": "scores"}, {"key": None}):
        with pytest.raises(ValueError, match="clusters need query and key, and are not pruned"):
            attention_graph(**{"query": query, "key": key, "config": CONFIG} | more)


def test_layers_of_pyg_run_on_texts_of_any_length():
    kinds = [*INSIDE.values(), *READ.values()]
    layer = HeteroConv({kind: SAGEConv((4, 4), 3).double() for kind in kinds})
    for length in (3, 600):
        batch = tree_graph(*heads(length=length), config=CONFIG)
        assert {*batch.edge_types} == {*kinds, OPENED}
        found = layer(batch.collect("key"), batch.edge_index_dict)
        assert found["token"].shape == (2 * length, 3)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": JatConfig()}, "graph must be 'clusters' here, got 'pairs'"),
        ({"config": None}, "config must be a JatConfig, got NoneType"),
        ({"is_causal": 1}, "is_causal must be True or False, got 1"),
        ({"query": torch.ones(1, 2, 6, 4)}, "key must be"),
        ({"query": torch.ones(1, 3, 5, 4)}, "query must have a multiple of 2 heads like key"),
        ({"key": torch.ones(5, 4)}, "key must be"),
        ({"scale": float("nan")}, "scale must be"),
        ({"attention_mask": torch.randn(1, 5)}, "attention_mask must be padding or documents"),
    ],
)
def test_bad_input_is_refused_in_one_line(change, message):
    heads = torch.ones(1, 2, 5, 4)
    with pytest.raises(ValueError, match=message) as error:
        tree_graph(**{"query": heads, "key": heads, "config": CONFIG} | change)
    assert "\n" not in str(error.value)
