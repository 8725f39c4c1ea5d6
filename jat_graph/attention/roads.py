"""Roads that features go along, a graph or layers on it: how far, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from jat_graph.attention.heads import HeadGroup, merge_heads, split_heads
from jat_graph.attention.layers import LayerWalk
from jat_graph.attention.strengths import KEYS, QUERIES, VALUES, Strengths
from jat_graph.operators import Operator

Road: TypeAlias = Operator | LayerWalk


def propagate(
    operator: Road, query: Tensor, key: Tensor, highest: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ÂᵖQ and ÂᵖK for each hop p, queries and keys multiplied at once."""
    yield query, key
    if isinstance(operator, LayerWalk):
        for _ in range(highest):
            query, key = operator.walk(QUERIES, query), operator.walk(KEYS, key)
            yield query, key
        return
    width = query.size(-1)
    features = torch.cat([query, key], dim=-1).to(operator.dtype)
    for _ in range(highest):
        features = operator.matmul(features)
        # Cut by one operation, whose backward pass writes the gradient once.
        queries, keys = features.split_with_sizes([width, width], dim=-1)
        yield queries, keys


def moved(road: Road, query: Tensor, key: Tensor, theta: Strengths) -> tuple[Tensor, Tensor]:
    """Return queries and keys, moved along the road as far as θ says."""
    hops = list(propagate(road, query, key, theta.hops))
    queries, keys = (theta.features(side, [hop[side] for hop in hops]) for side in (0, 1))
    return queries.to(query.dtype), keys.to(key.dtype)


def carried(road: Road, value: Tensor, theta: Strengths) -> Tensor:
    """Return what values bring along the road."""
    total: Tensor = torch.zeros((), device=value.device)
    far = value.to(road.dtype)
    for hop in range(theta.hops):
        far = road.matmul(far)
        total = total + theta.of_hop(VALUES, hop) * far
    return total.to(value.dtype)


def group_head_by_head(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    heads: tuple[int, ...],
    theta: Strengths,
    operator_of: Callable[[int, Tensor, Tensor], Operator],  # one head's, by its place
) -> HeadGroup:
    """Return heads that keep no graph: backward computes them again, one after the other."""
    names: list[tuple[int, ...]] = [(place,) for place in range(len(heads))]
    queries, keys = (split_heads(tensor, names) for tensor in (query, key))

    def walk(along: Callable[..., Any], place: int, *features: Tensor) -> Any:
        def of_head() -> Any:
            operator = operator_of(place, queries[place], keys[place])
            return along(operator, *features, theta=theta.of_place(place))

        return checkpoint(of_head, use_reentrant=False, preserve_rng_state=False)

    def carry(value: Tensor) -> Tensor:
        values = split_heads(value, names)
        return merge_heads(names, [walk(carried, *part) for part in enumerate(values)])

    found = [walk(moved, place, queries[place], keys[place]) for place in range(len(names))]
    near, far = (merge_heads(names, list(side)) for side in zip(*found, strict=True))
    carries = carry if theta.sides[VALUES] else None
    return HeadGroup(heads, near, far, jumps=True, carry=carries)
