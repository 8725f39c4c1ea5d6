"""The edges of votes over all sequences and heads, pruned while they are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.pairs import PairAdjacency
from jat_graph.adjacency.votes import sum_soft_votes
from jat_graph.operators.rows import VoteRows

# Columns whose maximum, or sum, is taken first. Sums of so few counts are exact in float32.
GROUP = 32

Blocks = Iterator[tuple[slice, Tensor]]  # some queries, and their votes [BH, rows, L]


class Edges(NamedTuple):
    """The edges of one graph over all sequences and heads, and what pruning took from each.

    A node's number is ``(b · H + h) · L + position``.
    """

    edge_index: Tensor  # [2, E], rows (source k, target i), by target, then source
    edge_weight: Tensor  # [E]
    dropped_edges: Tensor  # [BH]
    dropped_weight: Tensor  # [BH], float64


class _Votes(NamedTuple):
    """The votes for some pairs."""

    graph: Tensor  # [E]
    source: Tensor
    target: Tensor
    votes: Tensor


def vote_edges(
    adjacency: PairAdjacency, min_weight: float = 0.0, max_neighbors: int | None = None
) -> Edges:
    """Return the pairs that have a vote and that pruning keeps, with their shares of votes.

    Kept are edges of at least ``min_weight`` that are among the ``max_neighbors`` heaviest into
    their target, ties to the lower source, or whose reverse is. The others are never stored.
    """
    voters = adjacency.voters().expand(adjacency.source.shape).flatten(0, 1)  # [BH, L]
    sums = torch.zeros(2, *voters.shape, dtype=torch.float64, device=voters.device)
    blocks = _summed(_vote_blocks(adjacency), sums)
    if max_neighbors is None:
        parts = [_numbered(part, voters, min_weight) for part in _all_pairs(blocks)]
        code, votes = (torch.cat(part) for part in zip(*parts, strict=True))
    else:
        found = _heaviest_pairs(blocks, voters, min(max_neighbors, voters.size(1)))
        code, votes = _numbered(_both_ways(found, adjacency), voters, min_weight)
    code, votes = _sorted_once(code, votes)
    target, source = code.div(voters.numel(), rounding_mode="floor"), code % voters.numel()
    edge_index, weight = torch.stack([source, target]), votes / voters.flatten()[target]
    return Edges(edge_index, weight, *_dropped(sums, target, votes.detach(), voters))


def _vote_blocks(adjacency: PairAdjacency) -> Blocks:
    if adjacency.rule.soft_temperature is not None:
        votes = sum_soft_votes(adjacency.rule, *adjacency.key_scores())
        votes = votes.masked_fill(~adjacency.edge_mask(), 0.0)
        yield slice(0, adjacency.source.shape[2]), votes.flatten(0, 1)
        return
    for rows, votes in VoteRows(adjacency):
        yield rows, votes.flatten(0, 1)


def _summed(blocks: Blocks, sums: Tensor) -> Blocks:
    """Yield the blocks; write how many edges go into each node ``[2, BH, L]``, and their votes."""
    for rows, votes in blocks:
        sums[0, :, rows] = votes.detach().sign().sum(-1)
        sums[1, :, rows] = _groups(votes.detach()).sum(-1).sum(-1, dtype=torch.float64)
        yield rows, votes


def _all_pairs(blocks: Blocks) -> Iterator[_Votes]:
    """Yield all that have a vote, block by block."""
    for rows, votes in blocks:
        graph, row, source = votes.nonzero(as_tuple=True)
        yield _Votes(graph, source, row + rows.start, votes[graph, row, source])


def _heaviest_pairs(
    blocks: Blocks,
    like: Tensor,  # [BH, L], in the dtype of the votes
    number: int,  # of edges into each node
) -> _Votes:
    """Return those of the heaviest edges into each node."""
    votes = like.new_zeros(*like.shape, number)
    sources = torch.zeros_like(votes, dtype=torch.long)
    # Kept in place: small tensors between blocks would keep the allocator from using them again.
    for rows, block in blocks:
        place = heaviest(block.detach(), number)
        sources[:, rows, : place.size(-1)] = place
        votes[:, rows, : place.size(-1)] = block.gather(-1, place)
    graph, target, place = index = votes.nonzero(as_tuple=True)
    return _Votes(graph, sources[index], target, votes[index])


def heaviest(votes: Tensor, number: int) -> Tensor:  # [..., L] -> [..., min(number, L)]
    """Return where the largest are, in falling order; the first ones among equals."""
    if votes.size(-1) <= GROUP * number:
        return votes.sort(dim=-1, descending=True, stable=True).indices[..., :number]
    # They are in the groups of the highest maxima. Sorting whole rows takes 20 times as long.
    groups = _groups(votes)
    best = heaviest(groups.amax(-1), number).sort(-1).values
    chosen = groups.gather(-2, best.unsqueeze(-1).expand(*best.shape, GROUP)).flatten(-2)
    place = heaviest(chosen, number)
    return best.gather(-1, place // GROUP) * GROUP + place % GROUP


def _groups(votes: Tensor) -> Tensor:  # [..., L] -> [..., ⌈L / GROUP⌉, GROUP]
    rest = -votes.size(-1) % GROUP
    votes = F.pad(votes, (0, rest)) if rest else votes
    return votes.reshape(*votes.shape[:-1], -1, GROUP)


def _both_ways(there: _Votes, adjacency: PairAdjacency) -> _Votes:
    """Return the pairs and their reverse, where there is an edge: it has the same votes."""
    if adjacency.mask.causal:
        return there
    back = there._replace(source=there.target, target=there.source)
    if adjacency.mask.pairs is not None:
        shape = adjacency.source.shape
        pairs = adjacency.mask.pairs.expand(*shape, shape[2])
        place = back.graph // shape[1], back.graph % shape[1], back.target, back.source
        back = _Votes(*(part[pairs[place]] for part in back))
    return _Votes(*map(torch.cat, zip(there, back, strict=True)))


def _numbered(pairs: _Votes, voters: Tensor, min_weight: float) -> tuple[Tensor, Tensor]:
    """Return target · N + source, numbers among all N nodes, and votes of the heavy edges."""
    heavy = pairs.votes / voters[pairs.graph, pairs.target] >= min_weight
    first = pairs.graph * voters.size(1)
    code = (first + pairs.target) * voters.numel() + first + pairs.source
    return code[heavy], pairs.votes[heavy]


def _sorted_once(code: Tensor, votes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the edges in their order, each once."""
    if bool((code.diff() > 0).all()):  # as they are where nothing was pruned, of one graph or block
        return code, votes
    code, order = code.sort(stable=True)
    fresh = code.diff(prepend=code.new_full((1,), -1)) > 0
    return code[fresh], votes[order[fresh]]


def _dropped(
    sums: Tensor,  # Edges into each node, and their votes [2, BH, L]
    target: Tensor,  # of the edges that are kept, [E]
    votes: Tensor,
    voters: Tensor,  # [BH, L]
) -> tuple[Tensor, Tensor]:  # [BH] each
    """Return how many edges each graph has lost, and their weight."""
    kept = torch.stack([torch.ones_like(votes), votes]).double()
    lost = sums.flatten(1).index_add(1, target, kept, alpha=-1).view_as(sums)
    edges = lost[0].sum(-1).long()
    # Sums of soft votes are not exact: something may be left where nothing is lost.
    return edges, (lost[1] / voters).sum(-1).masked_fill(edges == 0, 0.0)
