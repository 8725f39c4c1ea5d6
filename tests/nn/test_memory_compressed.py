"""MemoryCompressedAttention against the slow loop, and what its relatives get wrong."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.nn import MemoryCompressedAttention
from jat_graph.nn.self_attention import SelfAttention
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
    reference_compressed_memory,
    reference_compressed_visible,
)

WINDOWS = ((3, 3), (1, 1), (3, 2), (4, 1), (5, 4))


def oracle(layer: SelfAttention, x: Tensor) -> list[Tensor]:
    """Return what each head reads of one sequence."""
    assert isinstance(layer, MemoryCompressedAttention)
    conv = layer.compress
    memory = reference_compressed_memory(x, conv.weight, conv.bias, layer.stride)
    visible = reference_compressed_visible(len(x), layer.kernel_size, layer.stride, layer.is_causal)
    return [reference_attention(*heads, visible) for heads in split(layer, x, memory)]


def make(window: tuple[int, int] = (3, 3), is_causal: bool = False) -> MemoryCompressedAttention:
    torch.manual_seed(0)
    return MemoryCompressedAttention(CHANNELS, HEADS, *window, is_causal=is_causal).double()


@given(padded_features(), st.sampled_from(WINDOWS), st.booleans())
def test_the_layer_follows_the_oracle(
    case: tuple[Tensor, Tensor | None], window: tuple[int, int], is_causal: bool
) -> None:
    assert_follows(make(window, is_causal), *case, oracle)


@pytest.mark.parametrize("is_causal", [False, True])
def test_lower_precision_stays_within_the_budget(is_causal: bool) -> None:
    assert_precise(make(is_causal=is_causal), features(2, 13), oracle)


@pytest.mark.parametrize("window", WINDOWS)
def test_nothing_leaks_from_later_tokens(window: tuple[int, int]) -> None:
    assert_leaks_nothing(make(window, is_causal=True), features(2, 11))


@pytest.mark.parametrize("window", WINDOWS)
def test_every_slot_before_a_token_is_read(window: tuple[int, int]) -> None:
    """A rule that hid more than it must would leak nothing, too."""
    kernel, stride = window
    layer, x = make(window, is_causal=True), features(1, 11).requires_grad_()
    out = layer(x)
    for token in range(11):
        (grad,) = torch.autograd.grad(out[0, token].sum(), x, retain_graph=True)
        read = {place for place in range(11) if grad[0, place].any()} - {token}
        whole = [start for start in range(0, 11, stride) if start + kernel <= token]
        inside = {place for start in whole for place in range(start, start + kernel)}
        assert read == (inside | {0}) - {token}


@pytest.mark.parametrize("length", [1, 4, 5, 6])
def test_the_tail_is_read(length: int) -> None:
    layer, x = make(), features(1, length)
    changed = x.clone()
    changed[:, -1] += 1
    assert not torch.isclose(layer(changed), layer(x)).any()


@pytest.mark.parametrize("is_causal", [False, True])
def test_padding_changes_nothing(is_causal: bool) -> None:
    assert_ignores_padding(make(is_causal=is_causal), features(2, 7))


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_sequence_without_tokens_is_finite(is_causal: bool) -> None:
    assert_finite_without_tokens(make(is_causal=is_causal), features(2, 7))


def test_a_mask_that_masks_nothing_is_none() -> None:
    layer, x = make(), features(2, 8)
    out = layer(x, torch.ones(2, 8, dtype=torch.bool))
    assert torch.equal(out, layer(x))
    assert not torch.allclose(out[:, 0], out[:, 1])


def test_graphs_may_be_flat() -> None:
    layer, x = make(), features(9)
    batch = torch.tensor([0] * 5 + [1] * 4)
    alone = torch.cat([layer(x[:5]), layer(x[5:])])
    torch.testing.assert_close(layer(x, batch=batch), alone)


def test_reset_and_repr() -> None:
    layer = make((4, 2), is_causal=True)
    assert str(layer) == (
        "MemoryCompressedAttention(12, heads=3, kernel_size=4, stride=2, is_causal=True)"
    )
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    assert len(before) == 7
    layer.reset_parameters()
    assert not [name for name, p in layer.named_parameters() if torch.equal(p, before[name])]


def test_moves_to_a_device(device: torch.device) -> None:
    out = make(is_causal=True).to(device)(features(2, 8).to(device))
    assert out.device.type == device.type and out.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel_size": 0}, "kernel_size must be at least 1, got 0"),
        ({"stride": 0}, "stride must be at least 1, got 0"),
        ({"stride": 4}, "stride must be at most kernel_size=3, .* got 4"),
        ({"is_causal": 1}, "is_causal must be True or False, got 1"),
        ({"heads": 5}, "channels must be a multiple of heads=5"),
        ({"dropout": 2.0}, "dropout probability has to be between 0 and 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MemoryCompressedAttention(**{"channels": CHANNELS, "heads": HEADS, **arguments})
