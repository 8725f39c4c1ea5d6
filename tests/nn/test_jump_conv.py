"""JumpConv against the dense formula, PyG's own layers, and the operator of the same graph."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from torch_geometric import EdgeIndex
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import MixHopConv, Sequential, SimpleConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.testing import assert_module
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import to_dense_adj

from jat_graph import JatConfig, attention_graph, jump_operator
from jat_graph.nn import JumpConv
from tests.inputs import random_heads
from tests.nn.support import assert_same
from tests.support import needs_torch_sparse

# torch says once that its CSR tensors are in beta, and once that it does not check their indices.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

SPARSE_FORMS = ["csr", "csc", "coo", pytest.param("torch_sparse", marks=needs_torch_sparse)]

STAR = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])
# Not symmetric; node 4 has no edge at all, node 3 only one that goes out.
DIRECTED = torch.tensor([[0, 1, 1, 3, 2], [1, 2, 0, 0, 0]])
WEIGHT = torch.tensor([0.25, 1.0, 0.5, 0.75, 0.1])


def _dense_norm(edge_index: Tensor, edge_weight: Tensor, num_nodes: int) -> Tensor:
    """Return Â as the formula says it: row i holds what comes into i."""
    adjacency = to_dense_adj(edge_index.flip(0), None, edge_weight, num_nodes).squeeze(0)
    adjacency = adjacency + torch.eye(num_nodes, dtype=adjacency.dtype)
    scale = adjacency.sum(1).rsqrt()
    return scale[:, None] * adjacency * scale


def _sparse(form: str, edge_index: Tensor, edge_weight: Tensor, num_nodes: int) -> object:
    """Return the graph as PyG's ``adj_t``, rows the targets."""
    size = (num_nodes, num_nodes)
    source, target = edge_index
    if form == "torch_sparse":
        return SparseTensor(row=target, col=source, value=edge_weight, sparse_sizes=size)
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), edge_weight, size)
    if form == "coo":
        return matrix
    return matrix.to_sparse_csr() if form == "csr" else matrix.to_sparse_csc()


