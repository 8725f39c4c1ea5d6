"""Propagation along the graph, and the features whose plain products are the heads' scores."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from jat_graph.core.heads import Features, HeadGroup, merge_heads, split_heads
from jat_graph.core.masks import TokenMask
from jat_graph.core.tensors import recomputed
from jat_graph.jumps.adjacency.keys import number_of_keys
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.stones import StoneIncidence
from jat_graph.jumps.config import PairGraph, StoneGraph
from jat_graph.jumps.fields import LEARNED
from jat_graph.jumps.heads import JumpHeads, combine_hops
from jat_graph.jumps.layers import HeadConvs
from jat_graph.jumps.operators import BackendChoice, NormalizedOperator, Operator
from jat_graph.jumps.operators.backends import build_operator, choose_backend, work_for

# Links in causal order, of one side, that a forward pass keeps for backward. More of them are
# computed again, head by head.
MOST_LINKS = 2**23

QUERIES, KEYS, VALUES = range(3)
Hop: TypeAlias = dict[int, Tensor]  # features after some hops, by side
HopPair: TypeAlias = tuple[Tensor, Tensor]  # queries and keys after some hops


def head_groups(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    value: Tensor,  # [B, H, L, Dv]
    jumping: JumpHeads,
    *,
    mask: TokenMask,
    scale: float,
    strength: Tensor | None = None,  # what heads have learned, [3, hops, heads that jump]
    layers: HeadConvs | None = None,  # of PyG, in the place of a product by Â
    external: Operator | None = None,  # in the place of the heads' own graph
) -> list[HeadGroup]:
    """Return features whose plain products are the scores, jump heads of the same hops together."""
    # Ordinary heads come back as the very numbers that were given. Heads of one hop keep their
    # width; every further hop widens.
    everyone = tuple(range(query.size(1)))
    if jumping.is_identity:
        return [HeadGroup(everyone, query, key, value, jumps=False)]
    others = tuple(head for head in everyone if head not in jumping.heads)
    names = [jumping.heads, others] if others else [jumping.heads]
    queries, keys, values = (split_heads(tensor, names) for tensor in (query, key, value))
    own, *ordinary = zip(queries, keys, values, strict=True)
    if jumping.strengths:
        groups = [_gated_group(own, jumping, mask, scale, strength, layers, external)]
    else:
        hops, nodes, _ = pair_hops(*own[:2], jumping, mask, scale, external)
        groups = weighted_groups(hops, nodes, own[2], jumping)
    return groups + [HeadGroup(others, *rest, jumps=False) for rest in ordinary]


def graph_operator(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    jumping: JumpHeads,
    mask: TokenMask,
    scale: float,
) -> tuple[Operator, PairAdjacency | StoneIncidence, BackendChoice]:  # [B, H, L, L]
    """Return Â of heads that all jump (Eq. 2 to 4), or P of stones; all that fixes it; and how."""
    graph = jumping.config.graph
    stones = isinstance(graph, StoneGraph)
    backward = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    # Other votes are piecewise constant.
    soft = not isinstance(graph, PairGraph) or graph.soft_temperature is not None
    with torch.set_grad_enabled(soft and torch.is_grad_enabled()):
        kind = StoneIncidence if stones else PairAdjacency
        fixed: Any = kind.of_heads(jumping.config, query, key, scale, mask)
        width, device = 2 * query.size(-1), query.device.type
        work = work_for(jumping.config, fixed, width, jumping.highest_hop, backward)
        choice = choose_backend(jumping.config, mask, work, device)
        operator = build_operator(jumping.config, fixed, choice.backend)
        return operator if stones else NormalizedOperator(operator), fixed, choice


def propagate(operator: Operator, near: Hop, highest: int) -> Iterator[Hop]:
    """Yield Âᵖ x of each side for each hop p, all sides multiplied at once."""
    yield near
    widths = [x.size(-1) for x in near.values()]
    features = torch.cat(list(near.values()), dim=-1).to(operator.dtype)
    for _ in range(highest):
        features = operator.matmul(features)
        # Cut by one operation, whose backward pass writes the gradient once.
        yield dict(zip(near, features.split_with_sizes(widths, dim=-1), strict=True))


def pair_hops(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    jumping: JumpHeads,
    mask: TokenMask,
    scale: float,
    external: Operator | None = None,
) -> tuple[list[HopPair], Tensor | None, Any]:
    """Return Âᵖ Q and Âᵖ K of each hop p, the nodes between which scores propagate, and Â."""
    operator, nodes = external, None
    if operator is None:
        mask = mask.select_heads(jumping.heads)
        operator, fixed, _ = graph_operator(query, key, jumping, mask, scale)
        assert isinstance(fixed, PairAdjacency)
        nodes = fixed.selected
    hops = propagate(operator, {QUERIES: query, KEYS: key}, jumping.highest_hop)
    return [(hop[QUERIES], hop[KEYS]) for hop in hops], nodes, operator


def weighted_groups(
    hops: list[HopPair],
    nodes: Tensor | None,  # bool [B|1, H|1, L]; None for all tokens
    value: Tensor,  # [B, H, L, Dv]
    jumping: JumpHeads,
) -> list[HeadGroup]:
    """Return the features of jump heads, grouped by their hop weights (Eq. 6 as one product)."""
    members = list(jumping.hop_groups)
    by_hop = [
        list(zip(split_heads(queries, members), split_heads(keys, members), strict=True))
        for queries, keys in hops
    ]  # [hop][group]
    groups, values = [], split_heads(value, members)
    for number, (group, weights) in enumerate(jumping.hop_groups.items()):
        between = None if nodes is None else nodes.unsqueeze(-1)
        if between is not None and between.size(1) > 1:
            between = between[:, list(group)]
        queries, keys = combine_hops([hop[number] for hop in by_hop], weights, between)
        heads = tuple(jumping.heads[index] for index in group)
        features = queries.to(hops[0][0].dtype), keys.to(hops[0][1].dtype)
        groups.append(HeadGroup(heads, *features, values[number], jumps=True))
    return groups


@dataclass(frozen=True)
class Strengths:
    """How far each hop moves queries, keys and values of heads that jump."""

    theta: Tensor  # [3, hops, H], in the dtype of the operator
    sides: tuple[bool, bool, bool]  # which of queries, keys and values ever change

    @classmethod
    def of(cls, jumping: JumpHeads, learned: Tensor | None, like: Tensor) -> Strengths:
        """Return the numbers of the settings, and those learned where these say so."""
        triples = list(zip(*jumping.strengths, strict=True))  # [3][hops]
        takes = [[entry == LEARNED for entry in side] for side in triples]
        fixed = [[0.0 if entry == LEARNED else entry for entry in side] for side in triples]
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        theta = torch.tensor(fixed, dtype=dtype, device=like.device).unsqueeze(-1)
        theta = theta.expand(-1, -1, like.size(1))
        if any(map(any, takes)):
            if learned is None or learned.shape != theta.shape:
                wanted = f"{list(theta.shape)} where the config says {LEARNED!r}"
                got = None if learned is None else list(learned.shape)
                raise ValueError(f"strength must be {wanted}, got {got}")
            where = torch.tensor(takes, device=like.device).unsqueeze(-1)
            theta = torch.where(where, learned.to(dtype), theta)
        query, key, value = (any(t) or any(f) for t, f in zip(takes, fixed, strict=True))
        return cls(theta, (query, key, value))

    def features(
        self,
        near: Features,
        far: Sequence[Mapping[int, Tensor]],  # Pᵖ x of each side that changes, by hop
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return x + Σ_p θ_p (Pᵖ x − x) of queries and of keys, and Σ_p θ_p Pᵖ x of values."""
        theta, moved = self.theta[..., None, None], list(near[:2])  # [3, hops, H, 1, 1]
        for side in (QUERIES, KEYS):
            if self.sides[side]:
                start = near[side].to(theta.dtype)
                hops = [
                    torch.lerp(start, x[side].to(start.dtype), theta[side, hop])
                    for hop, x in enumerate(far)
                ]
                total = reduce(lambda result, hop: result + (hop - start), hops)
                moved[side] = total.to(near[side].dtype)
        if not self.sides[VALUES]:
            return moved[0], moved[1], None
        parts = [theta[VALUES, hop] * x[VALUES] for hop, x in enumerate(far)]
        return moved[0], moved[1], reduce(torch.add, parts).to(near[VALUES].dtype)


