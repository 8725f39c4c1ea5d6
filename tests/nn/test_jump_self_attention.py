"""JumpSelfAttention against the reference and stock attention, and inside a graph transformer."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.nn import Sequential, global_mean_pool
from torch_geometric.utils import erdos_renyi_graph, to_dense_batch

from jat_graph import JatConfig
from jat_graph.nn import JumpConv, JumpSelfAttention
from tests.oracles import reference_jump_attention

CHANNELS, HEADS = 12, 3
TWO_HEADS = JatConfig.paper(heads=2)


def _heads(attention: JumpSelfAttention, x: Tensor) -> list[Tensor]:
    """Return queries, keys and values of dense features: [B, H, N, D] each."""
    sizes = (attention.heads, attention.head_channels)
    return [
        lin(x).unflatten(-1, sizes).transpose(1, 2)
        for lin in (attention.q, attention.k, attention.v)
    ]


def _critical(attention: JumpSelfAttention, x: Tensor, mask: Tensor) -> Tensor:
    """Return, for each pair of nodes in the jump heads, the ρ below which it is joined: [P]."""
    query, key, _ = _heads(attention, x)
    scores = query @ key.mT * attention.head_channels**-0.5
    jumping = scores[:, list(attention.jump_heads)]
    jumping = jumping.masked_fill(~mask[:, None, None, :], torch.nan)
    products = (jumping.unsqueeze(-2) * jumping.unsqueeze(-3)).nan_to_num(-torch.inf).amax(-1)
    off_diagonal = ~torch.eye(x.size(1), dtype=torch.bool, device=x.device)
    pairs = mask.unsqueeze(1) & mask.unsqueeze(2) & off_diagonal  # [B, N, N]
    return products[pairs.unsqueeze(1).expand_as(products)]


@torch.no_grad()
def _module(
    x: Tensor, mask: Tensor | None = None, config: JatConfig = TWO_HEADS, **options: bool
) -> JumpSelfAttention:
    """Return a module that joins about half of the nodes of ``x`` at a threshold of 6."""
    torch.manual_seed(0)
    attention = JumpSelfAttention(CHANNELS, HEADS, config, **options).to(x.device, x.dtype)
    mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
    products = _critical(attention, x, mask).unique()
    middle = products[len(products) // 2 - 1 :][:2].mean()  # between two pairs: none is at ρ
    for lin in (attention.q, attention.k):
        lin.weight *= (6 / middle) ** 0.25  # products grow with the fourth power
    joined = (_critical(attention, x, mask) > 6).double().mean()
    assert 0.1 <= joined <= 0.9, f"{joined:.0%} of the pairs are joined"
    return attention


def _features(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, CHANNELS, dtype=torch.float64, generator=generator)


def _stock(attention: JumpSelfAttention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return what ordinary attention gives with the module's weights."""
    allowed = None if mask is None else mask[:, None, None, :]
    out = F.scaled_dot_product_attention(*_heads(attention, x), allowed)
    return attention.attn_out(out.transpose(1, 2).flatten(2))


def test_jump_heads_are_the_references_and_the_rest_are_stock(device: torch.device) -> None:
    x = _features(2, 9).to(device)
    mask = torch.tensor([[True] * 9, [True] * 6 + [False] * 3], device=device)
    attention = _module(x, mask, JatConfig.paper(heads=(0, 2)))
    query, key, value = _heads(attention, x)
    jumping = reference_jump_attention(
        query, key, value, threshold=6.0, hop_weights=(0.0, 1.0), attention_mask=mask
    )
    stock = F.scaled_dot_product_attention(query, key, value, mask[:, None, None, :])
    heads = torch.stack([jumping[:, 0], stock[:, 1], jumping[:, 2]], dim=1)
    truth = attention.attn_out(heads.transpose(1, 2).flatten(2))
    out = attention(x, mask)
    assert_close(out[mask], truth[mask], rtol=1e-10, atol=1e-10)
    assert not out[~mask].any()
    assert not torch.allclose(out[mask], _stock(attention, x, mask)[mask])


