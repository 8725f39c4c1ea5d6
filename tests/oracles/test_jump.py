import math

import pytest
import torch
import torch.nn.functional as F

from tests.inputs import random_heads, random_padding_mask
from tests.oracles import (
    reference_graph,
    reference_jump_attention,
)

VARIANTS = [
    {},
    {"hop_weights": (0.5, 0.5)},
    {"hop_weights": (0.2, 0.0, -0.7, 1.1)},
    {"same_sign_only": True, "normalize_keys": True, "inclusive": True, "threshold": 3.0},
    {"key_selection": "significance", "num_keys": 5, "threshold": 1.0},
    {"key_selection": "strided", "num_keys": 5, "threshold": 1.0},
    {"key_selection": "significance", "num_keys": 6, "nodes": "selected", "threshold": 1.0},
    {"soft_temperature": 2.0},
]
# The other selections of keys look at later tokens.
CAUSAL_VARIANTS = [options for options in VARIANTS if "key_selection" not in options]


def assert_close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Compare within the error that float64 is allowed."""
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mask", ["none", "causal", "padding", "bias"])
def test_hop_zero_is_scaled_dot_product_attention(mask):
    query, key, value, _ = random_heads(2, 3, 10, 4)
    attention_mask, is_causal = None, mask == "causal"
    if mask == "padding":
        attention_mask = random_padding_mask(2, 10, seed=2)[:, None, None, :]
    if mask == "bias":
        attention_mask = torch.randn(2, 1, 10, 10, dtype=torch.float64)
    got = reference_jump_attention(
        query,
        key,
        value,
        hop_weights=(1.0,),
        attention_mask=attention_mask,
        is_causal=is_causal,
    )
    want = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, is_causal=is_causal
    )
    assert_close(got, want)


def test_an_infinite_threshold_with_one_hop_is_attention():
    query, key, value, _ = random_heads()
    got = reference_jump_attention(query, key, value, threshold=math.inf)
    assert_close(got, F.scaled_dot_product_attention(query, key, value))


@pytest.mark.parametrize(
    ("options", "is_causal"),
    [(options, False) for options in VARIANTS] + [(options, True) for options in CAUSAL_VARIANTS],
    ids=str,
)
def test_gradcheck(options, is_causal):
    query, key, value, _ = random_heads(1, 2, 7, 3, is_causal=is_causal)
    leaves = tuple(t.clone().requires_grad_() for t in (query, key, value))

    def attention(*tensors: torch.Tensor) -> torch.Tensor:
        return reference_jump_attention(*tensors, is_causal=is_causal, **options)

    assert torch.autograd.gradcheck(attention, leaves)


def test_no_gradient_flows_through_hard_votes_but_through_soft_ones():
    query, key, _, _ = random_heads()
    query.requires_grad_()
    assert not reference_graph(query, key).adjacency.requires_grad
    soft = reference_graph(query, key, soft_temperature=1.0).adjacency
    (gradient,) = torch.autograd.grad(soft.sum(), query)
    assert gradient.any()
