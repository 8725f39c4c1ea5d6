"""Layers of PyG in heads: equal to products by Â and P where they mean the same, and no leaks."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.nn import (
    APPNP,
    GATv2Conv,
    GCN2Conv,
    GCNConv,
    GINConv,
    HypergraphConv,
    MixHopConv,
    SAGEConv,
    Sequential,
    TransformerConv,
)

from jat_graph import JatConfig
from jat_graph.nn import JumpConv, JumpSelfAttention, StoneConv

CHANNELS, HEADS, LENGTH = 12, 3, 9
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
PAIRS = {"threshold": 0.01, "heads": 2}
STONES = {"graph": "stones", "threshold": 0.5, "heads": 2}
# Layers that get a matrix in the place of edges, ours and PyG's.
MULTIPLYING = ("JumpConv", "APPNP", "GCNConv", "GatedGraphConv", "GraphConv", "LGConv")
MULTIPLYING += ("MixHopConv", "SGConv", "SSGConv", "SimpleConv", "TAGConv")
PROPAGATION = partial(JumpConv, out_channels=None)
WALK = partial(StoneConv, out_channels=None)

# Layers that nobody here wrote, as a user would put them into a head of D features.
FOREIGN = {
    "GCNConv": (PAIRS, GCNConv),
    "GATv2Conv": (PAIRS, GATv2Conv),
    "GATv2Conv, weights": (PAIRS, partial(GATv2Conv, edge_dim=1)),
    "APPNP": (PAIRS, partial(APPNP, K=10, alpha=0.1)),
    "MixHopConv": (PAIRS, partial(MixHopConv, powers=[1])),
    "TransformerConv": (PAIRS, partial(TransformerConv, edge_dim=1)),
    "SAGEConv": (PAIRS, SAGEConv),
    "GINConv": (PAIRS, lambda dim: GINConv(nn.Linear(dim, dim))),
    "HypergraphConv": (STONES, HypergraphConv),
    "GCN2Conv": (
        PAIRS,
        lambda dim: Sequential(
            "x, edge_index, edge_weight",
            [(GCN2Conv(dim, alpha=0.1), "x, x, edge_index, edge_weight -> x")],
        ),
    ),
}


def module(settings, conv=None, **options) -> JumpSelfAttention:
    torch.manual_seed(0)
    config = JatConfig.paper(**settings)
    made = JumpSelfAttention(CHANNELS, HEADS, config, conv=conv, **options).double()
    if made.strength is not None:
        with torch.no_grad():
            made.strength.theta.copy_(torch.rand(made.strength.theta.shape) + 0.3)
    return made


def twins(settings, conv, **options) -> tuple[JumpSelfAttention, JumpSelfAttention]:
    """Return a module that multiplies by Â or P, and one with a layer in its place."""
    fast, layered = module(settings, **options), module(settings, conv, **options)
    layered.load_state_dict(fast.state_dict(), strict=False)
    return fast, layered


def inputs(seed: int, length: int = LENGTH, batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(batch, length, CHANNELS, generator=generator).double()
    mask = torch.rand(batch, length, generator=generator) < 0.8
    mask[:, 0] = True
    return x.requires_grad_(), mask


def assert_equal_with_gradients(first, second, x, mask) -> None:
    assert_close(first(x, mask), second(x, mask), **CLOSE)
    names = [name for name, _ in first.named_parameters()]
    cotangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).double()
    found = []
    for one in (first, second):
        parameters = dict(one.named_parameters())
        wanted = [x, *(parameters[name] for name in names)]
        found.append(torch.autograd.grad((one(x, mask) * cotangent).sum(), wanted))
    assert_close(*found, **CLOSE)


@given(
    st.integers(0, 2**20),
    st.integers(1, 14),
    st.sampled_from((0.7, "learned", (0.5, -0.4, 0.0))),
    st.sampled_from((None, 0.5)),
    st.booleans(),
)
def test_jump_conv_is_a_product_by_the_operator(seed, length, strength, soft, causal) -> None:
    settings = PAIRS | {"strength": strength, "soft_temperature": soft}
    x, mask = inputs(seed, length)
    fast, layered = twins(settings, PROPAGATION, is_causal=causal)
    assert_equal_with_gradients(fast, layered, x, mask)


def seen_layouts(made: JumpSelfAttention) -> list[torch.layout]:
    """Return the list in which a layer notes whether it got edges or a matrix."""
    layouts = []
    note = lambda _, args: layouts.append(args[1].layout)  # noqa: E731
    made.jump_conv.layers[0].register_forward_pre_hook(note)
    return layouts


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MULTIPLYING)
def test_layers_that_multiply_get_a_matrix_and_give_the_same(name, causal) -> None:
    options = {"APPNP": {"K": 3, "alpha": 0.1}, "MixHopConv": {"powers": [2]}}
    options |= {"SSGConv": {"alpha": 0.1}, "GatedGraphConv": {"num_layers": 2}}
    conv = {"layer": name, **options.get(name, {})}
    settings = PAIRS | {"strength": (0.7, 0.6, 0.5), "conv": conv}
    by_matrix, by_edges = (module(settings, is_causal=causal) for _ in range(2))
    by_edges.jump_conv.layers[0].takes_matrix = False
    x, mask = inputs(3)
    layouts = seen_layouts(by_matrix)
    assert_equal_with_gradients(by_matrix, by_edges, x, mask)
    assert set(layouts) == {torch.sparse_csr}
    layouts.clear()
    with torch.autocast("cpu", torch.bfloat16):
        by_matrix.float()(x.float(), mask)
    assert set(layouts) == ({torch.sparse_csr} if name == "JumpConv" else {torch.strided})


def test_our_layer_gets_edges_where_their_weights_have_gradients() -> None:
    made = module(PAIRS | {"soft_temperature": 0.5}, JumpConv)
    layouts = seen_layouts(made)
    x, _ = inputs(0)
    made(x)
    with torch.no_grad():
        made(x)
    assert layouts == [torch.strided] * 3 + [torch.sparse_csr] * 3  # for query, key and value


@given(st.integers(0, 2**20), st.integers(1, 14), st.sampled_from((0.0, 0.1)))
def test_stone_conv_is_a_walk_over_stones(seed, length, self_weight) -> None:
    settings = STONES | {"self_weight": self_weight}
    x, mask = inputs(seed, length)
    fast, layered = twins(settings, partial(WALK, self_weight=self_weight))
    assert_equal_with_gradients(fast, layered, x, mask)


def test_a_layer_runs_on_stones_where_few_links_are_left() -> None:
    x, mask = inputs(0, 130)
    fast, layered = twins(STONES | {"threshold": 3.0}, WALK)
    assert_close(layered(x, mask), fast(x, mask), **CLOSE)


def test_hops_are_layers_on_each_other_and_powers_of_mixhop() -> None:
    x, mask = inputs(3)
    twice = ((0.0, 0.0, 0.0), (0.6, -0.3, 0.2))
    fast, layered = twins(PAIRS | {"hops": 2, "strength": twice}, PROPAGATION)
    assert_equal_with_gradients(fast, layered, x, mask)
    squared = module(PAIRS | {"strength": twice[1]}, partial(PROPAGATION, powers=[2]))
    squared.load_state_dict(fast.state_dict(), strict=False)
    assert_close(squared(x, mask), fast(x, mask), **CLOSE)


def test_hypergraph_conv_is_a_walk_where_every_token_has_a_stone() -> None:
    settings = STONES | {"incidence": "hard", "self_weight": 0.0, "threshold": 0.0}
    fast, layered = twins(settings, partial(HypergraphConv, bias=False))
    with torch.no_grad():
        layered.jump_conv.layers[0].lin.weight.copy_(torch.eye(CHANNELS // HEADS))
    x, mask = inputs(5)
    assert_close(layered(x, mask), fast(x, mask), **CLOSE)


def test_the_filter_of_equation_4_learns() -> None:
    x, mask = inputs(0)
    made = module(PAIRS, JumpConv)
    assert made.config.conv == {"layer": "JumpConv"}
    assert made.jump_conv.layers[0].lins[0].weight.shape == (CHANNELS // HEADS,) * 2
    made(x, mask).square().sum().backward()
    assert made.jump_conv.layers[0].lins[0].weight.grad.abs().max() > 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("name", FOREIGN)
def test_layers_that_nobody_here_wrote_train_repeat_and_leak_nothing(name: str) -> None:
    settings, conv = FOREIGN[name]
    made = module(settings, conv).float()
    x, mask = inputs(1)
    x, target = x.detach().float(), torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.AdamW(made.parameters(), lr=0.01)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = (made(x, mask) - target)[mask].square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    made.eval()
    out = made(x, mask)
    assert torch.equal(out, made(x, mask))
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    elsewhere = torch.where(mask.unsqueeze(-1), x, 100 * noise)
    assert torch.equal(made(elsewhere, mask)[mask], out[mask])
    alone = made(x[1:, mask[1]])[0]
    assert_close(alone, out[1][mask[1]], rtol=1e-4, atol=1e-5)
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        low = made(x, mask)
    low.float().square().sum().backward()
    gradients = [p.grad for p in made.parameters() if p.grad is not None]
    assert low[mask].any() and all(gradient.isfinite().all() for gradient in gradients)
    assert made.strength.theta.grad.any()


@pytest.mark.parametrize("name", [name for name in FOREIGN if name != "HypergraphConv"])
def test_nothing_comes_from_later_tokens(name: str) -> None:
    made = module(*FOREIGN[name], is_causal=True).eval()
    x, _ = inputs(2)
    later = x.detach().clone()
    later[:, 6:] += 1
    assert_close(made(later)[:, :6], made(x.detach())[:, :6], **CLOSE)


def test_without_strength_it_is_plain_attention_bit_for_bit() -> None:
    made = module(PAIRS, GCNConv).eval()
    plain = JumpSelfAttention(CHANNELS, HEADS, None).double()
    plain.load_state_dict(made.state_dict(), strict=False)
    torch.nn.init.zeros_(made.strength.theta)
    x, mask = inputs(4)
    with torch.no_grad():
        assert torch.equal(made(x, mask), plain(x, mask))


def test_queries_and_keys_may_have_a_layer_each() -> None:
    strength = (0.5, 0.5, 0.0)
    made = module(PAIRS | {"strength": strength}, lambda d: [GCNConv(d, d), GCNConv(d, d)])
    assert len(made.jump_conv.layers) == 2
    x, mask = inputs(0)
    before = made(x, mask)
    with torch.no_grad():
        made.jump_conv.layers[1].lin.weight.add_(1.0)
    assert not torch.allclose(made(x, mask), before)
    with pytest.raises(ValueError, match=r"strength of values must be 0, got 'learned'"):
        module(PAIRS, lambda d: [GCNConv(d, d), GCNConv(d, d)])


@pytest.mark.parametrize(
    ("settings", "conv", "options", "said"),
    [
        (PAIRS, partial(GATv2Conv, heads=2), {}, r"GATv2Conv must give features \[2, 4\]"),
        (PAIRS, HypergraphConv, {}, "must take edge_index, but HypergraphConv"),
        (STONES, GCNConv, {}, "must take hyperedge_index"),
        (STONES, WALK, {"is_causal": True}, "would use later tokens in causal order"),
        (PAIRS, partial(GCNConv, flow="target_to_source"), {"is_causal": True}, "flow="),
        (PAIRS, partial(GCN2Conv, alpha=0.1), {}, "but GCN2Conv takes x, x_0, edge_index, "),
        (PAIRS, lambda d: [], {}, "one, two or three layers, got 0"),
        (PAIRS, lambda d: 3, {}, "conv must give modules"),
        (PAIRS, 3, {}, "conv must be a class or a factory, got 3"),
        (PAIRS, GCNConv(8, 8), {}, r"`lambda size: GCNConv\(size, size\)`, got one GCNConv"),
        (PAIRS, "GCNConv", {}, "got 'GCNConv'; .* takes names"),
        (PAIRS | {"conv": "Linear"}, None, {}, "conv must name a layer .* got 'Linear'"),
        (PAIRS | {"conv": {"layer": "GCNConv", "haeds": 3}}, None, {}, "conv GCNConv of .*haeds"),
        (PAIRS | {"conv": "given"}, None, {}, "conv must be given"),
        (PAIRS | {"conv": 3}, None, {}, "conv must be the name of a layer"),
        (PAIRS | {"conv": "GCNConv", "backend": "dense"}, None, {}, "be 'auto' or 'sparse' where"),
        (STONES | {"conv": "StoneConv", "backend": "sparse"}, None, {}, "runs on the links"),
    ],
)
def test_what_does_not_fit_is_named(settings, conv, options, said) -> None:
    with pytest.raises(ValueError, match=said):
        module(settings, conv, **options)(inputs(0)[0])
