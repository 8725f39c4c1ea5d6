"""What reads all keys is attention, and has its gradients."""

import clustered_attention
import pytest
import torch
import torch.nn.functional as F


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reading_all_keys_is_attention(is_causal, dtype):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    shapes = (1, 4, 700, 64), (1, 2, 700, 64), (1, 2, 700, 64)
    leaves = [torch.randn(x, device=device, dtype=dtype, requires_grad=True) for x in shapes]
    options = {"is_causal": is_causal, "dense_below": 0, "keys": 700, "groups": 64}
    ours = clustered_attention.clustered_attention(*leaves, **options, margin=float("inf"))
    theirs = F.scaled_dot_product_attention(*leaves, is_causal=is_causal, enable_gqa=True)
    within = 1e-4 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(ours, theirs, rtol=within, atol=within)
    grads = (torch.autograd.grad(x.square().sum(), leaves) for x in (ours, theirs))
    torch.testing.assert_close(*grads, rtol=within, atol=10 * within)
