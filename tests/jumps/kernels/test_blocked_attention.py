"""Attention in blocks, which CUDA takes where features are wider than its fast kernels."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.jumps import heads as module
from jat_graph.jumps.heads import blocked_attention
from tests.oracles import masked_softmax
from tests.support import MemoryMeter, assert_equal, assert_within_budget, make_mask, random_tensors

MASKS = ("none", "right", "left", "padding bias", "pairs additive", "pairs per head", "empty row")


@st.composite
def calls(draw):
    """Draw queries, keys and values of any widths, a mask, and whether it is causal."""
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    length = draw(st.sampled_from((1, 2, 5, 16, 31)))
    width, value_width = draw(st.tuples(*[st.sampled_from((1, 4, 9))] * 2))
    seed = draw(st.integers(0, 2**20))
    shapes = [(batch, heads, length, size) for size in (width, width, value_width)]
    tensors = random_tensors(seed, *shapes)
    kind, is_causal = draw(st.sampled_from(MASKS)), draw(st.booleans())
    mask, _ = make_mask(kind, batch, heads, length, seed)
    if mask is not None and mask.dim() == 2:
        mask = mask[:, None, None]
    return tensors, mask, is_causal, draw(st.sampled_from((0.3, 1.0)))


def _gradients(function, tensors, mask, is_causal, scale):
    """Return the output and the gradients of a weighted sum of it."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    output = function(*leaves, mask, 0.0, is_causal, scale)
    weights = torch.linspace(-1, 1, output.numel()).view_as(output).to(output.dtype)
    return output, *torch.autograd.grad((output * weights).sum(), leaves)


def _slow(query, key, value, mask, dropout_p, is_causal, scale):
    """Attention by its definition."""
    scores = query @ key.mT * scale
    visible = torch.ones_like(scores, dtype=torch.bool)
    if mask is not None and mask.is_floating_point():
        visible = visible & ~mask.isneginf()
        scores = scores + mask.masked_fill(mask.isneginf(), 0.0)
    elif mask is not None:
        visible = visible & mask
    return masked_softmax(scores, visible.tril() if is_causal else visible) @ value


@pytest.mark.parametrize("block", [1, 40, 2**20])
@given(call=calls())
def test_blocks_are_attention_by_its_definition(block, call):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        got = _gradients(blocked_attention, *call)
    assert_equal(got, _gradients(_slow, *call))


@pytest.mark.parametrize(("queries", "keys"), [(1, 9), (4, 9), (9, 4)])
def test_blocks_take_other_numbers_of_keys(queries, keys):
    tensors = random_tensors(5, (2, 2, queries, 4), (2, 2, keys, 4), (2, 2, keys, 6))
    mask = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(5)) < 0.7
    mask[..., -1] = True
    call = tensors, mask, False, 0.4
    assert_equal(_gradients(blocked_attention, *call), _gradients(_slow, *call))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precisions_keep_their_budget(dtype):
    tensors = [t.to(dtype) for t in random_tensors(3, *[(2, 2, 33, 8)] * 3)]
    exact = _gradients(_slow, [t.double() for t in tensors], None, False, 0.35)
    rough = _gradients(_slow, tensors, None, False, 0.35)
    got = _gradients(blocked_attention, tensors, None, False, 0.35)
    assert all(tensor.dtype == dtype for tensor in got)
    for ours, low, truth in zip(got, rough, exact, strict=True):
        assert_within_budget(ours, low, truth)


def test_blocks_store_nothing_of_size_l_by_l(monkeypatch):
    length = 300
    monkeypatch.setattr(module, "BLOCK", 8 * length)
    leaves = [torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3)]
    mask = torch.rand(1, 1, 1, length) < 0.8
    with MemoryMeter() as meter:
        blocked_attention(*leaves, mask, 0.1, False, 0.3).sum().backward()
    assert meter.largest < length**2 / 8
    assert meter.peak < length**2 * 4


def test_dropout_in_blocks_is_the_same_in_backward(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)
    query, key = random_tensors(0, *[(1, 1, 16, 4)] * 2)
    value = torch.eye(16, dtype=torch.float64)[None, None].requires_grad_()
    rows = blocked_attention(query, key, value, None, 0.4, False, 0.5)
    share = (rows == 0).double().mean()
    assert 0.2 < share < 0.6
    # d(sum of rows · w)/d(value) is rowsᵀ w: the dropped entries must be the same ones.
    weights = torch.randn(1, 1, 16, 16, dtype=torch.float64)
    (grad,) = torch.autograd.grad((rows * weights).sum(), value)
    assert_equal(grad, rows.detach().mT @ weights)
    kept = blocked_attention(query, key, value, None, 0.0, False, 0.5)
    assert_equal(rows.detach(), torch.where(rows == 0, rows, kept / 0.6).detach())
