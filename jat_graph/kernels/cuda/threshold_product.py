"""Multiply by a sum of threshold graphs in Triton: by running sums, or by counts of pairs."""

from __future__ import annotations

from torch import Tensor

from jat_graph.kernels.cuda.pair_counts import add_one_side
from jat_graph.kernels.cuda.running_sums import add_both


def add_joined(x: Tensor, order: Tensor, reach: Tensor, direction: str) -> Tensor:
    """Return y_i = Σ_j Σ_k 1[j joins (i, k)] x_k.

    Args:
        x: Features ``[G, L, D]``.
        order: Tokens by falling score with each key, ``[G, U, L]``.
        reach: How far the token at each place joins, ``[G, U, L]``.
        direction: "both" for all k, "earlier" for k < i only, or "later" for k > i only.

    Returns:
        Sums ``[G, L, D]``.

    Reference:
        Mahadev & Peled, *Threshold Graphs and Related Topics*, 1995.
    """
    if direction == "both":
        return add_both(x, order, reach)
    return add_one_side(x, order, reach, later=direction == "later")
