import pytest
import torch
import torch.nn.functional as F

from tests.inputs import random_heads, random_padding_mask
from tests.oracles import reference_graph, reference_jump_attention


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
        query, key, value, hop_weights=(1.0,), attention_mask=attention_mask, is_causal=is_causal
    )
    want = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, is_causal=is_causal
    )
    assert_close(got, want)


def test_no_gradient_flows_through_hard_votes_but_through_soft_ones():
    query, key, _, _ = random_heads()
    query.requires_grad_()
    assert not reference_graph(query, key).adjacency.requires_grad
    soft = reference_graph(query, key, soft_temperature=1.0).adjacency
    (gradient,) = torch.autograd.grad(soft.sum(), query)
    assert gradient.any()