@st.composite
def _graphs(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Draw features, edges without self-loops or doubles, and weights in (0, 1]."""
    num_nodes = draw(st.integers(2, 7))
    pairs = [(i, k) for i in range(num_nodes) for k in range(num_nodes) if i != k]
    edges = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    x = torch.randn(num_nodes, 3, dtype=torch.float64, generator=generator)
    weight = 1 - torch.rand(len(edges), dtype=torch.float64, generator=generator)
    return x, torch.tensor(edges).T.contiguous(), weight


@pytest.mark.parametrize("out_channels", [None, 32])
def test_layouts_permutations_and_shape(out_channels):
    x = torch.randn(4, 16)
    conv = JumpConv(16, out_channels, powers=(0, 1, 2))
    width = 3 * (out_channels or 16)
    out = assert_module(conv, x, STAR, expected_size=(4, width), atol=1e-6)
    assert not torch.allclose(out[:, : width // 3], out[:, width // 3 : 2 * (width // 3)])


@given(_graphs())
def test_it_is_the_formula(graph):
    x, edge_index, edge_weight = graph
    leaves = (x.requires_grad_(), edge_weight.requires_grad_())
    adj_norm = _dense_norm(edge_index, edge_weight, len(x))
    assert (adj_norm - torch.eye(len(x), dtype=x.dtype)).abs().max() > 1e-3
    out = JumpConv(3, powers=(0, 1, 3))(x, edge_index, edge_weight)
    truth = torch.cat([x, adj_norm @ x, adj_norm @ adj_norm @ adj_norm @ x], dim=-1)
    assert_same(out, truth, leaves)


@pytest.mark.parametrize("form", SPARSE_FORMS)
def test_both_roads_agree_with_weights_and_gradients(form, device):
    torch.manual_seed(0)
    conv = JumpConv(3, 4, powers=(1, 2)).to(device)
    values = torch.randn(5, 3)
    results = []
    for sparse in (False, True):
        x = values.to(device).requires_grad_()
        weight = WEIGHT.to(device).requires_grad_()
        edge_index = DIRECTED.to(device)
        graph = (_sparse(form, edge_index, weight, 5),) if sparse else (edge_index, weight)
        out = conv(x, *graph)
        results.append((out, *torch.autograd.grad(out.square().sum(), (x, weight))))
    assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)
    assert results[0][2].abs().min() > 1e-3


@pytest.mark.parametrize("form", ["edges", *SPARSE_FORMS])
def test_a_self_loop_counts_as_the_one_that_is_added(form):
    x = torch.randn(5, 3)
    loops = torch.cat([DIRECTED, torch.tensor([[1, 4], [1, 4]])], dim=1)
    weight = torch.cat([WEIGHT, torch.tensor([0.3, 5.0])])
    graph = (loops, weight) if form == "edges" else (_sparse(form, loops, weight, 5),)
    conv = JumpConv(3)
    assert_close(conv(x, *graph), conv(x, DIRECTED, WEIGHT), rtol=1e-6, atol=1e-6)


def test_an_edge_index_of_pyg_is_an_edge_list_and_weights_may_be_doubles():
    x = torch.randn(5, 3)
    conv = JumpConv(3)
    out = conv(x, EdgeIndex(DIRECTED, sparse_size=(5, 5)), WEIGHT.double())
    assert_close(out, conv(x, DIRECTED, WEIGHT))


def test_it_is_mixhop_with_the_same_weights():
    x = torch.randn(4, 16)
    mixhop = MixHopConv(16, 8, powers=[0, 1, 2])
    conv = JumpConv(16, 8, powers=(0, 1, 2))
    torch.nn.init.normal_(mixhop.bias)
    conv.load_state_dict(mixhop.state_dict())
    assert_close(conv(x, STAR), mixhop(x, STAR), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_graph_of_pyg_is_the_operator(is_causal, device):
    heads = random_heads(2, 3, 12, 8, density=0.4, is_causal=is_causal, device=device)
    assert 0.1 <= heads.density <= 0.9
    config = JatConfig.paper()
    operator = jump_operator(heads.query, heads.key, config=config, is_causal=is_causal)
    adj_norm = operator.to_dense().flatten(0, 1)  # [BH, L, L]
    graphs = attention_graph(heads.query, heads.key, config=config, is_causal=is_causal)
    conv = JumpConv(12)
    for graph, wanted in zip(graphs.to_data_list(), adj_norm, strict=True):
        edges, weight = gcn_norm(graph.edge_index, graph.edge_weight, 12)
        built = to_dense_adj(edges.flip(0), None, weight, 12).squeeze(0)
        assert_close(built, wanted, rtol=1e-12, atol=1e-12)
        identity = torch.eye(12, dtype=torch.float64, device=device)
        convolved = conv(identity, graph.edge_index, graph.edge_weight)
        assert_close(convolved, wanted, rtol=1e-12, atol=1e-12)
    batch = conv(identity.repeat(6, 1), graphs.edge_index, graphs.edge_weight)
    assert_close(batch, adj_norm.flatten(0, 1), rtol=1e-12, atol=1e-12)


def test_in_sequential():
    layers = [
        (JumpConv(-1, 8, powers=(0, 1)), "x, edge_index, edge_weight -> x"),
        torch.nn.ReLU(),
        (JumpConv(16, 2), "x, edge_index, edge_weight -> x"),
    ]
    model = Sequential("x, edge_index, edge_weight", layers)
    out = model(torch.randn(5, 3), DIRECTED, WEIGHT)  # sets the channels of the first layer
    assert out.shape == (5, 2)
    assert str(layers[0][0]) == "JumpConv(-1, 8, powers=(0, 1))"
    out.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_reset_draws_the_filter_anew():
    assert not list(JumpConv(16, powers=(1, 2)).parameters())  # without a filter there are none
    conv = JumpConv(16, 8)
    torch.nn.init.ones_(conv.bias)
    before = conv.lins[0].weight.clone()
    conv.reset_parameters()
    assert not torch.equal(conv.lins[0].weight, before)
    assert not conv.bias.any()


def test_lone_nodes_have_gradients_without_nan():
    x = torch.randn(3, 2, requires_grad=True)
    weight = torch.tensor([0.5], requires_grad=True)
    JumpConv(2, powers=(2,))(x, torch.tensor([[0], [1]]), weight).square().sum().backward()
    assert x.grad.isfinite().all() and weight.grad.isfinite().all()
    assert_close(x.grad[2], 2 * x.detach()[2])
    assert_close(JumpConv(2)(x, torch.empty(2, 0, dtype=torch.long)), x)


def test_low_precision_sums_in_float32():
    # 600 edges into one node: in bfloat16 their sum would stop at 256.
    x, edge_index = torch.ones(601, 1), torch.stack([torch.arange(1, 601), torch.zeros(600).long()])
    truth = JumpConv(1)(x, edge_index)
    assert_close(JumpConv(1)(x.bfloat16(), edge_index), truth.bfloat16(), rtol=2**-8, atol=0)
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(600), (601, 601))
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(JumpConv(1)(x, matrix.to_sparse_csr()), truth)


@given(st.lists(st.sampled_from((-2.0, -1.0, -0.5, 0.0, 0.5, 1.0)), min_size=5, max_size=5))
def test_weights_of_both_signs_are_as_in_gcn_where_that_is_finite(weights):
    x, weight = torch.randn(5, 3).double(), torch.tensor(weights).double()
    theirs = SimpleConv()(x, *gcn_norm(DIRECTED, weight, 5, dtype=torch.double))
    out = JumpConv(3)(x, DIRECTED, weight.requires_grad_())
    assert_close(out[theirs.isfinite()], theirs[theirs.isfinite()])
    (grad,) = torch.autograd.grad(out.square().sum(), weight)
    assert bool(out.isfinite().all() & grad.isfinite().all())


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"in_channels": 0}, "in_channels"),
        ({"out_channels": 0}, "out_channels"),
        *(({"powers": powers}, "powers") for powers in ((), (1, 1), (-1,), (0.5,))),
    ],
)
def test_bad_arguments(arguments, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        JumpConv(**{"in_channels": 4} | arguments)


X = torch.ones(4, 3)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((torch.ones(4), STAR), "x"),
        ((torch.ones(4, 2), STAR), "x"),
        ((X.long(), STAR), "x"),
        ((X.to(torch.float8_e4m3fn), STAR), "x"),
        ((X.to("meta"), STAR.to("meta")), "x"),
        ((X, STAR.T), "edge_index"),
        ((X, torch.ones(2, 2)), "edge_index"),
        ((X, torch.eye(5).to_sparse()), "edge_index"),
        ((X, torch.eye(4).to_sparse(), torch.ones(4)), "edge_weight"),
    ],
)
def test_bad_input(arguments, name):
    with pytest.raises(ValueError, match=f"{name} must"):
        JumpConv(3)(*arguments)


@pytest.mark.parametrize("powers", [(1,), (1, 2)])
def test_an_explainer_masks_each_edge_and_loops_change_nothing(powers):
    x = torch.randn(6, 8)
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 2]])  # the last is a loop
    conv = JumpConv(8, 3, powers=powers)
    explainer = Explainer(
        conv,
        GNNExplainer(epochs=5),
        explanation_type="model",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
    )
    mask = explainer(x, edges, index=2).edge_mask
    assert mask.shape == (8,) and mask[-1] == 0 and mask[:-1].any()
    assert_close(conv(x, edges), conv(x, edges[:, :-1]))
