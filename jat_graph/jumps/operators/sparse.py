"""A as a list of edges: what PyG layers take, exact on short inputs, pruned while it is counted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.core.compiling import in_transform
from jat_graph.core.tensors import add_rows
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.operators.base import Operator
from jat_graph.jumps.operators.threshold import BlockedOperator

if TYPE_CHECKING:
    from torch_geometric.typing import SparseTensor

# Columns whose maximum, or sum, is taken first. Sums of so few counts are exact in float32.
GROUP = 32

Blocks = Iterator[tuple[slice, Tensor]]  # some queries, and their votes [BH, rows, L]


class SparseOperator(Operator):
    """An operator that holds edges, as one block-diagonal matrix over all sequences and heads.

    Args:
        matrix: ``[B·H·L, B·H·L]``, rows are targets: torch CSR, or a ``torch_sparse.SparseTensor``.
        shape: ``(B, H, L, L)``.
        given: Edges from outside, one by one, that the matrix was made of. (default: None)
    """

    def __init__(self, matrix: Tensor | SparseTensor, shape: torch.Size, given: Any = None) -> None:
        self.matrix, self.shape, self.given = matrix, shape, given
        self.dtype = matrix.dtype if isinstance(matrix, Tensor) else matrix.dtype()
        self.device = matrix.device if isinstance(matrix, Tensor) else matrix.device()

    @classmethod
    def of_pairs(cls, pairs: PairAdjacency, max_neighbors: int | None = None) -> SparseOperator:
        """Count the votes in blocks of queries and keep the pairs that :func:`vote_edges` does."""
        edges = vote_edges(pairs, max_neighbors)
        shape = torch.Size((*pairs.source.shape, pairs.source.shape[2]))
        return cls(csr_matrix(edges.edge_index, edges.edge_weight, shape[:3].numel()), shape)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        from torch_geometric.utils import spmm

        product: Tensor = spmm(self.matrix, x.flatten(0, 2))
        return product.view_as(x) + diagonal * x

    def to_edge_index(self) -> tuple[Tensor, Tensor]:
        if isinstance(self.matrix, Tensor):
            edges = self.matrix.to_sparse_coo()  # type: ignore[no-untyped-call]
            return edges.indices().flip(0), edges.values()
        target, source, weight = self.matrix.coo()
        return torch.stack([source, target]), weight


def csr_matrix(edge_index: Tensor, edge_weight: Tensor, num_nodes: int) -> Tensor:  # [N, N]
    """Return edges, by target, then source, none twice, as PyG's ``adj_t``: rows are targets."""
    from torch_geometric.utils import to_torch_csr_tensor  # PyG takes seconds to load

    if in_transform():
        raise ValueError("torch.func does not support a sparse matrix; torch.autograd does")
    size = (num_nodes, num_nodes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)  # that CSR is in beta
        matrix: Tensor = to_torch_csr_tensor(
            edge_index.flip(0), edge_weight, size, is_coalesced=True
        )
    return matrix


class Edges(NamedTuple):
    """The edges of one graph over all sequences and heads, and what pruning took from each."""

    # A node's number is `(b · H + h) · L + position`.

    edge_index: Tensor  # [2, E], rows (source k, target i), by target, then source
    edge_weight: Tensor  # [E]
    dropped_edges: Tensor  # [BH]
    dropped_weight: Tensor  # [BH], float64


class _Votes(NamedTuple):
    graph: Tensor  # [E]
    source: Tensor
    target: Tensor
    votes: Tensor


