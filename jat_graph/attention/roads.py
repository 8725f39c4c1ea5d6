"""Roads that features go along, a graph or layers on it: how far, and what is kept of them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from jat_graph.attention.heads import merge_heads, split_heads
from jat_graph.attention.layers import LayerWalk
from jat_graph.attention.strengths import VALUES, Strengths
from jat_graph.operators import Operator

Road: TypeAlias = Operator | LayerWalk
Sides: TypeAlias = tuple[Tensor, Tensor, Tensor]  # queries, keys and values, [B, H, L, ·] each


def propagate(
    road: Road,
    near: dict[int, Tensor],  # by side
    highest: int,
) -> Iterator[dict[int, Tensor]]:
    """Yield Âᵖ x of each side for each hop p, all sides multiplied at once."""
    yield near
    if isinstance(road, LayerWalk):
        for _ in range(highest):
            near = {side: road.walk(side, x) for side, x in near.items()}
            yield near
        return
    widths = [x.size(-1) for x in near.values()]
    features = torch.cat(list(near.values()), dim=-1).to(road.dtype)
    for _ in range(highest):
        features = road.matmul(features)
        # Cut by one operation, whose backward pass writes the gradient once.
        yield dict(zip(near, features.split_with_sizes(widths, dim=-1), strict=True))


def moved(
    road: Road, own: Sides, theta: Strengths, at_once: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return queries and keys, moved along the road as far as θ says, and what values bring.

    One side after the other takes more time than all at once, and less memory.
    """
    near = {side: x for side, x in enumerate(own) if theta.sides[side]}
    parts = [near] if at_once else [{side: x} for side, x in near.items()]
    hops = zip(*(propagate(road, part, theta.hops) for part in parts), strict=True)
    return theta.features(own, [dict(ChainMap(*hop)) for hop in hops][1:])


def head_by_head(
    own: Sides,
    theta: Strengths,
    operator_of: Callable[[int, Tensor, Tensor], Operator],  # one head's, by its place
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the same of heads that keep no graph: backward computes them again, one by one."""
    names: list[tuple[int, ...]] = [(place,) for place in range(own[0].size(1))]
    heads = list(zip(*(split_heads(x, names) for x in own), strict=True))

    def walk(place: int) -> Any:
        def of_head() -> Any:
            operator = operator_of(place, *heads[place][:2])
            return moved(operator, heads[place], theta.of_place(place), at_once=False)

        return checkpoint(of_head, use_reentrant=False, preserve_rng_state=False)

    *features, brought = zip(*(walk(place) for place in range(len(names))), strict=True)
    queries, keys = (merge_heads(names, list(side)) for side in features)
    return queries, keys, merge_heads(names, list(brought)) if theta.sides[VALUES] else None
