"""Area attention against the oracle, with masks, in causal order, and in low precision."""

import copy

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from models.area_transformer import AreaAttention
from tests.inputs import random_padding_mask
from tests.nn.support import (
    CHANNELS,
    HEADS,
    assert_finite_without_tokens,
    assert_ignores_padding,
    assert_leaks_nothing,
    assert_same,
    features,
)
from tests.oracles.areas import reference_area_attention

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def make_layer(max_width: int = 3) -> AreaAttention:
    torch.manual_seed(0)
    return AreaAttention(CHANNELS, HEADS, max_width).double().eval()


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def oracle(layer: AreaAttention, x: Tensor, mask: Tensor) -> Tensor:
    """The layer's output by loops, where padding is at the end."""
    length = x.size(1)
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    allowed = mask[:, None, None].expand(-1, HEADS, length, -1) & causal
    read = reference_area_attention(
        *(heads(part(x)) for part in (layer.q, layer.k, layer.v)),
        allowed,
        max_width=layer.max_width,
        scale=layer.head_channels**-0.5,
    )
    return layer.attn_out(read.transpose(1, 2).flatten(2)) * mask.unsqueeze(-1)


@pytest.mark.parametrize("max_width", [1, 3, 9])
def test_values_and_gradients_are_the_oracles(max_width: int) -> None:
    layer, x = make_layer(max_width), features(2, 8).requires_grad_()
    mask = torch.arange(8) < torch.tensor([[8], [5]])
    assert_same(layer(x, mask), oracle(layer, x, mask), (x, *layer.parameters()))


@pytest.mark.parametrize("side", ["left", "right", "scattered"])
def test_padding_changes_nothing_whatever_it_holds(side: str) -> None:
    layer = make_layer()
    mask = random_padding_mask(3, 7, side=side, min_valid=1, seed=4)
    x = features(3, 7).masked_fill(~mask.unsqueeze(-1), torch.nan)
    got = layer(x, mask)
    assert not got[~mask].any()
    for row, valid, out in zip(x, mask, got, strict=True):
        assert_close(out[valid], layer(row[valid][None])[0], **CLOSE)
    assert_ignores_padding(layer, features(2, 7))
    assert_finite_without_tokens(layer, features(2, 5))


def test_causal_areas_end_at_the_query() -> None:
    assert_leaks_nothing(make_layer(), features(2, 7))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_lower_precision_runs_and_keeps_its_dtype(dtype: torch.dtype) -> None:
    layer, x = make_layer(), features(2, 6)
    got = copy.deepcopy(layer).to(dtype)(x.to(dtype))
    assert got.dtype == dtype
    assert_close(got.double(), layer(x), rtol=0.1, atol=0.1)


def test_long_inputs_keep_their_digits_in_single_precision() -> None:
    layer, exact = make_layer(), 3.0 + features(16384, width=1).float()  # which running sums heap
    found = layer._sums(exact)
    assert_close(found.double(), layer._sums(exact.double()), rtol=0, atol=4e-6)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="max_width must be at least 1, got 0"):
        make_layer(0)
