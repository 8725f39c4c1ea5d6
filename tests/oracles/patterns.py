"""Which pairs each attention pattern allows: one plain rule a pattern, in Python integers."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Rule = Callable[[int, int, int], bool]  # of head, query and key


def reference_pairs(rule: Rule, heads: int, length: int) -> Tensor:
    """Return the pairs that a rule allows, asked one by one.

    Shapes: output bool ``[heads, length, length]``.
    """
    pairs = torch.zeros(heads, length, length, dtype=torch.bool)
    for head in range(heads):
        for query in range(length):
            for key in range(length):
                pairs[head, query, key] = rule(head, query, key)
    return pairs


def reference_window(width: int) -> Rule:
    """Return the rule of a window: a token sees those fewer than ``width`` away."""
    return lambda head, q, k: abs(q - k) < width


def reference_dilated_window(width: int, dilation: int) -> Rule:
    """Return the rule of a dilated window: every ``dilation``-th token on both sides."""
    return lambda head, q, k: k in [q + dilation * step for step in range(-width + 1, width)]


def reference_local_blocks(block: int, left: int, right: int) -> Rule:
    """Return the rule of local blocks: a token sees its block and some beside it."""
    return lambda head, q, k: q // block - left <= k // block <= q // block + right


def reference_global_tokens(count: int) -> Rule:
    """Return the rule of global tokens: the first ones see all and are seen by all."""
    return lambda head, q, k: q in range(count) or k in range(count)


def reference_causal() -> Rule:
    """Return the rule of causal order: a token sees itself and those before it."""
    return lambda head, q, k: k in range(q + 1)


def reference_strided(stride: int, factors: int = 2) -> tuple[Rule, ...]:
    """Return the rules of strided heads: the last tokens, and every so many-th back.

    Between these two a head sees as many of the last tokens, but every so many-th, for each power
    of the stride.
    """

    def rule(step: int, count: float) -> Rule:
        return lambda head, q, k: k in range(q, -1, -step) and (q - k) // step < count

    last = factors - 1
    return (*(rule(stride**m, stride) for m in range(last)), rule(stride**last, math.inf))


def reference_fixed(stride: int, summary: int, factors: int = 2) -> tuple[Rule, ...]:
    """Return the rules of fixed heads: the own block so far, and the last tokens of blocks.

    Between these two a head sees the last tokens of blocks within a larger block of its own, for
    each power of the stride.
    """

    def rule(block: int, last: int, whole: float) -> Rule:
        ends = range(block - last, block)
        return lambda head, q, k: k <= q and k % block in ends and k // whole == q // whole

    sizes = [stride**m for m in range(1, factors)]
    between = [rule(size, summary, size * stride) for size in sizes[:-1]]
    return (rule(1, 1, stride), *between, rule(sizes[-1], summary, math.inf))


def reference_global_mask(mask: list[bool]) -> Rule:
    """Return the rule of global tokens anywhere: they see all and are seen by all."""
    return lambda head, q, k: mask[q] or mask[k]


def reference_documents(ids: list[int]) -> Rule:
    """Return the rule of packed documents: a token sees its own."""
    return lambda head, q, k: ids[q] == ids[k]
