"""Propagation along the graph, and the features whose plain products are the heads' scores."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from jat_graph.attention.heads import HeadGroup, JumpHeads, split_heads
from jat_graph.attention.layers import HeadLayers, LayerWalk
from jat_graph.attention.past import PastTokens
from jat_graph.attention.past_stones import StonePast
from jat_graph.attention.roads import Sides, head_by_head, moved, propagate
from jat_graph.attention.strengths import KEYS, QUERIES, Strengths
from jat_graph.config import JatConfig, StoneGraph
from jat_graph.config_fields import HopWeights
from jat_graph.masks.tokens import TokenMask
from jat_graph.operators import (
    BackendChoice,
    NormalizedOperator,
    Operator,
    PartStoneOperator,
    Workload,
    build_operator,
    choose_backend,
)
from jat_graph.voting.ballot import Ballot, open_ballot, score_source
from jat_graph.voting.keys import number_of_keys
from jat_graph.voting.links import LinkRule, expected_share
from jat_graph.voting.parts import PartScores

# Links in causal order, of one side, that a forward pass keeps for backward. More of them are
# computed again, head by head.
MOST_LINKS = 2**23

Past: TypeAlias = PastTokens | StonePast


class Given(NamedTuple):
    """What heads have that no setting says."""

    strength: Tensor | None = None  # that they have learned, [3, hops, heads that jump]
    layers: HeadLayers | None = None  # of PyG, in the place of a product by Â
    graph: Operator | None = None  # in the place of the heads' own

    @property
    def is_no_road(self) -> bool:
        """Whether heads go along their own graph, without layers."""
        return self.layers is None and self.graph is None


def new_past(config: JatConfig) -> Past:
    """Return what nothing leaves behind for heads that jump."""
    return StonePast() if config.graph.kind == "stones" else PastTokens()


def head_groups(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    value: Tensor,  # [B, H, L, Dv]
    jumping: JumpHeads,
    *,
    mask: TokenMask,
    scale: float,
    past: Past | None = None,
    given: Given | None = None,
) -> list[HeadGroup]:
    """Return features whose plain products are the scores, jump heads of the same hops together.

    Ordinary heads come back as the very numbers that were given. Heads of one hop keep their width;
    every further hop widens.
    """
    given = given or Given()
    everyone = tuple(range(query.size(1)))
    if jumping.is_ordinary:
        return [HeadGroup(everyone, query, key, value, jumps=False)]
    others = tuple(head for head in everyone if head not in jumping.heads)
    names = [jumping.heads, others] if others else [jumping.heads]
    queries, keys, values = (split_heads(tensor, names) for tensor in (query, key, value))
    own, *ordinary = zip(queries, keys, values, strict=True)
    groups = _jump_groups(own, jumping, mask, scale, past, given)
    return groups + [HeadGroup(others, *rest, jumps=False) for rest in ordinary]


def _jump_groups(
    own: Sides,
    jumping: JumpHeads,
    mask: TokenMask,
    scale: float,
    past: Past | None,
    given: Given,
) -> list[HeadGroup]:
    """Return the features of jump heads, grouped by their hop weights (Eq. 6 as one product)."""
    if jumping.config.strength is not None:
        return [_strong_group(own, jumping, mask, scale, past, given)]
    assert past is None or isinstance(past, PastTokens)
    (query, key, value), members = own, list(jumping.hop_groups)
    if past is not None and past.length:
        found, nodes = past.extend(query, key[:, :, past.length :], jumping, mask, scale)
    else:
        own_mask = mask.select_heads(jumping.heads)
        operator, nodes = given.graph, None
        if operator is None:
            operator, ballot = graph_operator(query, key, jumping, own_mask, scale)
            nodes = ballot.nodes
        hops = propagate(operator, {QUERIES: query, KEYS: key}, jumping.highest_hop)
        found = [(hop[QUERIES], hop[KEYS]) for hop in hops]
        # What a graph from outside left behind, no next token could go on with.
        if past is not None and given.graph is None:
            assert isinstance(operator, NormalizedOperator)
            past.keep(found, operator, mask)
    by_hop = [
        list(zip(split_heads(queries, members), split_heads(keys, members), strict=True))
        for queries, keys in found
    ]  # [hop][group]
    groups, values = [], split_heads(value, members)
    for number, (group, weights) in enumerate(jumping.hop_groups.items()):
        between = _nodes_between(jumping.config, nodes, group)
        queries, keys = _combine([hop[number] for hop in by_hop], weights, between)
        names = tuple(jumping.heads[place] for place in group)
        features = queries.to(query.dtype), keys.to(key.dtype)
        groups.append(HeadGroup(names, *features, values[number], jumps=True))
    return groups


def _strong_group(
    own: Sides,
    jumping: JumpHeads,
    mask: TokenMask,
    scale: float,
    past: Past | None,
    given: Given,
) -> HeadGroup:
    """Return the features of heads that jump as strongly as θ says, and what they carry."""
    query, key, value = own
    theta = Strengths.of(jumping.config, given.strength, query)
    if isinstance(past, StonePast):
        if past.length and not theta.are_zero():
            return past.extend(own, jumping, mask, scale, theta)
        past.keep(query, mask)
    if theta.are_zero():
        return HeadGroup(jumping.heads, *own, jumps=False)
    mask = mask.select_heads(jumping.heads)
    if given.is_no_road and _keeps_much(query, key, jumping.config, mask):

        def operator_of(place: int, query: Tensor, key: Tensor) -> Operator:
            head = jumping.of_place(place), mask.select_heads((place,))
            return graph_operator(query, key, *head, scale)[0]

        queries, keys, carried = head_by_head(own, theta, operator_of)
    else:
        operator = given.graph or graph_operator(query, key, jumping, mask, scale)[0]
        road = operator if given.layers is None else LayerWalk(given.layers, operator, mask)
        queries, keys, carried = moved(road, own, theta)
    return HeadGroup(jumping.heads, queries, keys, value, jumps=True, carried=carried)


def _keeps_much(query: Tensor, key: Tensor, config: JatConfig, mask: TokenMask) -> bool:
    """Tell whether a forward pass in causal order would keep too many links for backward."""
    whole = mask.causal and mask.part is None and not torch.compiler.is_compiling()
    if config.graph.kind != "stones" or not whole or not needs_gradient(query, key):
        return False
    return query[..., 0].numel() * number_of_keys(config, query.size(2)) > MOST_LINKS


def _nodes_between(
    config: JatConfig, nodes: Tensor | None, group: tuple[int, ...]
) -> Tensor | None:
    """Return the nodes between which scores propagate, ``[B|1, H|1, L, 1]``, or None for all.

    Where all keys vote, all tokens are nodes.
    """
    if config.graph.nodes == "all" or config.graph.key_selection == "all" or nodes is None:
        return None
    return (nodes if nodes.size(1) == 1 else nodes[:, list(group)]).unsqueeze(-1)


def graph_operator(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    jumping: JumpHeads,
    mask: TokenMask,
    scale: float,
) -> tuple[Operator, Ballot]:  # [B, H, L, L]
    """Return Â of heads that all jump (Eq. 2 to 4), or P of stones, and the ballot of it."""
    config, backward = jumping.config, needs_gradient(query, key)
    stones = config.graph.kind == "stones"
    soft = config.graph.soft_temperature is not None or stones
    with torch.set_grad_enabled(soft and torch.is_grad_enabled()):
        # Hard votes are piecewise constant: no gradient flows through them.
        source = score_source(config, query, key, scale, mask)
        ballot = open_ballot(config, source, mask.whole())
        if mask.part is not None:
            rule = LinkRule.of(config, ballot.source)
            links = ballot.links(rule, mask.part.rows)
            return PartStoneOperator(links, rule.self_weight, mask.part, mask.causal), ballot
        backend = explain_backend(jumping, ballot, query.size(-1), backward).backend
        operator = build_operator(config, ballot, backend)
        return operator if stones else NormalizedOperator(operator), ballot


def explain_backend(
    jumping: JumpHeads, ballot: Ballot, head_dim: int, backward: bool
) -> BackendChoice:
    """Return the backend that :func:`graph_operator` takes, and why."""
    config, (batch, heads, length) = jumping.config, ballot.source.shape
    graph = config.graph
    stones = isinstance(graph, StoneGraph)
    sides = 2 if isinstance(graph, StoneGraph) and graph.sides == "both" else 1
    if config.takes_edges and not stones:
        backend = "sparse" if config.graph.soft_temperature is None else "dense"
        return BackendChoice(backend, "edges are pruned, or a layer runs on them")
    if isinstance(ballot.source, PartScores):
        return BackendChoice("dense", "each process holds the links of its own part")
    # Backward multiplies for the features, with stones for the links, too.
    again = (2 if stones else 1) if backward else 0
    work = Workload(
        graphs=batch * heads,
        length=length,
        num_keys=ballot.num_keys * (sides if stones else 1),
        width=2 * head_dim,
        products=jumping.highest_hop * (1 + again),
        causal=ballot.mask.causal,
        backward=backward,
        linked=expected_share(config, heads) if stones else None,
    )
    return choose_backend(config, ballot.mask, work, ballot.source.device.type)


def needs_gradient(*tensors: Tensor) -> bool:
    """Return whether a gradient will flow back to one of the tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _combine(
    hops: list[tuple[Tensor, Tensor]], weights: HopWeights, nodes: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return features whose plain product is Σ_p w_p Φ_p; between nodes only, if there are some.

    The weights go on the query side whole: roots of them would round on both sides.
    """
    if nodes is not None:
        return _combine_selected(hops, weights, nodes)
    terms = [(hop, weight) for hop, weight in zip(hops, weights, strict=False) if weight != 0]
    queries = [query if weight == 1 else query * weight for (query, _), weight in terms]
    return _concatenate(queries), _concatenate([key for (_, key), _ in terms])


def _concatenate(features: list[Tensor]) -> Tensor:
    return features[0] if len(features) == 1 else torch.cat(features, dim=-1)


def _combine_selected(
    hops: list[tuple[Tensor, Tensor]], weights: HopWeights, nodes: Tensor
) -> tuple[Tensor, Tensor]:
    """Return features for Σ_p w_p Φ_p between two nodes, and plain scores everywhere else."""
    inside = nodes.to(hops[-1][0].dtype)  # m, [B, H, L, 1]
    query, key = hops[0]
    here = inside[:, :, -query.size(2) :]  # of the queries, which may be the last tokens only
    queries = [(1 - here) * query, here * query]
    keys = [key, ((1 - inside) + weights[0] * inside) * key]
    for (far_query, far_key), weight in zip(hops[1:], weights[1:], strict=False):
        if weight != 0:
            queries.append(weight * here * far_query)
            keys.append(inside * far_key)
    return torch.cat(queries, dim=-1), torch.cat(keys, dim=-1)
