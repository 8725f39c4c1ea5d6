"""Graphs from outside in the place of the heads' own."""

import pytest
import torch
import torch_geometric.transforms as T
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import to_torch_csr_tensor

from jat_graph import JatConfig, PairGraph, attention_graph, jump_attention, jump_operator
from tests.oracles import masked_softmax
from tests.support import needs_torch_sparse

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 7, 4
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
CONFIG = JatConfig(PairGraph(threshold=0.05))


def heads(seed: int = 0, length: int = LENGTH):
    generator = torch.Generator().manual_seed(seed)
    shape = 3, BATCH, HEADS, length, WIDTH
    return torch.randn(shape, generator=generator).double().requires_grad_().unbind(0)


def random_graph(seed: int, nodes: int, causal: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.rand(nodes, nodes, generator=generator).double()
    matrix = matrix * (matrix > 0.5) * (1 - torch.eye(nodes))
    matrix = matrix.tril() if causal else matrix
    target, source = matrix.nonzero(as_tuple=True)
    return torch.stack([source, target]), matrix[target, source]


def dense(edges: torch.Tensor, weight: torch.Tensor, nodes: int) -> torch.Tensor:
    matrix = torch.zeros(nodes, nodes, dtype=weight.dtype)
    matrix[edges[1], edges[0]] = weight
    return matrix


def slow(query, key, value, graph, allowed=None):
    """Return attention by Eq. 4, 7 and 9 with A ``[B|1, H|1, L, L]`` as it is given."""
    loops = graph + torch.eye(graph.size(-1))
    scale = loops.sum(-1).rsqrt()
    norm = scale.unsqueeze(-1) * loops * scale.unsqueeze(-2)
    scores = (norm @ query) @ (norm @ key).mT / WIDTH**0.5
    allowed = torch.ones_like(scores, dtype=torch.bool) if allowed is None else allowed
    return masked_softmax(scores, allowed.expand_as(scores)) @ value


# torch says once that its CSR tensors are in beta, and once that it does not check their indices.
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("extra", [False, pytest.param(True, marks=needs_torch_sparse)])
@given(st.integers(0, 2**20), st.booleans())
def test_every_form_of_one_graph_gives_the_same(extra: bool, seed: int, causal: bool) -> None:
    query, key, value = heads(seed)
    edges, weight = random_graph(seed, LENGTH, causal)
    matrix = dense(edges, weight, LENGTH)
    allowed = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril() if causal else None
    wanted = slow(query, key, value, matrix, allowed)

    def gradients(output):
        return torch.autograd.grad(output.square().sum(), (query, key, value), retain_graph=True)

    number = torch.arange(BATCH).view(-1, 1, 1) * LENGTH
    of_all = (edges + number).transpose(0, 1).flatten(1)
    graphs = [
        [Data(edge_index=edges.short(), edge_weight=weight, num_nodes=LENGTH)] * BATCH,
        Batch.from_data_list([Data(edge_index=edges, edge_attr=weight, num_nodes=LENGTH)] * BATCH),
        Batch.from_data_list(
            [Data(edge_index=edges, edge_attr=weight[:, None], num_nodes=LENGTH)] * BATCH
        ),
        (of_all, weight.repeat(BATCH)),
        to_torch_csr_tensor(edges.flip(0), weight, (LENGTH, LENGTH)),
        matrix.to_sparse(),
        torch.block_diag(*[matrix] * (BATCH * HEADS)).to_sparse_csr(),
    ]
    if extra:
        graph = Data(edge_index=edges, edge_weight=weight, num_nodes=LENGTH)
        graphs = [
            SparseTensor.from_dense(torch.block_diag(*[matrix] * BATCH)),
            [T.ToSparseTensor()(graph)] * BATCH,
        ]
    for graph in graphs:
        out = jump_attention(query, key, value, config=CONFIG, graph=graph, is_causal=causal)
        assert_close(out, wanted, **CLOSE)
        assert_close(gradients(out), gradients(wanted), **CLOSE)


@pytest.mark.parametrize("strength", [None, (0.3, 0.4, 0.5)])
@given(st.integers(0, 2**20), st.sampled_from(("none", "causal", "padding")))
def test_the_heads_own_graph_closes_the_loop(strength, seed: int, kind: str) -> None:
    query, key, value = heads(seed)
    mask = torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(seed)) < 0.7
    mask[:, 0] = True
    options = {
        "config": JatConfig(PairGraph(threshold=0.05), strength=strength),
        "is_causal": kind == "causal",
        "attention_mask": mask if kind == "padding" else None,
    }
    wanted = jump_attention(query, key, value, **options)
    graph = attention_graph(query, key, **options)
    assert_close(jump_attention(query, key, value, graph=graph, **options), wanted, **CLOSE)
    operator = jump_operator(query, key, **options)
    assert_close(jump_attention(query, key, value, graph=operator, **options), wanted, **CLOSE)


