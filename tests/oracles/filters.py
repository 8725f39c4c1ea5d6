"""Attention that is filtered by a polynomial of itself, with every matrix written out."""

from collections.abc import Sequence

import torch
from torch import Tensor


def reference_gfsa(
    probabilities: Tensor, value: Tensor, weights: Sequence[Tensor | float], order: int
) -> Tensor:
    """Return what a head of GFSA reads.

    H = w₀ I + w₁ P + w_K [P + (K − 1)(P² − P)] is formed, and multiplied with the values. The
    bracket is P to the power of K up to the first term of a series in K around 1.

    Shapes: probabilities ``[n, n]``; value, output ``[n, D]``. Reference: Choi et al., *Graph
    Convolutions Enrich the Self-Attention in Transformers!*, NeurIPS 2024; the pseudocode in
    the README of its released code.
    """
    identity = torch.eye(len(probabilities), dtype=probabilities.dtype)
    power = probabilities + (order - 1) * (probabilities @ probabilities - probabilities)
    own, near, far = weights
    filtered: Tensor = own * identity + near * probabilities + far * power
    return filtered @ value
