"""StoneConv against the walk of the reference, and PyG's hypergraph convolution."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import HypergraphConv

from jat_graph import JatConfig, jump_operator, stone_graph
from jat_graph.nn import StoneConv
from tests.oracles.stones import stone_propagation
from tests.support import assert_equal


def links(seed: int, nodes: int, stones: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.rand(nodes, stones, generator=generator).double()
    return (matrix * (matrix > 0.6)).requires_grad_()


@given(st.integers(0, 2**20), st.integers(1, 9), st.integers(1, 7), st.sampled_from((0.0, 0.1)))
def test_it_is_the_walk_of_the_reference(seed, nodes, stones, self_weight):
    matrix = links(seed, nodes, stones)
    x = torch.randn(nodes, 3, generator=torch.Generator().manual_seed(seed)).double()
    x.requires_grad_()
    index = matrix.nonzero().mT
    out = StoneConv(3, self_weight=self_weight)(x, index, matrix[index[0], index[1]])
    wanted = stone_propagation(matrix[None, None], self_weight)[0, 0] @ x
    assert_equal(out, wanted)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).double()
    found = torch.autograd.grad((out * cotangent).sum(), (x, matrix))
    expected = torch.autograd.grad((wanted * cotangent).sum(), (x, matrix))
    assert_equal(found[0], expected[0])
    on = matrix > 0  # a link that is not there has no gradient
    assert_equal(found[1][on], expected[1][on])


def test_without_weights_it_is_pygs_hypergraph_convolution():
    matrix = links(0, 8, 5)
    index = matrix.nonzero().mT
    x = torch.randn(8, 3).double()
    theirs = HypergraphConv(3, 4).double()
    ours = StoneConv(3, 4, self_weight=0.0).double()
    with torch.no_grad():
        ours.lin.weight.copy_(theirs.lin.weight)
        ours.lin.bias.copy_(theirs.bias)
    on = (matrix > 0).any(-1)
    assert on.any()
    bias = ours.lin.bias  # every walk keeps it, as its weights sum to 1
    assert_equal((ours(x, index) - bias)[on], (theirs(x, index) - bias)[on])


def test_it_runs_on_a_stone_graph(device):
    query, key = torch.randn(2, 2, 3, 9, 4, device=device).double()
    config = JatConfig.stones()
    graph = stone_graph(query, key, config=config)
    x = torch.randn(2, 3, 9, 5, device=device).double()
    out = StoneConv(-1)(x.flatten(0, 2), graph.hyperedge_index, graph.hyperedge_weight)
    wanted = jump_operator(query, key, config=config).matmul(x)
    assert_equal(out, wanted.flatten(0, 2))


def test_weights_that_cancel_share_out_nothing():
    index = torch.tensor([[0, 1, 2, 2, 3], [0, 0, 0, 1, 1]])
    for weights in ((1, -2, 1, 0.5, -0.5), (-1, -1, 0.5, 0.5, -1), (-0.5, 1, 1, -1.5, 0)):
        assert StoneConv(3, self_weight=1.0)(X, index, torch.tensor(weights)).isfinite().all()


X = torch.randn(4, 3)


@pytest.mark.parametrize(
    ("x", "index", "weight", "name"),
    [
        (X[:, 0], [[0], [0]], None, "x"),
        (X, [0, 1], None, "hyperedge_index"),
        (X, [[0.5], [1.0]], None, "hyperedge_index"),
        (X, [[0], [0]], torch.ones(2), "link_weight"),
    ],
)
def test_what_does_not_fit_is_named(x, index, weight, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        StoneConv(3)(x, torch.tensor(index), weight)
