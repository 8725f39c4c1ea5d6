"""Propagation along the graph, and the features whose plain products are the heads' scores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.ballot import Ballot, open_ballot
from jat_graph.config import JatConfig
from jat_graph.config_fields import HopWeights
from jat_graph.masks import TokenMask
from jat_graph.operators import (
    BackendChoice,
    NormalizedOperator,
    Workload,
    build_operator,
    choose_backend,
)
from jat_graph.scores import QueryKeyScores
from jat_graph.thresholds import head_thresholds


class HeadGroup(NamedTuple):
    """Heads whose scores are the plain product of these features.

    Args:
        heads: Indices from 0.
        query: ``[B, len(heads), L, F]``.
        key: ``[B, len(heads), L, F]``.
    """

    heads: tuple[int, ...]
    query: Tensor
    key: Tensor


def head_groups(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    heads: tuple[int, ...],
    mask: TokenMask,
    scale: float,
) -> list[HeadGroup]:
    """Return features whose plain products are the scores, heads of one width together.

    Untouched heads come back as the very tensors that were given. Heads of one hop keep their
    width and stay with the ordinary ones; every further hop widens.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        config: The settings over ``heads``.
        heads: The heads that jump.
        mask: The mask for the votes.
        scale: Factor of the scores.

    Returns:
        Groups that cover each head once.

    Raises:
        ValueError: If the mask or the backend does not fit the config.
    """
    if not heads or is_ordinary(config, len(heads)):
        return [HeadGroup(tuple(range(query.size(1))), query, key)]
    everyone = len(heads) == query.size(1)
    members = slice(None) if everyone else list(heads)
    jumping = tuple(_jump_features(query[:, members], key[:, members], config, mask, scale, heads))
    ordinary = tuple(head for head in range(query.size(1)) if head not in heads)
    narrow = [group for group in jumping if group.query.size(-1) == query.size(-1)]
    if ordinary:
        rest = list(ordinary)
        narrow.append(HeadGroup(ordinary, query[:, rest], key[:, rest]))
    wide = [group for group in jumping if group.query.size(-1) != query.size(-1)]
    return ([_join(narrow)] if narrow else []) + wide


def is_ordinary(config: JatConfig, num_heads: int) -> bool:
    """Return whether no head can differ from ordinary attention, whatever its scores.

    Args:
        config: The settings over the heads at hand.
        num_heads: How many there are.

    Returns:
        True if each head has one hop, of weight 1, which is hop 0 or has ρ = ∞.

    Raises:
        ValueError: If a table or a mapping in the config does not fit the heads.
    """
    thresholds = head_thresholds(config, num_heads)
    isolated = [config.vote_rate is None and threshold == math.inf for threshold in thresholds]
    return all(
        [weight for weight in weights if weight != 0] == [1]
        and (weights[0] == 1 or all(isolated[head] for head in heads))
        for heads, weights in config.hop_groups(num_heads).items()
    )


def _join(groups: list[HeadGroup]) -> HeadGroup:
    """Return one group of heads in rising order."""
    names = [group.heads for group in groups]
    return HeadGroup(
        tuple(sorted(head for group in names for head in group)),
        merge_heads(names, [group.query for group in groups]),
        merge_heads(names, [group.key for group in groups]),
    )


def _jump_features(
    query: Tensor,
    key: Tensor,
    config: JatConfig,
    mask: TokenMask,
    scale: float,
    heads: tuple[int, ...],
) -> Iterator[HeadGroup]:
    """Yield the features of jump heads, grouped by their hop weights (Eq. 6 as one product)."""
    groups = config.hop_groups(len(heads))
    highest = max(len(weights) for weights in groups.values()) - 1
    operator, ballot = graph_operator(query, key, config, mask.select_heads(heads), scale)
    queries, keys = _propagate(operator, query, key, highest)
    nodes = None if config.nodes == "all" else ballot.nodes
    for members, weights in groups.items():
        rows = slice(None) if len(members) == len(heads) else list(members)
        hops = [(q[:, rows], k[:, rows]) for q, k in zip(queries, keys, strict=True)]
        chosen = nodes if nodes is None or nodes.size(1) == 1 else nodes[:, rows]
        combined = _combine(hops, weights, chosen)
        yield HeadGroup(
            tuple(heads[member] for member in members),
            combined[0].to(query.dtype),
            combined[1].to(key.dtype),
        )


def graph_operator(
    query: Tensor, key: Tensor, config: JatConfig, mask: TokenMask, scale: float
) -> tuple[NormalizedOperator, Ballot]:
    """Return Â of every head given, and the ballot it comes from.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        config: The settings over these heads.
        mask: The mask for the votes.
        scale: Factor of the scores.

    Returns:
        The operator, ``[B, H, L, L]``, and the ballot.

    Raises:
        ValueError: If the mask or the backend does not fit the config.

    Reference:
        Eq. 2 to 4 of the JAT paper.
    """
    soft = config.soft_temperature is not None
    backward = needs_gradient(query, key)
    with torch.set_grad_enabled(soft and torch.is_grad_enabled()):
        # Hard votes are piecewise constant: no gradient flows through them.
        ballot = open_ballot(config, QueryKeyScores(query, key, scale), mask)
        backend = explain_backend(config, ballot, query.size(-1), backward).backend
        return NormalizedOperator(build_operator(config, ballot, backend)), ballot


def explain_backend(
    config: JatConfig, ballot: Ballot, head_dim: int, backward: bool
) -> BackendChoice:
    """Return the backend that :func:`graph_operator` takes, and why.

    Args:
        config: The settings over these heads.
        ballot: Who votes on which pairs.
        head_dim: Features D of a query, and of a key.
        backward: Whether a gradient will flow back through the products.

    Returns:
        The choice.
    """
    batch, heads, length = ballot.source.shape
    hops = max(len(weights) for weights in config.hop_groups(heads).values()) - 1
    work = Workload(
        graphs=batch * heads,
        length=length,
        num_keys=ballot.num_keys,
        width=2 * head_dim,
        products=hops * (2 if backward else 1),
        causal=ballot.mask.causal,
    )
    return choose_backend(config, ballot.mask, work, ballot.source.device.type)


def needs_gradient(*tensors: Tensor) -> bool:
    """Return whether a gradient will flow back to one of the tensors.

    Args:
        tensors: Any tensors.
    """
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _propagate(
    operator: NormalizedOperator, query: Tensor, key: Tensor, highest: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Return ÂᵖQ and ÂᵖK for each hop p, queries and keys multiplied at once."""
    width = query.size(-1)
    features = torch.cat([query.to(operator.dtype), key.to(operator.dtype)], dim=-1)
    queries, keys = [query.to(operator.dtype)], [key.to(operator.dtype)]
    for _ in range(highest):
        features = operator.matmul(features)
        queries.append(features[..., :width])
        keys.append(features[..., width:])
    return queries, keys


