"""Attention that is filtered by a polynomial of itself, with every matrix written out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def reference_gfsa(
    probabilities: Tensor, value: Tensor, weights: Sequence[Tensor | float], order: int
) -> Tensor:
    """Return what a head of GFSA reads.

    H = w₀ I + w₁ P + w_K [P + (K − 1)(P² − P)] is formed, and multiplied with the values. The
    bracket is P to the power of K up to the first term of a series in K around 1.

    Shapes:
        - probabilities: ``[n, n]``
        - value, output: ``[n, D]``

    Reference:
        Choi et al., *Graph Convolutions Enrich the Self-Attention in Transformers!*, NeurIPS 2024;
        the pseudocode in the README of its released code.
    """
    identity = torch.eye(len(probabilities), dtype=probabilities.dtype)
    power = probabilities + (order - 1) * (probabilities @ probabilities - probabilities)
    own, near, far = weights
    filtered: Tensor = own * identity + near * probabilities + far * power
    return filtered @ value


def reference_ppr(probabilities: Tensor, value: Tensor, restart: float, order: int) -> Tensor:
    """Return what a head reads by attention diffusion, after K steps.

    The steps Z ← (1 − α) P Z + α V from Z = V are summed up to the matrix that they are,
    Σ_{k<K} α (1 − α)ᵏ Pᵏ + (1 − α)ᴷ Pᴷ, personalised PageRank cut off at K.

    Shapes:
        - probabilities: ``[n, n]``
        - value, output: ``[n, D]``

    Reference:
        Wang et al., *Multi-hop Attention Graph Neural Networks*, IJCAI 2021, attention diffusion.
    """
    diffused = (1 - restart) ** order * torch.linalg.matrix_power(probabilities, order)
    for hop in range(order):
        power = torch.linalg.matrix_power(probabilities, hop)
        diffused = diffused + restart * (1 - restart) ** hop * power
    result: Tensor = diffused @ value
    return result