def vote_edges(adjacency: PairAdjacency, max_neighbors: int | None = None) -> Edges:
    """Return the pairs that have a vote and that pruning keeps, with their shares of votes."""
    # Kept are edges among the `max_neighbors` heaviest into their target, ties to the lower source,
    # or whose reverse is. The others are never stored.
    voters = adjacency.voters().expand(adjacency.source.shape).flatten(0, 1)  # [BH, L]
    # How many edges go into each node, and their votes.
    sums = torch.zeros(2, *voters.shape, dtype=torch.float64, device=voters.device)
    blocks = _vote_blocks(adjacency, sums)
    if max_neighbors is None:
        found = []
        for rows, block in blocks:
            index = graph, row, source = block.nonzero(as_tuple=True)
            pairs = _Votes(graph, source, row + rows.start, block[index])
            found.append(_numbered(pairs, voters))
        code, votes = (torch.cat(some) for some in zip(*found, strict=True))
    else:
        heavy = _heaviest_pairs(blocks, voters, min(max_neighbors, voters.size(1)))
        code, votes = _numbered(_both_ways(heavy, adjacency), voters)
    if not bool((code.diff() > 0).all()):  # as they are in one graph or block, if none was pruned
        code, order = code.sort(stable=True)
        fresh = code.diff(prepend=code.new_full((1,), -1)) > 0
        code, votes = code[fresh], votes[order[fresh]]
    target, source = code.div(voters.numel(), rounding_mode="floor"), code % voters.numel()
    kept = torch.stack([torch.ones_like(votes), votes.detach()]).double()
    add_rows(sums.flatten(1).mT, target, -kept.mT)  # what is left is lost
    dropped = sums[0].sum(-1).long()
    # Sums of soft votes are not exact: something may be left where nothing is lost.
    dropped_weight = (sums[1] / voters).sum(-1).masked_fill(dropped == 0, 0.0)
    weight = votes / voters.flatten()[target]
    return Edges(torch.stack([source, target]), weight, dropped, dropped_weight)


def _vote_blocks(adjacency: PairAdjacency, sums: Tensor) -> Blocks:
    """Yield the blocks; write how many edges go into each node ``[2, BH, L]``, and their votes."""
    if adjacency.rule.soft_temperature is None:
        blocks = BlockedOperator(adjacency).vote_blocks()
    else:
        blocks = iter([(slice(0, adjacency.source.shape[2]), adjacency.soft_votes())])
    for rows, votes in blocks:
        votes = votes.flatten(0, 1)
        sums[0, :, rows] = votes.detach().sign().sum(-1)
        sums[1, :, rows] = _groups(votes.detach()).sum(-1).sum(-1, dtype=torch.float64)
        yield rows, votes


def _heaviest_pairs(blocks: Blocks, like: Tensor, number: int) -> _Votes:
    """Return those of so many of the heaviest edges into each node, of votes like ``[BH, L]``."""
    votes = like.new_zeros(*like.shape, number)
    sources = torch.zeros_like(votes, dtype=torch.long)
    # Into two tensors: small ones between blocks would keep the allocator from using them again.
    for rows, block in blocks:
        best = heaviest(block.detach(), number)
        sources[:, rows, : best.size(-1)] = best
        votes[:, rows, : best.size(-1)] = block.gather(-1, best)
    graph, target, _ = index = votes.nonzero(as_tuple=True)
    return _Votes(graph, sources[index], target, votes[index])


def heaviest(votes: Tensor, number: int) -> Tensor:  # [..., L] -> [..., min(number, L)]
    """Return where the largest are, in falling order; the first ones among equals."""
    if votes.size(-1) <= GROUP * number:
        return votes.sort(dim=-1, descending=True, stable=True).indices[..., :number]
    # They are in the groups of the highest maxima. Sorting whole rows takes 20 times as long.
    groups = _groups(votes)
    best = heaviest(groups.amax(-1), number).sort(-1).values
    chosen = groups.gather(-2, best.unsqueeze(-1).expand(*best.shape, GROUP)).flatten(-2)
    index = heaviest(chosen, number)
    return best.gather(-1, index // GROUP) * GROUP + index % GROUP


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
        index = back.graph // shape[1], back.graph % shape[1], back.target, back.source
        back = _Votes(*(values[pairs[index]] for values in back))
    return _Votes(*map(torch.cat, zip(there, back, strict=True)))


def _numbered(pairs: _Votes, voters: Tensor) -> tuple[Tensor, Tensor]:
    """Return target · N + source, numbers among all N nodes, and votes of the edges."""
    first = pairs.graph * voters.size(1)
    return (first + pairs.target) * voters.numel() + first + pairs.source, pairs.votes
