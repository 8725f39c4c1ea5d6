"""Self-attention with jump heads, an encoder's and a decoder's, against the oracles."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.nn import Sequential, global_mean_pool
from torch_geometric.utils import erdos_renyi_graph, to_dense_batch

from jat_graph import JatConfig
from jat_graph.nn import JumpConv, JumpSelfAttention, SelfAttention
from jat_graph.patterns import Window
from tests.nn.support import (
    CHANNELS,
    HEADS,
    assert_finite_without_tokens,
    assert_follows,
    assert_ignores_padding,
    assert_leaks_nothing,
    assert_precise,
    features,
    padded_features,
    split,
)
from tests.oracles import reference_attention, reference_jump_attention
from tests.support import assert_equal

LENGTH = 11
THRESHOLD = 0.05  # at which heads 0 and 2 join 10 to 90 % of the pairs of ``FEATURES``
# What may serve a decoder: keys that are chosen without looking ahead.
CAUSAL_CONFIGS = [
    {},
    {"hop_weights": (0.5, 0.5)},
    {"hop_weights": (0, 0, 1)},
    {"key_selection": "strided", "key_step": 2},
    {"pattern": "window:3"},
]
both_orders = pytest.mark.parametrize("is_causal", (False, True))


def rule(layer: SelfAttention, length: int) -> Tensor:
    everything = torch.ones(length, length, dtype=torch.bool)
    return everything.tril() if layer.is_causal else everything


def plain_oracle(layer: SelfAttention, x: Tensor) -> list[Tensor]:
    """Return what ordinary heads read of one sequence."""
    return [reference_attention(*heads, rule(layer, len(x))) for heads in split(layer, x, x)]


def window_oracle(layer: SelfAttention, x: Tensor) -> list[Tensor]:
    """Return what ordinary heads read of a window of three."""
    place = torch.arange(len(x))
    visible = rule(layer, len(x)) & ((place[:, None] - place).abs() < 3)
    return [reference_attention(*heads, visible) for heads in split(layer, x, x)]


def jump_oracle(layer: SelfAttention, x: Tensor) -> list[Tensor]:
    """Return what the heads read where heads 0 and 2 jump by one hop."""
    heads = split(layer, x, x)
    first, last = (
        reference_jump_attention(
            *(tensor[None, None] for tensor in heads[head]),
            threshold=THRESHOLD,
            is_causal=layer.is_causal,
        )[0, 0]
        for head in (0, 2)
    )
    return [first, plain_oracle(layer, x)[1], last]


def make(config: JatConfig | None = None, is_causal: bool = False) -> JumpSelfAttention:
    torch.manual_seed(0)
    return JumpSelfAttention(CHANNELS, HEADS, config, is_causal=is_causal).double()


def jumping(is_causal: bool = False, **changes: object) -> JumpSelfAttention:
    return make(JatConfig.paper(**{"heads": (0, 2), "threshold": THRESHOLD} | changes), is_causal)


FEATURES = features(2, LENGTH)


@both_orders
@given(case=padded_features())
def test_heads_are_the_oracles(is_causal, case):
    plain = make(is_causal=is_causal)
    assert plain.jump_heads == ()
    assert_follows(plain, *case, plain_oracle)
    pattern = JatConfig(heads=1, hop_weights=(1,), pattern=Window(3))
    assert_follows(make(pattern, is_causal), *case, window_oracle)
    assert_follows(jumping(is_causal), *case, jump_oracle)


@both_orders
def test_hop_zero_is_plain_to_the_bit_and_jumps_matter(is_causal):
    plain = make(is_causal=is_causal)
    for heads, hops, close in (((0, 2), (0, 1), False), (2, (1,), True)):
        other = make(JatConfig.paper(heads=heads, hop_weights=hops, threshold=THRESHOLD), is_causal)
        assert torch.allclose(other(FEATURES), plain(FEATURES), rtol=0, atol=1e-3) == close
    assert torch.equal(other(FEATURES), plain(FEATURES))


def test_a_layer_stands_beside_convolutions(device):
    layers = [
        (JumpConv(CHANNELS, CHANNELS), "x, edge_index -> near"),
        (make(JatConfig.paper(heads=2, vote_rate=0.05)).float(), "x, batch -> far"),
        (lambda x, near, far: x + near + far, "x, near, far -> x"),
        (global_mean_pool, "x, batch -> x"),
    ]
    model = Sequential("x, edge_index, batch", layers).to(device)
    nodes = [torch.randn(size, CHANNELS) for size in (6, 11)]
    graphs = [Data(x=x, edge_index=erdos_renyi_graph(len(x), 0.3)) for x in nodes]
    data = Batch.from_data_list(graphs).to(device)
    model(data.x, data.edge_index, data.batch).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


@both_orders
def test_lower_precision_stays_within_the_budget(is_causal):
    assert_precise(make(is_causal=is_causal), FEATURES, plain_oracle)


@pytest.mark.parametrize("changes", CAUSAL_CONFIGS, ids=str)
def test_nothing_leaks_from_later_tokens(changes):
    assert_leaks_nothing(jumping(is_causal=True, **changes), FEATURES)
    assert_leaks_nothing(make(is_causal=True), FEATURES)


@both_orders
@pytest.mark.parametrize("changes", [{}, {"pattern": "window:3"}], ids=str)
def test_padding_changes_nothing(is_causal, changes):
    assert_ignores_padding(make(is_causal=is_causal), FEATURES)
    assert_ignores_padding(jumping(is_causal, **changes), FEATURES)
    assert_finite_without_tokens(jumping(is_causal, **changes), FEATURES)


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.integers(0, 2**31))
def test_a_batch_gives_what_its_graphs_give(sizes, seed):
    sizes = [8, *sizes]
    x, attention = features(sum(sizes), seed=seed), jumping()
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    out = attention(x, batch=batch)
    alone = torch.cat([attention(graph) for graph in x.split(sizes)])
    assert_equal(out, alone)
    dense, mask = to_dense_batch(x, batch)
    assert_equal(out, attention(dense, mask)[mask])
    assert_close(attention(x, batch), out)  # as Sequential passes it


@given(st.permutations(range(LENGTH)))
def test_nodes_may_come_in_any_order(order):
    x, attention = FEATURES[0], jumping()
    assert_equal(attention(x[order]), attention(x)[order])


def test_graphs_without_nodes_are_finite():
    x, attention = FEATURES[0], jumping()
    out = attention(x, batch=torch.tensor([0] * 5 + [2] * 6))  # graph 1 has no node
    out.sum().backward()
    assert out.isfinite().all() and attention(x[:1]).isfinite().all()
    assert all(p.grad.isfinite().all() for p in attention.parameters())


def test_a_table_and_a_mapping_are_by_jump_head():
    first = jumping(heads=(0,))(FEATURES)
    assert_close(jumping(threshold=((THRESHOLD, float("inf")),))(FEATURES), first)
    assert_close(jumping(hop_weights={(0,): (0, 1), (2,): (1,)})(FEATURES), first)
    assert not torch.allclose(jumping()(FEATURES), first)


def test_bfloat16_autocast():
    attention, x = jumping().float(), FEATURES.float()
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(x)
    assert_close(out.float(), attention(x), rtol=0, atol=0.2)


@pytest.mark.parametrize("conv", [None, "SAGEConv"])
def test_reset_draws_all_parameters_anew(conv):
    config = JatConfig.paper(heads=2, conv=conv)
    attention = JumpSelfAttention(CHANNELS, HEADS, config, qkv_bias=True)
    before = {name: p.detach().clone() for name, p in attention.named_parameters()}
    assert len(before) == (12 if conv else 8)
    if conv:
        torch.nn.init.ones_(attention.strength.theta)
    attention.reset_parameters()
    same = [name for name, p in attention.named_parameters() if torch.equal(p, before[name])]
    assert same == (["strength.theta"] if conv else [])  # which is 0


def test_what_heads_learn_has_the_names_of_attached_models_and_old_files_load():
    stones = JatConfig.stones(heads=2, conv="StoneConv")
    pairs = JatConfig.paper(heads=2, strength="learned", conv="GATv2Conv")
    for own in (torch.nn.Sequential(make(config)) for config in (stones, pairs)):
        state = {name: torch.randn_like(value) for name, value in own.state_dict().items()}
        learned = [name.split(".", 1)[1] for name in state if name.startswith(("0.s", "0.j"))]
        assert learned[0] == "strength.theta"
        assert all(name.startswith("jump_conv.") for name in learned[1:])
        old = {
            name.replace("strength.theta", "strength").replace("jump_conv", "conv"): value
            for name, value in state.items()
        }
        own.load_state_dict(old)
        assert_close(dict(own.state_dict()), state)


def test_sizes_and_repr():
    attention = JumpSelfAttention(10, 4, JatConfig.paper(heads="even:2"), head_channels=8)
    assert attention(torch.randn(2, 5, 10)).shape == (2, 5, 10)
    assert attention(torch.randn(5, 10)).shape == (5, 10)
    text = "JumpSelfAttention(10, heads=4, head_channels=8, jump_heads=(0, 2))"
    assert str(attention).splitlines()[0] == text


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"channels": 0}, "channels"),
        ({"heads": 0}, "heads"),
        ({"channels": 10, "heads": 4}, "channels"),
        ({"head_channels": 0}, "head_channels"),
        ({"config": 6.0}, "config"),
        ({"config": JatConfig(heads=5)}, "heads"),
        ({"config": JatConfig(heads=2, layers=(0, 1))}, "layer"),
        ({"config": JatConfig.paper(heads=2, threshold=((1.0,),))}, "threshold"),
    ],
)
def test_bad_arguments(options, word):
    with pytest.raises(ValueError, match=word):
        JumpSelfAttention(**{"channels": CHANNELS, "heads": HEADS, "config": None} | options)


X, FLAT = torch.zeros(2, 5, CHANNELS), torch.zeros(5, CHANNELS)
MASK, BATCH = torch.ones(5, dtype=torch.bool), torch.zeros(5, dtype=torch.long)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((X[..., 1:],), "x"),
        ((X[:, :0],), "x"),
        ((X + torch.nan,), "x"),
        ((X, MASK[:4].expand(2, -1)), "mask"),
        ((X, MASK.float().expand(2, -1)), "mask"),
        ((X, None, BATCH), "batch"),
        ((FLAT, None, BATCH[1:]), "batch"),
        ((FLAT, MASK), "batch"),
        ((FLAT, None, torch.tensor([0, 1, 0, 1, 1])), "batch"),
        ((FLAT, MASK, BATCH), "mask"),
    ],
)
def test_bad_input(arguments, word):
    with pytest.raises(ValueError, match=f"^{word} "):
        make().float()(*arguments)
