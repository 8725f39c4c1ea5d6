"""The attentions of encoders and decoders, with and without jump heads, against the oracles."""

import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch.testing import assert_close

from jat_graph import JatConfig
from jat_graph.nn import (
    DecoderSelfAttention,
    EncoderDecoderAttention,
    EncoderSelfAttention,
    JumpSelfAttention,
)
from jat_graph.nn.self_attention import SelfAttention
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
from tests.oracles import (
    reference_attention,
    reference_graph,
    reference_jump_attention,
)
from tests.support import assert_equal

LAYERS = (EncoderSelfAttention, DecoderSelfAttention)
LENGTH = 11
# What may serve a decoder: keys that are chosen without looking ahead.
CAUSAL_CONFIGS = [
    {},
    {"hop_weights": (0.5, 0.5)},
    {"hop_weights": (0, 0, 1)},
    {"key_selection": "strided", "key_step": 2},
    {"pattern": "window:3"},
]


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
    assert isinstance(layer, JumpSelfAttention)
    heads = split(layer, x, x)
    jumping = [
        reference_jump_attention(
            *(tensor[None, None] for tensor in heads[head]),
            threshold=layer.config.graph.threshold,
            is_causal=layer.is_causal,
        )[0, 0]
        for head in (0, 2)
    ]
    return [jumping[0], plain_oracle(layer, x)[1], jumping[1]]


def make(kind: type[JumpSelfAttention], config: JatConfig | None = None) -> JumpSelfAttention:
    torch.manual_seed(0)
    return kind(CHANNELS, HEADS, config).double()


def jumping(kind: type[JumpSelfAttention], **changes: object) -> JumpSelfAttention:
    """Return a layer whose heads 0 and 2 join 10 to 90 % of the allowed pairs of ``features``."""
    layer, x = make(kind), features(2, LENGTH)
    query, key, _ = layer.project(x, x)
    votes = {name: changes[name] for name in ("key_selection", "key_step") if name in changes}
    pairs = 2 * rule(layer, LENGTH).fill_diagonal_(False).sum()
    for threshold in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3):
        graph = reference_graph(query, key, threshold=threshold, is_causal=layer.is_causal, **votes)
        joined = (graph.adjacency > 0).sum((0, 2, 3)) / pairs  # [H]
        if ((joined >= 0.1) & (joined <= 0.9)).all():
            return make(kind, JatConfig.paper(heads=(0, 2), threshold=threshold, **changes))
    raise AssertionError("no threshold joins some pairs, but not all")


@pytest.mark.parametrize("kind", LAYERS)
@given(case=padded_features())
def test_without_a_config_no_head_jumps(
    kind: type[JumpSelfAttention], case: tuple[Tensor, Tensor | None]
) -> None:
    layer = make(kind)
    assert layer.jump_heads == ()
    assert_follows(layer, *case, plain_oracle)


@pytest.mark.parametrize("kind", LAYERS)
@given(case=padded_features())
def test_a_pattern_alone_limits_every_head(
    kind: type[JumpSelfAttention], case: tuple[Tensor, Tensor | None]
) -> None:
    config = JatConfig(heads=1, hop_weights=(1,), pattern=Window(3))
    assert_follows(make(kind, config), *case, window_oracle)


@pytest.mark.parametrize("kind", LAYERS)
@given(case=padded_features())
def test_jump_heads_are_the_oracles(
    kind: type[JumpSelfAttention], case: tuple[Tensor, Tensor | None]
) -> None:
    assert_follows(jumping(kind), *case, jump_oracle)


@pytest.mark.parametrize("kind", LAYERS)
def test_jumps_matter(kind: type[JumpSelfAttention]) -> None:
    x = features(2, LENGTH)
    layer, plain = jumping(kind), make(kind)
    assert not torch.allclose(layer(x), plain(x), atol=1e-3)


@pytest.mark.parametrize("kind", LAYERS)
def test_lower_precision_stays_within_the_budget(kind: type[JumpSelfAttention]) -> None:
    assert_precise(make(kind), features(2, LENGTH), plain_oracle)


@pytest.mark.parametrize("changes", CAUSAL_CONFIGS, ids=str)
def test_nothing_leaks_from_later_tokens(changes: dict[str, object]) -> None:
    x = features(2, LENGTH)
    assert_leaks_nothing(jumping(DecoderSelfAttention, **changes), x)
    assert_leaks_nothing(make(DecoderSelfAttention), x)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("changes", [{}, {"pattern": "window:3"}], ids=str)
def test_padding_changes_nothing(kind: type[JumpSelfAttention], changes: dict[str, object]) -> None:
    assert_ignores_padding(make(kind), features(2, LENGTH))
    assert_ignores_padding(jumping(kind, **changes), features(2, LENGTH))


@pytest.mark.parametrize("kind", LAYERS)
def test_a_sequence_without_tokens_is_finite(kind: type[JumpSelfAttention]) -> None:
    assert_finite_without_tokens(jumping(kind), features(2, LENGTH))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_selection": "significance"}, "key_selection"),
        ({"key_selection": "sampled"}, "key_selection"),
        ({"key_selection": "strided"}, "key_step"),
        ({"vote_rate": 0.1}, "vote_rate"),
    ],
)
def test_keys_that_look_ahead_are_refused(changes: dict[str, object], message: str) -> None:
    layer = make(DecoderSelfAttention, JatConfig.paper(heads=1, **changes))
    with pytest.raises(ValueError, match=message):
        layer(features(1, 4))


