"""Neighbours of jumps: attention of a higher order, and attention filtered by itself."""

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor


def reference_nexus(x: Tensor, weights: Sequence[Tensor], heads: int) -> Tensor:
    """Return what the heads of second-order attention read.

    Attention(Y) = softmax(Y W_q (Y W_k)ᵀ / √D) Y W_v, head by head, is what tokens Y read of each
    other. Its outputs for Y = X W_q and for Y = X W_k, all by the same three matrices, are the
    queries and keys of the attention that reads X W_v.

    Shapes: x, output ``[n, C]``; weights ``[C, C]`` each. Reference: Chen et al., *Nexus:
    Higher-Order Attention Mechanisms in Transformers*, 2025, with its shared weights; the
    formula is that of a published review of it.
    """
    to_query, to_key, to_value = weights

    def attention(tokens: Tensor) -> Tensor:
        return _read(tokens @ to_query, tokens @ to_key, tokens @ to_value, heads)

    return _read(attention(x @ to_query), attention(x @ to_key), x @ to_value, heads)


def _read(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """What each token reads in each head, side by side."""
    parts = [
        (q @ k.T / sqrt(q.size(1))).softmax(-1) @ v
        for q, k, v in zip(*(y.chunk(heads, 1) for y in (query, key, value)), strict=True)
    ]
    return torch.cat(parts, 1)


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