def _gated_group(
    own: Features,
    jumping: JumpHeads,
    mask: TokenMask,
    scale: float,
    learned: Tensor | None,
    layers: HeadConvs | None,
    external: Operator | None,
) -> HeadGroup:
    """Return the features of heads that jump as strongly as θ says, and their value update."""
    query, key, value = own
    theta = Strengths.of(jumping, learned, query)
    fixed = any(entry not in (0, LEARNED) for triple in jumping.strengths for entry in triple)
    if not fixed and learned is not None and strength_is_zero(learned):
        return HeadGroup(jumping.heads, *own, jumps=False)
    mask = mask.select_heads(jumping.heads)
    if layers is None and external is None and _keeps_much(query, key, jumping, mask):
        return _head_by_head(own, jumping, mask, scale, theta)
    operator = external or graph_operator(query, key, jumping, mask, scale)[0]
    moving, highest = {i: x for i, x in enumerate(own) if theta.sides[i]}, jumping.highest_hop
    if layers is None:
        _, *far = propagate(operator, moving, highest)
    else:
        _, *far = layers.hops(operator, mask, moving, highest)
    queries, keys, update = theta.features(own, far)
    return HeadGroup(jumping.heads, queries, keys, value, jumps=True, value_update=update)


def _keeps_much(query: Tensor, key: Tensor, jumping: JumpHeads, mask: TokenMask) -> bool:
    """Tell whether a forward pass in causal order would keep too many links for backward."""
    graph = jumping.config.graph
    if not (mask.causal and isinstance(graph, StoneGraph)):
        return False
    backward = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad)
    if torch.compiler.is_compiling() or not backward:
        return False
    return query[..., 0].numel() * number_of_keys(jumping.config, query.size(2)) > MOST_LINKS


