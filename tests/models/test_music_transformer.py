"""Relative attention against the slow loop, its skewing, and what it may store."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.nn import SelfAttention
from models.music_transformer import RelativeAttention
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
from tests.oracles import reference_relative_attention
from tests.support import MemoryMeter

FORMS = [(block, is_causal) for block in (None, 4) for is_causal in (False, True)]


def oracle(layer: SelfAttention, x: Tensor) -> list[Tensor]:
    """Return what each head reads of one sequence."""
    assert isinstance(layer, RelativeAttention)
    options = {name: getattr(layer, name) for name in ("max_distance", "far", "block", "is_causal")}
    heads = zip(split(layer, x, x), layer.table, strict=True)
    return [reference_relative_attention(*tensors, table, **options) for tensors, table in heads]


def make(max_distance: int = 5, **options: object) -> RelativeAttention:
    torch.manual_seed(0)
    return RelativeAttention(CHANNELS, HEADS, max_distance, **options).double()


@given(
    padded_features(),
    st.sampled_from((1, 2, 5, 20)),
    st.sampled_from(("clip", "zero")),
    st.sampled_from((None, 1, 2, 4, 30)),
    st.booleans(),
)
def test_the_layer_follows_the_oracle(case, max_distance, far, block, is_causal):
    layer = make(max_distance, far=far, block=block, is_causal=is_causal)
    assert_follows(layer, *case, oracle)


@pytest.mark.parametrize(("block", "is_causal"), FORMS)
def test_precision_and_padding(block, is_causal):
    assert_ignores_padding(make(block=block, is_causal=is_causal), features(2, 7))
    assert_finite_without_tokens(make(block=block, is_causal=is_causal), features(2, 7))
    assert_precise(make(block=block, is_causal=is_causal), features(2, 13), oracle)


@pytest.mark.parametrize("block", [None, 3])
@pytest.mark.parametrize("far", ["clip", "zero"])
def test_nothing_leaks_from_later_tokens(far, block):
    assert_leaks_nothing(make(3, far=far, block=block, is_causal=True), features(2, 11))


@pytest.mark.parametrize("is_causal", [False, True])
def test_no_row_of_a_table_is_kept_for_each_pair(is_causal):
    """The largest tensors are scores; one with a row of E a pair would be D times as large."""
    length = 64
    layer, x = make(length, is_causal=is_causal), features(1, length)
    with MemoryMeter() as meter:
        layer(x).sum().backward()
    assert meter.largest <= HEADS * length * 2 * length


def test_blocks_need_memory_in_proportion_to_the_length():
    peaks = []
    for length in (128, 256, 512):
        layer, x = make(8, block=8, is_causal=True), features(1, length)
        with MemoryMeter() as meter:
            layer(x).sum().backward()
        peaks.append(meter.peak)
    assert peaks[2] - peaks[1] == pytest.approx(2 * (peaks[1] - peaks[0]), rel=0.05)


def test_tables_have_a_row_for_each_distance_and_are_drawn_anew():
    assert make(7, is_causal=True).table.shape == (HEADS, 7, 4)
    assert make(7).table.shape == (HEADS, 13, 4)
    layer = RelativeAttention(512, 2, 64)
    before = layer.table.detach().clone()
    layer.reset_parameters()
    assert not torch.isclose(layer.table, before).all(-1).any()
    assert layer.table.std().item() == pytest.approx(256**-0.5, rel=0.02)


@pytest.mark.parametrize("options", [{"max_distance": 0}, {"far": "wrap"}, {"block": 0}])
def test_bad_arguments_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        make(**options)
