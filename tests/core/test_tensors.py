import math

import pytest
import torch
import torch.nn.functional as F

from jat_graph import JatConfig
from jat_graph.core.tensors import (
    check_dropout,
    check_heads,
    check_layout,
    check_scale,
    clean_padding,
    default_scale,
)
from jat_graph.jumps.config import check_config


def heads(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def test_what_fits_passes():
    check_config(JatConfig())
    check_heads(heads(2, 3, 4, 8), heads(2, 3, 4, 8))
    check_heads(heads(2, 3, 4, 8), heads(2, 3, 4, 8), heads(2, 3, 4, 5))
    check_dropout(0.0)
    check_dropout(1)


@pytest.mark.parametrize(
    ("query", "key", "value", "words"),
    [
        (heads(3, 4, 8), heads(3, 4, 8), None, r"query must be \[B, H, L, D\], got \[3, 4, 8\]"),
        (heads(2, 3, 4, 8), heads(4, 8), None, r"key must be \[B, H, L, D\], got \[4, 8\]"),
        (heads(2, 3, 4, 8), heads(2, 1, 4, 8), None, r"key must be \[2, 3, 4, 8\] like query"),
        (heads(2, 3, 0, 8), heads(2, 3, 0, 8), None, "query must have no empty axis"),
        (heads(2, 3, 4, 8), heads(2, 3, 4, 8), heads(2, 3, 5, 8), r"value must be \[2, 3, 4, Dv\]"),
        (heads(2, 3, 4, 8), heads(2, 3, 4, 8), heads(2, 4, 8), r"value must be \[B, H, L, D\]"),
        (heads(1, 1, 1, 1, dtype=torch.int), heads(1, 1, 1, 1), None, "query must be floating"),
        (heads(1, 1, 1, 1), heads(1, 1, 1, 1).half(), None, "key must be torch.float32 like query"),
        (None, heads(1, 1, 1, 1), None, "query must be a tensor, got NoneType"),
    ],
)
def test_what_does_not_fit_is_named(query, key, value, words):
    with pytest.raises(ValueError, match=words):
        check_heads(query, key, value)


def test_autocast_brings_dtypes_together():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check_heads(heads(1, 1, 1, 1), heads(1, 1, 1, 1).bfloat16())


def test_a_config_is_no_dict():
    with pytest.raises(ValueError, match="config must be a JatConfig, got dict"):
        check_config({})


def test_a_layout_names_its_tensor():
    with pytest.raises(ValueError, match="scores must have no empty axis"):
        check_layout("scores", heads(0, 1, 2, 2))


@pytest.mark.parametrize("head_dim", [1, 2, 3, 7, 8, 32, 64, 96, 128])
def test_the_default_scale_is_sdpas_to_the_bit(head_dim):
    query, key, value = torch.randn(3, 1, 1, 5, head_dim, dtype=torch.float64)
    scale = check_scale(None, head_dim)
    assert scale == default_scale(head_dim)
    assert torch.equal(
        F.scaled_dot_product_attention(query, key, value, scale=scale),
        F.scaled_dot_product_attention(query, key, value),
    )


@pytest.mark.parametrize("scale", [math.nan, math.inf, "1"])
def test_a_scale_is_finite(scale):
    with pytest.raises(ValueError, match="scale must be"):
        check_scale(scale, 8)
    assert check_scale(2, 8) == 2.0


@pytest.mark.parametrize("dropout", [-0.1, 1.1, math.nan])
def test_dropout_is_a_probability(dropout):
    with pytest.raises(ValueError, match="dropout_p must be"):
        check_dropout(dropout)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_padding_becomes_zero_and_valid_tokens_stay(garbage):
    valid = torch.tensor([True, False, True])[None, None]
    tensor = torch.randn(2, 3, 2, 4).transpose(1, 2)
    before = tensor.clone()
    tensor[:, :, 1] = garbage
    (clean,) = clean_padding(valid, query=tensor)
    assert torch.equal(clean[:, :, ::2], before[:, :, ::2])
    assert clean[:, :, 1].count_nonzero() == 0
    assert clean.stride() == tensor.stride()
    assert not tensor[:, :, 1].isfinite().any()  # the caller's tensor is as it was


def test_no_gradient_reaches_padding():
    tensor = torch.full((1, 1, 3, 2), math.nan)
    tensor[:, :, 0] = 1.0
    tensor.requires_grad_()
    (clean,) = clean_padding(torch.tensor([[[True, False, False]]]), query=tensor)
    (grad,) = torch.autograd.grad(clean.sum(), tensor)
    assert grad[0, 0].tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_a_valid_token_must_be_finite(garbage):
    key = torch.zeros(2, 3, 4, 2)
    key[1, 2, 3, 0] = garbage
    words = "key must be finite in valid tokens, got NaN or Inf in sequence 1, head 2, token 3"
    with pytest.raises(ValueError, match=words):
        clean_padding(None, query=torch.zeros(2, 3, 4, 2), key=key)
