"""Multiply by a sum of threshold graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jat_graph.kernels.choice import implementation
from jat_graph.kernels.ranking import Ranking


def sum_joined(x: Tensor, ranking: Ranking) -> Tensor:
    """Return, for each token, the sum of the rows of ``x`` over all keys and joined tokens.

    For one key the joined tokens are the first or last places of an order, so that all sums are
    read off one running sum of rows, from the strongest end: O(U · L · D), nothing subtracted, no
    edge stored. The graphs are symmetric, so the backward pass is the forward pass.

    Args:
        x: Features ``[B, H, L, D]``, float32 or float64.
        ranking: Whom each key joins.

    Returns:
        y_i = Σ_j Σ_k 1[j joins (i, k)] x_k, the token itself included where it joins itself.

    Shapes:
        - **output:** ``[B, H, L, D]``

    Reference:
        Eq. 3 of the JAT paper times the number of voting keys; Mahadev & Peled, *Threshold Graphs
        and Related Topics*, 1995.
    """
    total: Tensor = _sum_joined(x, ranking.order, ranking.reach)
    return total


@torch.library.custom_op("jat_graph::sum_joined", mutates_args=())
def _sum_joined(x: Tensor, order: Tensor, reach: Tensor) -> Tensor:
    """Multiply; an opaque operator, so that torch.compile does not trace the loops."""
    flat = (tensor.flatten(0, 1).contiguous() for tensor in (x, order, reach))
    total: Tensor = implementation(x.device).add_joined(*flat)
    return total.view(x.shape)


@_sum_joined.register_fake
def _(x: Tensor, order: Tensor, reach: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _keep_ranking(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return _sum_joined(grad, *ctx.saved_tensors), None, None


_sum_joined.register_autograd(_backward, setup_context=_keep_ranking)
