"""Graphs of words as graphs of tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch_geometric.data import Data
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.utils import to_dense_adj

from jat_graph.graphs import token_graph


@pytest.mark.filterwarnings("ignore:graphs have edges of words without a token")
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 2**20), st.booleans())
def test_every_token_gets_the_mean_over_the_word(sizes, seed, weighted):
    words = len(sizes)
    word_ids = [None, *(w for w, size in enumerate(sizes) for _ in range(size)), None]
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.rand(words, words, generator=generator).double()  # target by source
    matrix *= torch.rand(words, words, generator=generator) < 0.5
    target, source = matrix.nonzero(as_tuple=True)
    weight = matrix[target, source] if weighted else None
    graph = Data(edge_index=torch.stack([source, target]), edge_weight=weight, num_nodes=words)
    if not weighted:
        matrix = (matrix > 0).double()
    tokens = token_graph(graph, word_ids)
    member = torch.tensor([[w == word for word in range(words)] for w in word_ids]).double()
    wanted = member @ matrix @ (member / member.sum(0).clamp(min=1)).mT
    found = torch.zeros_like(wanted)
    from_token, to_token = tokens.edge_index
    found[to_token, from_token] = tokens.edge_weight.double()
    assert_close(found, wanted)
    assert tokens.num_nodes == len(tokens.token) == len(word_ids)
    assert tokens.edge_index.size(1) == int((wanted > 0).sum())  # none comes twice


def test_a_token_of_an_unknown_word_is_named():
    graph = Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=2)
    with pytest.raises(ValueError, match="graph must have 3 words or more, got 2"):
        token_graph(graph, [None, 0, 1, 2, None])


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # that torch's CSR is in beta
def test_weights_are_found_where_transforms_leave_them():
    edges, weight = torch.tensor([[0, 2, 1], [1, 1, 2]]), torch.tensor([0.5, 2.0, 0.25])
    words = [None, 0, 0, 1, 2, None]
    wanted = token_graph(Data(edge_index=edges, edge_weight=weight, num_nodes=3), words)
    by_attr = Data(edge_index=edges, edge_attr=weight, num_nodes=3)
    to_csr = ToSparseTensor(attr="edge_attr", layout=torch.sparse_csr)
    for graph in (by_attr, to_csr(by_attr.clone())):
        found = token_graph(graph, words)
        assert torch.equal(dense(found), dense(wanted))
    assert wanted.edge_weight.tolist() == [0.25, 0.25, 2.0, 0.25]


def dense(graph: Data) -> torch.Tensor:
    return to_dense_adj(graph.edge_index, edge_attr=graph.edge_weight, max_num_nodes=6)
