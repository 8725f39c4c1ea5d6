"""Relative attention against the slow loop, its skewing, and what it may store."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.nn import SelfAttention
from models.music_transformer import RelativeAttention, skew
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
from tests.oracles.sequences import reference_relative_attention, reference_relative_scores
from tests.support import MemoryMeter, assert_equal, random_tensors


def oracle(layer: SelfAttention, x: Tensor) -> list[Tensor]:
    """Return what each head reads of one sequence."""
    assert isinstance(layer, RelativeAttention)
    heads = zip(split(layer, x, x), layer.table, strict=True)
    return [reference_relative_attention(*tensors, table) for tensors, table in heads]


def make(max_distance: int = 5) -> RelativeAttention:
    torch.manual_seed(0)
    return RelativeAttention(CHANNELS, HEADS, max_distance).double()


@given(padded_features(), st.sampled_from((1, 2, 5, 20)))
def test_the_layer_follows_the_oracle(
    case: tuple[Tensor, Tensor | None], max_distance: int
) -> None:
    assert_follows(make(max_distance), *case, oracle)


def test_precision_and_padding_and_order() -> None:
    assert_ignores_padding(make(), features(2, 7))
    assert_finite_without_tokens(make(), features(2, 7))
    assert_leaks_nothing(make(3), features(2, 11))
    assert_precise(make(), features(2, 13), oracle)


@given(st.integers(1, 12), st.integers(0, 2**20))
def test_skewing_brings_each_distance_to_its_keys(length: int, seed: int) -> None:
    query, table = random_tensors(seed, (length, 4), (length, 4))
    assert_equal(skew(query @ table.T).tril(), reference_relative_scores(query, table))


def test_no_row_of_a_table_is_kept_for_each_pair() -> None:
    """The largest tensors are scores; one with a row of E a pair would be D times as large."""
    length = 64
    layer, x = make(length), features(1, length)
    with MemoryMeter() as meter:
        layer(x).sum().backward()
    assert meter.largest <= HEADS * length * 2 * length


def test_tables_have_a_row_for_each_distance_and_are_drawn_anew() -> None:
    assert make(7).table.shape == (HEADS, 7, 4)
    layer = RelativeAttention(512, 2, 64)
    before = layer.table.detach().clone()
    layer.reset_parameters()
    assert not torch.isclose(layer.table, before).all(-1).any()
    assert layer.table.std().item() == pytest.approx(256**-0.5, rel=0.02)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="max_distance must be at least 1, got 0"):
        make(0)
