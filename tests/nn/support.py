"""What the tests of the attention layers share: features, and comparison with an oracle."""

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from jat_graph.nn import SelfAttention
from tests.inputs import random_padding_mask
from tests.support import assert_equal, assert_within_budget

CHANNELS, HEADS = 12, 3

# What the heads read of one sequence without padding: [n, C] -> H times [n, D].
Oracle = Callable[[SelfAttention, Tensor], list[Tensor]]


def features(*shape: int, width: int = CHANNELS, seed: int = 0) -> Tensor:
    """Return Gaussian float64 features."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, width, dtype=torch.float64, generator=generator)


@st.composite
def padded_features(draw: st.DrawFn) -> tuple[Tensor, Tensor | None]:
    """Draw sequences of odd and even lengths with padding anywhere, or none."""
    batch, length = draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 3, 7, 8, 13)))
    seed = draw(st.integers(0, 2**20))
    side = draw(st.sampled_from((None, "right", "left", "scattered")))
    x = features(batch, length, seed=seed)
    return x, None if side is None else random_padding_mask(batch, length, side=side, seed=seed)


def split(layer: SelfAttention, x: Tensor, memory: Tensor) -> list[tuple[Tensor, ...]]:
    """Return query, key and value of each head of one sequence: [n, D], [M, D], [M, D]."""
    projected = (layer.q(x), layer.k(memory), layer.v(memory))
    return list(zip(*(tensor.chunk(layer.heads, dim=-1) for tensor in projected), strict=True))


def by_oracle(layer: SelfAttention, x: Tensor, mask: Tensor | None, oracle: Oracle) -> Tensor:
    """Return what the layer should give, sequence by sequence, valid tokens only."""
    mask = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    rows = []
    for tokens, valid in zip(x, mask, strict=True):
        row = tokens.new_zeros(tokens.shape)
        if valid.any():
            read = torch.cat(oracle(layer, tokens[valid]), dim=-1)
            row = row.index_put((valid.nonzero().squeeze(-1),), layer.attn_out(read))
        rows.append(row)
    return torch.stack(rows)


def assert_follows(layer: SelfAttention, x: Tensor, mask: Tensor | None, oracle: Oracle) -> None:
    """Compare values, and the gradients of features and parameters, with the oracle's."""
    x = x.clone().requires_grad_()
    assert_same(layer(x, mask), by_oracle(layer, x, mask, oracle), (x, *layer.parameters()))


def assert_same(got: Tensor, want: Tensor, leaves: tuple[Tensor, ...]) -> None:
    """Compare values and the gradients of the leaves, whatever a later layer asks for."""
    assert_equal(got, want)
    cotangent = features(*got.shape[:-1], width=got.size(-1), seed=1)
    gradients = [_gradients(out, leaves, cotangent) for out in (got, want)]
    for ours, theirs in zip(*gradients, strict=True):
        assert_equal(ours, theirs)


def assert_precise(layer: SelfAttention, x: Tensor, oracle: Oracle) -> None:
    """Compare a float64 layer's results in float32 and bfloat16 with the oracle's own errors."""
    truth = by_oracle(layer, x, None, oracle)
    for dtype in (torch.float32, torch.bfloat16):
        low = layer.to(dtype)
        plain = by_oracle(low, x.to(dtype), None, oracle)
        assert_within_budget(low(x.to(dtype)), plain, truth)


def assert_leaks_nothing(layer: SelfAttention, x: Tensor) -> None:
    """Change and cut everything behind each token: what came before stays as it was."""
    out = layer(x)
    for end in range(1, x.size(1)):
        changed = x.clone()
        changed[:, end:] = features(x.size(0), x.size(1) - end, seed=end).to(x.dtype) * 9
        assert torch.equal(layer(changed)[:, :end], out[:, :end])
        assert_equal(layer(x[:, :end]), out[:, :end])


def assert_ignores_padding(layer: SelfAttention, x: Tensor) -> None:
    """Spoil and move the padding: values and gradients of the parameters stay as they are."""
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    mask[0, 5:] = False
    spoilt = x.masked_fill(~mask.unsqueeze(-1), torch.nan)
    moved, moved_mask = spoilt.clone(), mask.clone()
    moved[0], moved_mask[0] = spoilt[0].roll(2, dims=0), mask[0].roll(2)
    results = []
    for tokens, valid in ((x, mask), (spoilt, mask), (moved, moved_mask)):
        out = layer(tokens, valid)
        assert not out[~valid].any()
        results.append((out[valid], *_gradients(out.square().sum(), tuple(layer.parameters()))))
    for clean, *others in zip(*results, strict=True):
        for got in others:
            assert_equal(got, clean)


def assert_finite_without_tokens(layer: nn.Module, x: Tensor) -> None:
    """Mask a whole sequence: zeros and finite gradients."""
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    mask[0] = False
    x = x.clone().requires_grad_()
    out = layer(x, mask)
    assert not out[0].any()
    assert all(grad.isfinite().all() for grad in _gradients(out.sum(), (x, *layer.parameters())))


def _gradients(
    output: Tensor, leaves: tuple[Tensor, ...], cotangent: Tensor | None = None
) -> list[Tensor]:
    """Return the gradients of the leaves; zeros where the output does not depend on them."""
    grads = torch.autograd.grad(output, leaves, cotangent, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, grads, strict=True)]