def test_hop_zero_is_stock_attention_bit_for_bit() -> None:
    x = _features(2, 9).float()
    attention = _module(x, config=JatConfig(heads=2, hop_weights=(1,)))
    assert torch.equal(attention(x), _stock(attention, x))


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4), st.integers(0, 2**31))
def test_a_batch_gives_what_its_graphs_give(sizes: list[int], seed: int) -> None:
    sizes = [8, *sizes]
    x = _features(sum(sizes), seed=seed)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    attention = _module(*to_dense_batch(x, batch))
    out = attention(x, batch=batch)
    alone = torch.cat([attention(graph) for graph in x.split(sizes)])
    assert_close(out, alone, rtol=1e-10, atol=1e-10)
    dense, mask = to_dense_batch(x, batch)
    assert_close(out, attention(dense, mask)[mask], rtol=1e-10, atol=1e-10)
    first = attention(x[:8], batch=torch.zeros(8, dtype=torch.long))
    assert_close(out[:8], first, rtol=1e-10, atol=1e-10)


@given(st.permutations(range(9)))
def test_nodes_may_come_in_any_order(order: list[int]) -> None:
    x = _features(9)
    attention = _module(x.unsqueeze(0))
    assert_close(attention(x[order]), attention(x)[order], rtol=1e-10, atol=1e-10)


def test_what_is_masked_changes_nothing() -> None:
    x = _features(2, 9).float()
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[1, 5:] = False
    attention = _module(x, mask, qkv_bias=True)
    spoilt = x.masked_fill(~mask.unsqueeze(-1), torch.nan)
    results = []
    for features in (x, spoilt):
        out = attention(features, mask)
        results.append((out, *torch.autograd.grad(out.square().sum(), attention.parameters())))
    for clean, got in zip(*results, strict=True):
        assert torch.equal(clean, got)


def test_empty_graphs_and_masked_rows_are_finite() -> None:
    x = _features(9)
    attention = _module(x.unsqueeze(0))
    batch = torch.tensor([0] * 5 + [2] * 4)  # graph 1 has no node
    out = attention(x, batch=batch)
    out.sum().backward()
    assert out.isfinite().all()
    assert all(p.grad.isfinite().all() for p in attention.parameters())
    assert not attention(x[None], torch.zeros(1, 9, dtype=torch.bool)).any()
    assert attention(x[:1]).isfinite().all()


def test_a_table_and_a_mapping_are_by_jump_head() -> None:
    x = _features(1, 9)
    plain = JatConfig.paper(heads=(0, 2))
    attention = _module(x, config=plain)
    infinite = JumpSelfAttention(
        CHANNELS, HEADS, JatConfig.paper(heads=(0, 2), threshold=((6.0, float("inf")),))
    ).double()
    mapped = JumpSelfAttention(
        CHANNELS, HEADS, JatConfig.paper(heads=(0, 2), hop_weights={(0,): (0, 1), (2,): (1,)})
    ).double()
    for other in (infinite, mapped):
        other.load_state_dict(attention.state_dict())
    only_first = JumpSelfAttention(CHANNELS, HEADS, JatConfig.paper(heads=(0,))).double()
    only_first.load_state_dict(attention.state_dict())
    assert_close(infinite(x), only_first(x))
    assert_close(mapped(x), only_first(x))
    assert not torch.allclose(attention(x), only_first(x))


class _GraphTransformer(torch.nn.Module):
    """One layer as GPSConv has it: local convolution and global attention, summed."""

    def __init__(self, config: JatConfig) -> None:
        super().__init__()
        self.local = JumpConv(CHANNELS, CHANNELS)
        self.attention = JumpSelfAttention(CHANNELS, HEADS, config, dropout=0.1)
        self.head = torch.nn.Linear(CHANNELS, 2)

    def forward(self, data: Batch) -> Tensor:
        local = self.local(data.x, data.edge_index) + data.x
        everywhere = self.attention(data.x, batch=data.batch) + data.x
        return self.head(global_mean_pool(local + everywhere, data.batch))


def _random_graphs(count: int) -> Batch:
    sizes = torch.randint(6, 12, (count,)).tolist()
    graphs = [
        Data(x=torch.randn(n, CHANNELS), edge_index=erdos_renyi_graph(n, 0.3), y=n % 2)
        for n in sizes
    ]
    return Batch.from_data_list(graphs)


def test_a_graph_transformer_trains(device: torch.device) -> None:
    torch.manual_seed(0)
    data = _random_graphs(8).to(device)
    dense, mask = to_dense_batch(data.x, data.batch)
    model = _GraphTransformer(JatConfig.paper(heads=2, vote_rate=0.05)).to(device)
    joined = _critical(model.attention, dense, mask)
    assert (joined > 0).float().mean() > 0.1
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        loss = F.cross_entropy(model(data), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]
    assert not [name for name, p in model.named_parameters() if torch.equal(p, before[name])]


