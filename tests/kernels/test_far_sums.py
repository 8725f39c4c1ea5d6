"""Sums by cluster over far blocks, and back: each form by loops over tokens and blocks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.support import run
from tests.support import assert_equal

forms = pytest.mark.parametrize("form", ["torch", "numba"])
reaches = pytest.mark.parametrize("reach", [(2, 2), (0, 1)])
# Heads, blocks, clusters, numbers, and tokens of a block.
sizes = st.tuples(*(st.integers(1, most) for most in (3, 7, 5, 9, 5)))


def is_far(own, block, reach):
    before, after = reach
    return block <= own - before or block >= own + after


def numbers(shape, dtype=torch.float64):
    """Return sums of blocks, what tokens give back, and their clusters."""
    heads, blocks, clusters, width, size = shape
    generator = torch.Generator().manual_seed(sum(shape))
    sums = torch.randn(heads, blocks, clusters, width, generator=generator, dtype=dtype)
    x = torch.randn(heads, blocks * size, width, generator=generator, dtype=dtype)
    return sums, x, torch.randint(0, clusters, x.shape[:2], generator=generator)


@forms
@reaches
@given(shape=sizes)
def test_each_form_is_a_loop_over_tokens_and_far_blocks(form, reach, shape):
    sums, x, index = numbers(shape)
    gathered, spread = torch.zeros_like(x), torch.zeros_like(sums)
    for head, token in torch.cartesian_prod(*(torch.arange(n) for n in x.shape[:2])).tolist():
        for block in range(shape[1]):
            if is_far(token // shape[4], block, reach):
                cluster = int(index[head, token])
                gathered[head, token] += sums[head, block, cluster]
                spread[head, block, cluster] += x[head, token]
    assert_equal(run("gather", form, sums, index, *reach), gathered)
    assert_equal(run("spread", form, x, index, shape[1:3], *reach), spread)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@reaches
@pytest.mark.parametrize("shape", [(2, 9, 7, 33, 64), (1, 1, 3, 5, 7), (3, 4, 1, 1, 1)])
def test_numba_is_torch_in_each_precision(dtype, reach, shape):
    sums, x, index = numbers(shape, dtype)
    for name, arguments in (
        ("gather", (sums, index, *reach)),
        ("spread", (x, index, shape[1:3], *reach)),
    ):
        ours, theirs = (run(name, form, *arguments) for form in ("numba", "torch"))
        assert ours.dtype == theirs.dtype == dtype
        tolerance = 1e-12 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@forms
def test_what_is_far_cancels_nothing(form):
    """A block that is near, and large, leaves no rounding error in what is far."""
    sums, _, index = numbers((1, 6, 2, 3, 2), torch.float32)
    wanted = run("gather", form, sums, index, 2, 2)[:, 8:10]
    sums[:, 3] *= 1e30  # near to the tokens of block 4
    assert torch.equal(run("gather", form, sums, index, 2, 2)[:, 8:10], wanted)
