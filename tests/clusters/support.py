"""Heads and rules at random, and what trees of ours and of the oracle make of them."""

import math
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.clusters.attend import attend, choose
from jat_graph.clusters.choice import Rule
from tests.oracles import reference_tree_attention
from tests.support import random_tensors

SCALE = 0.7


class Deep(Rule):
    """A rule with many levels, whatever it opens: the highest has at most 8 nodes, if it can."""

    top = 8


RULE = Deep(keys=6, groups=2, size=2, segment=8, window=5, margin=2.0)


def leaves_of(heads: list[Tensor]) -> list[Tensor]:
    return [x.detach().clone().requires_grad_() for x in heads]


def run(
    function: Callable[..., Tensor], heads: list[Tensor], *given: Any, **options: Any
) -> list[Tensor]:
    """Return a function's output for heads, and its gradients."""
    leaves = leaves_of(heads)
    output = function(*leaves, *given, **options)
    cotangent = random_tensors(9, tuple(output.shape))[0].to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, leaves, cotangent)]


def tree_heads(query: Tensor, key: Tensor, value: Tensor, rule: Rule = RULE) -> Tensor:
    """Return what the last tokens read of all: ``[H, T, D]``, ``[Hkv, n, D]``, ``[Hkv, n, Dv]``."""
    return attend(query, key, value, choose(query, key, rule, SCALE), SCALE)


def oracle_heads(query: Tensor, key: Tensor, value: Tensor, rule: Rule = RULE) -> Tensor:
    """Return the same by the oracle."""
    before = query.new_zeros(len(query), key.size(1) - query.size(1), query.size(2))
    heads = torch.cat([before, query], dim=1), key, value
    settings: dict[str, Any] = rule._asdict() | {"top": rule.top, "scale": SCALE}
    output = reference_tree_attention(*(x[None] for x in heads), **settings)[0]
    return output[:, before.size(1) :]


def assert_same(ours: list[Tensor], theirs: list[Tensor], within: float = 1e-10) -> None:
    torch.testing.assert_close(ours, theirs, rtol=within, atol=within)


def random_heads(
    length: int,
    heads: tuple[int, int] = (4, 2),
    *,
    rows: int = 0,
    seed: int = 0,
    widths: tuple[int, int] = (5, 3),
) -> list[Tensor]:
    """Return heads of so many tokens, of which the last ``rows`` ask, or all."""
    shapes = (heads[0], rows or length), (heads[1], length), (heads[1], length)
    shapes = [(*shape, width) for shape, width in zip(shapes, (widths[0], *widths), strict=True)]
    return random_tensors(seed, *shapes)


def with_twins(key: Tensor) -> Tensor:
    """Let every second key be equal to the one before it."""
    return key[:, torch.arange(key.size(1)) // 2 * 2]


@st.composite
def cases(draw: st.DrawFn, longest: int = 120) -> tuple[list[Tensor], Rule]:
    """Draw trees of up to four levels; rows may fill vectors, be shorter, or have a rest."""
    size = draw(st.sampled_from((1, 2, 3, 8)))
    settings = {
        "keys": draw(st.sampled_from((0, 1, 4, 9))),
        "groups": draw(st.integers(0, 3)),
        "size": size,
        "segment": size * draw(st.sampled_from((1, 2, 4))),
        "window": draw(st.sampled_from((1, 3, 16))),
        "dense_below": draw(st.sampled_from((0, 0, 50))),
        "rest": draw(st.integers(0, 3)) > 0,
        "margin": draw(st.sampled_from((0.0, 1.0, 2.0, math.inf))),
        "causal": draw(st.booleans()),
    }
    settings["window"] -= not settings["causal"]  # where no token need read all
    length, seed = draw(st.integers(1, longest)), draw(st.integers(0, 999))
    number = draw(st.sampled_from(((1, 1), (2, 2), (3, 1), (4, 2))))
    widths = draw(st.sampled_from(((5, 3), (16, 32), (37, 16))))
    rows = min(draw(st.integers(0, 17)), length)
    heads = random_heads(length, number, rows=rows, seed=seed, widths=widths)
    if draw(st.booleans()) and size % 2 == 0:  # or equal keys would be clusters of their own
        heads[1] = with_twins(heads[1])
    return heads, draw(st.sampled_from((Rule, Deep)))(**settings)
