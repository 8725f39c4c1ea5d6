"""How wrong a fast implementation may be: twice as wrong as the plain one."""

from __future__ import annotations

import torch
from torch import Tensor


def assert_within_budget(
    fast: Tensor, low_precision: Tensor, truth: Tensor, *, factor: float = 2.0, ulps: float = 4.0
) -> None:
    r"""Assert that a result is at most twice as wrong as plain code at the same precision.

    .. math::
        \max |\mathrm{fast} - \mathrm{truth}| \le
        2 \max |\mathrm{low} - \mathrm{truth}| + 4\, \epsilon \max |\mathrm{truth}|

    The last term lets through what no code can avoid, where the plain code happens to be exact.

    Args:
        fast: The result to judge.
        low_precision: The reference at the precision of ``fast``.
        truth: The reference in float64.
        factor: How many times the reference's own error is allowed. (default: 2.0)
        ulps: How many units in the last place of the largest true entry are allowed on top.
            (default: 4.0)

    Shapes:
        - fast, low_precision, truth: any, all the same

    Raises:
        AssertionError: If the budget is exceeded, or the shapes or precisions do not fit.

    Reference:
        The rule of flash-attention's tests.
    """
    if not fast.shape == low_precision.shape == truth.shape:
        shapes = [tuple(t.shape) for t in (fast, low_precision, truth)]
        raise AssertionError(f"fast, low_precision and truth must have one shape, got {shapes}")
    if fast.dtype != low_precision.dtype or truth.dtype != torch.float64:
        dtypes = [t.dtype for t in (fast, low_precision, truth)]
        raise AssertionError(f"want one dtype for fast and low_precision, float64 truth: {dtypes}")
    if truth.numel() == 0:
        return
    floor = ulps * torch.finfo(fast.dtype).eps * truth.abs().max().item()
    error, low_error = (
        (result.detach().double() - truth.detach()).abs().max().item()
        for result in (fast, low_precision)
    )
    budget = factor * low_error + floor
    # Written so that a NaN fails.
    if not error <= budget:
        raise AssertionError(f"error {error:.3e} is above its budget {budget:.3e}")