def test_a_graph_can_be_pruned_and_transformed() -> None:
    query, key, value = heads()
    graph = attention_graph(query, key, config=CONFIG)
    one_way = graph.clone()
    one_way.edge_index = graph.edge_index[:, ::3]
    one_way.edge_weight = graph.edge_weight[::3]
    assert not torch.allclose(
        jump_attention(query, key, value, config=CONFIG, graph=one_way),
        jump_attention(query, key, value, config=CONFIG, graph=graph),
    )
    undirected = Batch.from_data_list([T.ToUndirected()(g) for g in graph.to_data_list()])
    looped = Batch.from_data_list(
        [T.AddSelfLoops(attr="edge_weight")(g) for g in undirected.to_data_list()]
    )
    assert_close(  # loops do not count: Â has its own
        jump_attention(query, key, value, config=CONFIG, graph=looped),
        jump_attention(query, key, value, config=CONFIG, graph=undirected),
        **CLOSE,
    )


def edge(source: int, target: int, **options):
    index = torch.tensor([[source], [target]])
    return [Data(edge_index=index, num_nodes=options.pop("nodes", LENGTH), **options)] * BATCH


OTHER = jump_operator(*(x[:1] for x in heads()[:2]), config=CONFIG)


@pytest.mark.parametrize(
    ("graph", "options", "said"),
    [
        (edge(5, 2), {"is_causal": True}, "edges to the future, got 5 → 2 in sequence 0"),
        (edge(6, 2), {"attention_mask": "padding"}, "must have its 6 tokens as nodes"),
        (torch.tensor([[6], [2]]), {"attention_mask": "padding"}, "edges of padding, got 6 → 2"),
        (edge(5, 2), {"attention_mask": "pairs"}, "that the attention mask forbids, got 5 → 2"),
        (edge(0, 1)[:1], {}, "a graph for each of 2 sequences, got 1"),
        (edge(0, 1, nodes=5), {}, "must have its 7 tokens as nodes, or name"),
        (edge(0, 1)[:1] + edge(0, 1, token=torch.arange(7)), {}, "token in all of its graphs"),
        (attention_graph(*heads()[:2], config=CONFIG)[:-1], {}, "one graph for each of 2 sequ"),
        (torch.eye(5).to_sparse(), {}, r"must be a matrix \[7, 7\] or \[14, 14\] or \[42, 42\]"),
        (torch.tensor([[0], [99]]), {}, r"edge_index must be in \[0, 14\), got 99"),
        (torch.randn(3, 4), {}, r"graph must be a Batch of PyG.* got \[3, 4\]"),
        (torch.rand(2, 3), {}, "edge_index must hold integers, got torch.float32"),
        ([Data(edge_index=torch.ones(3, 2), num_nodes=7)], {}, r"a tensor \[2, E\], got \[3, 2\]"),
        ([Data(edge_index=[[0], [1]], num_nodes=7)], {}, r"a tensor \[2, E\], got list"),
        ([Data(num_nodes=7)], {}, "must be a Data of PyG with edge_index or adj_t, got Data"),
        (edge(0, 1, edge_weight=[1.0, 2.0]), {}, r"edge_weight must be \[1\] or .*, got list"),
        (edge(0, 1, nodes=2, token=[0, 7]), {}, "token must hold integers, got a list"),
        (edge(0, 9), {}, r"edge_index must be in \[0, 7\), got 9"),
        ("trees", {}, "graph must be a Batch of PyG.* got str"),
        ((torch.tensor([[0], [1]]), torch.tensor([-1.0])), {}, "finite weights of at least 0"),
        (OTHER, {}, r"graph must be \[2, 3, 7, 7\], got \[1, 3, 7, 7\]"),
    ],
)
def test_what_does_not_fit_is_named(graph, options, said: str) -> None:
    masks = {
        "padding": torch.tensor([[True] * 6 + [False]] * BATCH),
        "pairs": torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool).tril(1),
    }
    options = {name: masks.get(value, value) for name, value in options.items()}
    query, key, value = heads()
    with pytest.raises(ValueError, match=said):
        jump_attention(query, key, value, config=CONFIG, graph=graph, **options)


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        (CONFIG, {"is_causal": True}, "edges to the future"),
        (JatConfig.stones(strength=1.0), {"is_causal": True}, "edges to the future"),
        (CONFIG, {"attention_mask": torch.arange(LENGTH).expand(BATCH, -1) < 5}, "of padding"),
    ],
)
def test_an_operator_must_not_see_what_a_token_does_not(config, options, said: str) -> None:
    query, key, value = heads()
    seeing = jump_operator(query, key, config=config)
    with pytest.raises(ValueError, match=said):
        jump_attention(query, key, value, config=config, graph=seeing, **options)
    own = jump_operator(query, key, config=config, **options)
    ours = jump_attention(query, key, value, config=config, graph=own, **options)
    assert_close(ours, jump_attention(query, key, value, config=config, **options), **CLOSE)


@given(st.integers(0, 2**20), st.integers(1, 4), st.booleans())
def test_settings_prune_as_the_graph_does(seed, neighbors, causal) -> None:
    query, key, value = heads(seed)
    pruned = JatConfig(PairGraph(threshold=0.05, max_neighbors=neighbors))
    graph = attention_graph(query, key, config=CONFIG, max_neighbors=neighbors, is_causal=causal)
    ours = jump_attention(query, key, value, config=pruned, is_causal=causal)
    wanted = jump_attention(query, key, value, config=CONFIG, is_causal=causal, graph=graph)
    assert_close(ours, wanted, **CLOSE)
    operator, choice = jump_operator(query, key, config=pruned, explain=True)
    assert choice.backend == "sparse"
    assert operator.base.to_edge_index()[0].size(1) <= 2 * neighbors * BATCH * HEADS * LENGTH
