"""The edges of a graph in the order of what they do, and the tokens of the first of them."""

from __future__ import annotations

import torch
from torch import Tensor


def strongest_edges(
    gains: Tensor,  # [n, n]
    weights: Tensor,  # [n, n], 0 where there is no edge
    most: int | None = None,
) -> Tensor:  # rows (i, k), [m, 2]
    """Return the edges by gain, those of one gain by weight; the first ones, or all.

    What is equal keeps the order of the text, so that the list is the same on every machine.
    """
    edges = weights.nonzero()
    gain, weight = (matrix[edges[:, 0], edges[:, 1]] for matrix in (gains, weights))
    if most is not None and most < len(edges):
        enough = gain >= gain.topk(max(1, most)).values[-1]
        edges, gain, weight = edges[enough], gain[enough], weight[enough]
    order = weight.argsort(descending=True, stable=True)
    order = order[gain[order].argsort(descending=True, stable=True)]
    return edges[order[:most]]


def strongest_tokens(gains: Tensor, weights: Tensor, most: int) -> list[int]:
    """Return the places of the first tokens that the strongest edges join, in the text's order."""
    ends = strongest_edges(gains, weights).flatten()
    first = torch.full(gains.shape[:1], len(ends), device=ends.device)
    first.scatter_reduce_(0, ends, torch.arange(len(ends), device=ends.device), "amin")
    return first.argsort(stable=True)[:most].sort().values.tolist()