def test_repr() -> None:
    text = "DecoderSelfAttention(12, heads=3, head_channels=4, jump_heads=(0, 2))"
    assert str(jumping(DecoderSelfAttention)).splitlines()[0] == text


# --- from a decoder to an encoder ----------------------------------------------------------------


def cross(memory_channels: int = 5) -> EncoderDecoderAttention:
    torch.manual_seed(0)
    return EncoderDecoderAttention(CHANNELS, HEADS, memory_channels).double()


@given(case=padded_features(), other=padded_features())
def test_every_token_reads_the_valid_memory(
    case: tuple[Tensor, Tensor | None], other: tuple[Tensor, Tensor | None]
) -> None:
    batch = min(len(case[0]), len(other[0]))
    x, mask, memory, memory_mask = (None if t is None else t[:batch] for t in (*case, *other))
    memory = memory[..., :5]
    layer, leaves = cross(), [tensor.clone().requires_grad_() for tensor in (x, memory)]
    valid = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    seen = torch.ones(memory.shape[:2], dtype=torch.bool) if memory_mask is None else memory_mask
    rows = []
    for b in range(batch):
        visible = seen[b].expand(x.size(1), -1)
        heads = [reference_attention(*h, visible) for h in split(layer, leaves[0][b], leaves[1][b])]
        rows.append(layer.attn_out(torch.cat(heads, dim=-1)) * valid[b].unsqueeze(-1))
    want, got = torch.stack(rows), layer(*leaves, mask, memory_mask)
    assert_equal(got, want)
    leaves += layer.parameters()
    cotangent = features(*x.shape[:2], seed=1)
    for ours, theirs in zip(
        torch.autograd.grad(got, leaves, cotangent),
        torch.autograd.grad(want, leaves, cotangent),
        strict=True,
    ):
        assert_equal(ours, theirs)


def test_what_is_masked_changes_nothing() -> None:
    layer, x, memory = cross(CHANNELS), features(2, 4), features(2, 6, seed=1)
    mask, memory_mask = torch.ones(2, 4).bool(), torch.ones(2, 6).bool()
    mask[0, 3:], memory_mask[1, 2:] = False, False
    results = []
    for filling in (0.0, torch.nan):
        spoilt = [
            tokens.masked_fill(~valid.unsqueeze(-1), filling)
            for tokens, valid in ((x, mask), (memory, memory_mask))
        ]
        out = layer(*spoilt, mask, memory_mask)
        results.append((out, *torch.autograd.grad(out.square().sum(), layer.parameters())))
    for clean, got in zip(*results, strict=True):
        assert torch.equal(clean, got)


def test_a_memory_without_tokens_is_finite() -> None:
    layer = cross(CHANNELS)
    leaves = [features(2, 4).requires_grad_(), features(2, 6).requires_grad_()]
    out = layer(*leaves, None, torch.zeros(2, 6, dtype=torch.bool))
    assert_close(out, layer.attn_out.bias.expand(2, 4, -1))
    gradients = torch.autograd.grad(out.sum(), [*leaves, *layer.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_it_is_torchs_own_with_the_same_weights() -> None:
    layer, x, memory = cross(CHANNELS), features(2, 4), features(2, 6, seed=1)
    stock = torch.nn.MultiheadAttention(CHANNELS, HEADS, bias=False, batch_first=True).double()
    with torch.no_grad():
        stock.in_proj_weight.copy_(torch.cat([lin.weight for lin in (layer.q, layer.k, layer.v)]))
        stock.out_proj.weight.copy_(layer.attn_out.weight)
        layer.attn_out.bias.zero_()
    memory_mask = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
    want, _ = stock(x, memory, memory, key_padding_mask=~memory_mask)
    assert_equal(layer(x, memory, None, memory_mask), want)


def test_jumps_are_refused_between_two_sequences() -> None:
    with pytest.raises(ValueError, match="jump heads are defined for self-attention only"):
        EncoderDecoderAttention(CHANNELS, HEADS, JatConfig.paper())


X = torch.zeros(2, 4, CHANNELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": X[..., 1:]}, r"x must be \[B, N, 12\] and not empty, got \[2, 4, 11\]"),
        ({"memory": X[:, :0]}, r"memory must be \[B, N, 12\] and not empty"),
        ({"memory": X[:1]}, "memory must have batch 2 like x, got 1"),
        ({"mask": torch.ones(2, 4)}, r"mask must be bool \[2, 4\], got torch.float32"),
        ({"memory_mask": torch.ones(2, 3).bool()}, r"memory_mask must be bool \[2, 4\]"),
        ({"memory": X + torch.nan}, "memory must be finite in valid tokens"),
    ],
)
def test_bad_input(arguments: dict[str, Tensor], message: str) -> None:
    layer = EncoderDecoderAttention(CHANNELS, HEADS)
    with pytest.raises(ValueError, match=message):
        layer(**{"x": X, "memory": X, **arguments})
