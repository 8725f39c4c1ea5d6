"""What the graphs of heads look like: degrees, clustering, components and the spectral gap."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jat_graph.graphs.pairs import node_rows
from jat_graph.inspection.graphs import LayerGraph
from jat_graph.operators import DenseOperator, NormalizedOperator, laplacian_eigenvalues


@dataclass(frozen=True)
class GraphStructure:
    """What one head's graphs look like: means over the sequences.

    They are those of undirected graphs: two tokens are neighbours if one of them is mixed into the
    other, with the mean of both weights. With stones these are the tokens on one stone.

    Args:
        degree: Mean number of neighbours of a token.
        clustering: Mean over the tokens of the share of pairs of neighbours that are neighbours
            themselves; 0 for a token with fewer than two.
        components: Number of connected components; a token without a neighbour is one.
        gap: The second smallest eigenvalue of the Laplacian I − Â, 0 with several components; see
            :func:`jat_graph.operators.laplacian_eigenvalues`.

    Reference:
        Watts and Strogatz, *Collective dynamics of small-world networks*, 1998; Chung, *Spectral
        Graph Theory*, 1997.
    """

    degree: float
    clustering: float
    components: float
    gap: float


def structure_sums(graph: LayerGraph) -> Tensor:  # [H, 5], on the CPU, float64
    """Return for each head how many sequences have a token, and the sums of what is measured."""
    batch, heads, _ = graph.fixed.source.shape
    valid = node_rows(graph.fixed.source, graph.fixed.mask)
    rows = [
        (1.0, *_measure(weights[own][:, own])) if bool(own.any()) else (0.0,) * 5
        for weights, own in zip(graph.weights.flatten(0, 1), valid, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64).view(batch, heads, 5).sum(0)


def _measure(weights: Tensor) -> tuple[float, float, float, float]:  # [n, n]
    """Return what :class:`GraphStructure` holds, of one graph."""
    from scipy.sparse.csgraph import connected_components  # of the extra 'examples'

    weights = (weights + weights.mT) / 2
    joined = (weights > 0).to(weights.dtype)
    degree = joined.sum(-1)
    triangles = (joined @ joined * joined).sum(-1)
    clustering = triangles / (degree * (degree - 1)).clamp(min=1)
    components = connected_components(joined.cpu().numpy(), directed=False, return_labels=False)
    gap = 0.0
    if components == 1 < len(weights):
        adj_norm = NormalizedOperator(DenseOperator(weights[None, None]))
        gap = float(laplacian_eigenvalues(adj_norm)[1])
    return float(degree.mean()), float(clustering.mean()), float(components), gap