def _combine(
    hops: list[tuple[Tensor, Tensor]], weights: HopWeights, nodes: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return features whose plain product is Σ_p w_p Φ_p; between nodes only, if there are some.

    The weights go on the query side whole: roots of them would round on both sides.
    """
    if nodes is not None:
        return _combine_selected(hops, weights, nodes.unsqueeze(-1))
    terms = [(hop, weight) for hop, weight in zip(hops, weights, strict=False) if weight != 0]
    queries = [query * weight for (query, _), weight in terms]
    return torch.cat(queries, dim=-1), torch.cat([key for (_, key), _ in terms], dim=-1)


def _combine_selected(
    hops: list[tuple[Tensor, Tensor]], weights: HopWeights, nodes: Tensor
) -> tuple[Tensor, Tensor]:
    """Return features for Σ_p w_p Φ_p between two nodes, and plain scores everywhere else."""
    inside = nodes.to(hops[0][0].dtype)  # m, [B, H, L, 1]
    query, key = hops[0]
    queries = [(1 - inside) * query, inside * query]
    keys = [key, ((1 - inside) + weights[0] * inside) * key]
    for (far_query, far_key), weight in zip(hops[1:], weights[1:], strict=False):
        if weight != 0:
            queries.append(weight * inside * far_query)
            keys.append(inside * far_key)
    return torch.cat(queries, dim=-1), torch.cat(keys, dim=-1)


def merge_heads(heads: list[tuple[int, ...]], parts: list[Tensor]) -> Tensor:
    """Put the parts' heads back into rising order, along dimension 1.

    Args:
        heads: The heads of each part, in its order.
        parts: Tensors ``[B, len(heads), ...]``.

    Returns:
        ``[B, H, ...]``.
    """
    if len(parts) == 1:
        return parts[0]
    order = [head for group in heads for head in group]
    place = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat(parts, dim=1)[:, place]
