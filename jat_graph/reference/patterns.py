"""Which pairs each attention pattern allows: one plain rule a pattern, in Python integers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from jat_graph.reference.jump import masked_softmax

Rule = Callable[[int, int, int], bool]  # of head, query and key


def reference_pairs(rule: Rule, heads: int, length: int) -> Tensor:
    """Return the pairs that a rule allows, asked one by one.

    Args:
        rule: Of a head, a query and a key.
        heads: Number of heads.
        length: Number of tokens.

    Shapes:
        - **output:** bool ``[heads, length, length]``

    Returns:
        Which query attends to which key.

    Reference:
        The rules below give theirs.
    """
    pairs = torch.zeros(heads, length, length, dtype=torch.bool)
    for head in range(heads):
        for query in range(length):
            for key in range(length):
                pairs[head, query, key] = rule(head, query, key)
    return pairs


def reference_pattern_attention(
    query: Tensor, key: Tensor, value: Tensor, pairs: Tensor, scale: float
) -> Tensor:
    """Return attention over allowed pairs; a query without any gets 0.

    Args:
        query: Queries.
        key: Keys.
        value: Values.
        pairs: Which query attends to which key.
        scale: Factor of the scores.

    Shapes:
        - query, key: ``[B, H, L, D]``; value: ``[B, H, L, Dv]``
        - pairs: bool ``[B|1, H|1, L, L]``
        - **output:** ``[B, H, L, Dv]``

    Returns:
        The heads' outputs.

    Reference:
        Vaswani et al. (2017), Eq. 1.
    """
    scores = query @ key.transpose(-1, -2) * scale
    return masked_softmax(scores, pairs.expand(scores.shape)) @ value


def reference_window(width: int) -> Rule:
    """A token sees those fewer than ``width`` away."""
    return lambda head, q, k: abs(q - k) < width


def reference_dilated_window(width: int, dilation: int) -> Rule:
    """A token sees every ``dilation``-th one, itself and ``width`` - 1 on each side."""
    return lambda head, q, k: k in [q + dilation * step for step in range(-width + 1, width)]


def reference_local_blocks(block: int, left: int, right: int) -> Rule:
    """A token sees its block, and so many to the left and to the right."""
    return lambda head, q, k: q // block - left <= k // block <= q // block + right


def reference_global_tokens(count: int) -> Rule:
    """The first ``count`` tokens see all and are seen by all."""
    return lambda head, q, k: q in range(count) or k in range(count)


def reference_causal() -> Rule:
    """A token sees itself and those before it."""
    return lambda head, q, k: k in range(q + 1)


def reference_strided(stride: int) -> tuple[Rule, Rule]:
    """Return the two kinds of heads: the last ``stride`` tokens, and each ``stride``-th back."""
    return (
        lambda head, q, k: k in range(q - stride + 1, q + 1),
        lambda head, q, k: k in range(q, -1, -stride),
    )


def reference_fixed(stride: int, summary: int) -> tuple[Rule, Rule]:
    """Return the two kinds of heads: the own block, and the last ``summary`` tokens of blocks."""
    places = range(stride - summary, stride)
    return (
        lambda head, q, k: k <= q and q // stride == k // stride,
        lambda head, q, k: k <= q and k % stride in places,
    )


def reference_documents(ids: list[int]) -> Rule:
    """A token sees its own document."""
    return lambda head, q, k: ids[q] == ids[k]