def test_the_jumps_of_a_graph_transformer_matter() -> None:
    torch.manual_seed(0)
    data = _random_graphs(4)
    model = _GraphTransformer(JatConfig.paper(heads=2, vote_rate=0.05)).eval()
    base = _GraphTransformer(JatConfig(heads=2, hop_weights=(1,))).eval()
    base.load_state_dict(model.state_dict())
    assert not torch.allclose(model(data), base(data), atol=1e-6)


def test_in_sequential() -> None:
    x = _features(9)
    attention = _module(x.unsqueeze(0))
    batch = torch.tensor([0] * 5 + [1] * 4)
    model = Sequential("x, batch", [(attention, "x, batch -> x"), torch.nn.ReLU()])
    assert_close(model(x, batch), attention(x, batch=batch).relu())


def test_bfloat16_autocast() -> None:
    x = _features(1, 9).float()
    attention = _module(x)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(x)
    assert_close(out.float(), attention(x), rtol=0, atol=0.2)


def test_reset_draws_all_parameters_anew() -> None:
    attention = JumpSelfAttention(CHANNELS, HEADS, TWO_HEADS, qkv_bias=True)
    before = {name: p.detach().clone() for name, p in attention.named_parameters()}
    assert len(before) == 8
    attention.reset_parameters()
    assert not [name for name, p in attention.named_parameters() if torch.equal(p, before[name])]


def test_sizes_and_repr() -> None:
    attention = JumpSelfAttention(10, 4, JatConfig.paper(heads="even:2"), head_channels=8)
    assert attention(torch.randn(2, 5, 10)).shape == (2, 5, 10)
    assert attention(torch.randn(5, 10)).shape == (5, 10)
    text = "JumpSelfAttention(10, heads=4, head_channels=8, jump_heads=(0, 2))"
    assert str(attention).splitlines()[0] == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 5}, "heads=5 needs head 4"),
        ({"heads": 2, "layers": (0, 1)}, "needs layer 1, but the model has 1 layers"),
        ({"heads": 2, "threshold": ((1.0, 2.0), (3.0, 4.0))}, "one row for one layer, got 2"),
        ({"heads": 2, "threshold": ((1.0,),)}, "row 0 must have 2 entries"),
    ],
)
def test_configs_that_do_not_fit(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JumpSelfAttention(CHANNELS, HEADS, JatConfig.paper(**changes))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3), "channels must be at least 1, got 0"),
        ((12, 0), "heads must be at least 1, got 0"),
        ((10, 4), "channels must be a multiple of heads=4 without head_channels, got 10"),
        ((10, 4, TWO_HEADS, 0), "head_channels must be at least 1, got 0"),
        ((10, 4, 6.0), "config must be a JatConfig, got float"),
    ],
)
def test_bad_arguments(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JumpSelfAttention(*arguments, *([TWO_HEADS] if len(arguments) == 2 else []))


X = torch.zeros(2, 5, CHANNELS)
FLAT = torch.zeros(5, CHANNELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": X[..., 1:]}, r"x must be \[B, N, 12\] or \[N_total, 12\]"),
        ({"x": X[:, :0]}, "and not empty, got"),
        ({"x": X, "mask": torch.ones(2, 4, dtype=torch.bool)}, r"mask must be bool \[2, 5\]"),
        ({"x": X, "mask": torch.ones(2, 5)}, "mask must be bool"),
        ({"x": X, "batch": torch.zeros(5, dtype=torch.long)}, "batch needs flat x"),
        ({"x": FLAT, "batch": torch.zeros(4, dtype=torch.long)}, r"batch must be .* \[5\]"),
        ({"x": FLAT, "mask": torch.ones(5, dtype=torch.bool)}, "batch must be torch.int64"),
        ({"x": FLAT, "batch": torch.tensor([0, 1, 0, 1, 1])}, "batch must be in rising order"),
        (
            {"x": FLAT, "batch": torch.zeros(5).long(), "mask": torch.ones(5).bool()},
            "mask needs dense x",
        ),
        ({"x": X + torch.nan}, "x must be finite in valid tokens"),
    ],
)
def test_bad_input(arguments: dict[str, Tensor], message: str) -> None:
    attention = JumpSelfAttention(CHANNELS, HEADS, TWO_HEADS)
    with pytest.raises(ValueError, match=message):
        attention(**arguments)
