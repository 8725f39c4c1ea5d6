"""The graph of one text: from maps of its tokens to words, and to the edges worth keeping."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import scatter


def build_graph(
    hidden: Tensor,  # [n, D]
    maps: Tensor,  # [C, n, n], query by key; overwritten
    min_weight: float,
    max_neighbors: int | None,
) -> Data:
    """Return the graph with an edge (source k, target i) where any map joins i to k."""
    maps.diagonal(dim1=-2, dim2=-1).zero_()
    target, source = joined(maps, min_weight, max_neighbors).nonzero(as_tuple=True)
    edge_index = torch.stack([source, target])
    return Data(x=hidden, edge_index=edge_index, edge_attr=maps[:, target, source].T.contiguous())


def joined(
    maps: Tensor,  # [C, n, n], nothing on the diagonals
    min_weight: float,
    max_neighbors: int | None,
) -> Tensor:  # [n, n] bool
    """Return which pairs are heavy enough, and among the heaviest of their row, in any map."""
    smallest = max(min_weight, torch.finfo(maps.dtype).tiny)  # no weight is no edge
    if max_neighbors is None:
        return (maps >= smallest).any(0)
    heaviest = maps.topk(min(max_neighbors, maps.size(-1)), dim=-1).values
    return (maps >= heaviest[..., -1:].clamp(min=smallest)).any(0)  # ties with the last one stay


def pool_words(
    hidden: Tensor,  # [n, D]
    maps: Tensor,  # [C, n, n]
    words: Tensor,  # [n], -1 for tokens of no word
) -> tuple[Tensor, Tensor, Tensor]:  # [w, D], [C, w, w], [w]
    """Return states and maps of words, and their numbers.

    What goes to a word is the sum over its tokens, what comes from one the mean.
    """
    inside = (words >= 0).nonzero().squeeze(-1)
    numbers, place = torch.unique(words[inside], return_inverse=True)
    maps = scatter(maps[:, inside][:, :, inside], place, dim=2, dim_size=len(numbers))
    maps = scatter(maps, place, dim=1, dim_size=len(numbers), reduce="mean")
    hidden = scatter(hidden[inside], place, dim=0, dim_size=len(numbers), reduce="mean")
    return hidden, maps, numbers