def _head_by_head(
    own: Features, jumping: JumpHeads, mask: TokenMask, scale: float, theta: Strengths
) -> HeadGroup:
    """Return the same of heads that keep no graph: backward computes them again, one by one."""
    names: list[tuple[int, ...]] = [(index,) for index in range(own[0].size(1))]
    heads = list(zip(*(split_heads(x, names) for x in own), strict=True))

    def of_head(index: int) -> Any:
        alone, features = jumping.of_head(index), heads[index]
        head_mask = mask.select_heads((index,))
        operator, *_ = graph_operator(features[0], features[1], alone, head_mask, scale)
        # One side after the other takes more time than all at once, and less memory.
        parts = [{side: x} for side, x in enumerate(features) if theta.sides[side]]
        hops = zip(*(propagate(operator, part, jumping.highest_hop) for part in parts), strict=True)
        single = Strengths(theta.theta[..., index : index + 1], theta.sides)
        return single.features(features, [dict(ChainMap(*hop)) for hop in hops][1:])

    found = [recomputed(of_head, index, preserve_rng_state=False) for index in range(len(names))]
    queries, keys, updates = (list(part) for part in zip(*found, strict=True))
    update = merge_heads(names, updates) if theta.sides[VALUES] else None
    features = merge_heads(names, queries), merge_heads(names, keys), own[VALUES]
    return HeadGroup(jumping.heads, *features, jumps=True, value_update=update)


_known: MutableMapping[Tensor, tuple[int, bool]] = WeakTensorKeyDictionary()


def strength_is_zero(strength: Tensor) -> bool:
    """Tell whether learned strengths are all 0, and not being learned just now."""
    hidden = torch.compiler.is_compiling() or strength.is_meta
    if hidden or (torch.is_grad_enabled() and strength.requires_grad):
        return False
    if strength.is_inference() or strength.is_cpu:
        return not bool(strength.any())
    version, is_zero = _known.get(strength, (-1, False))
    if version != strength._version:  # ask the device only after it has changed
        is_zero = not bool(strength.detach().any())
        _known[strength] = strength._version, is_zero
    return is_zero
