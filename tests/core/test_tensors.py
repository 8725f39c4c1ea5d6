import math

import pytest
import torch
import torch.nn.functional as F

from jat_graph.core.tensors import check_scale, clean_padding, default_scale


@pytest.mark.parametrize("head_dim", [1, 2, 3, 7, 8, 32, 64, 96, 128])
def test_the_default_scale_is_sdpas_to_the_bit(head_dim):
    query, key, value = torch.randn(3, 1, 1, 5, head_dim, dtype=torch.float64)
    scale = check_scale(None, head_dim)
    assert scale == default_scale(head_dim)
    assert torch.equal(
        F.scaled_dot_product_attention(query, key, value, scale=scale),
        F.scaled_dot_product_attention(query, key, value),
    )


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
