"""How dense the graphs of heads are, and what they look like: degrees, components, the gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.core.extras import import_extra
from jat_graph.graphs.pairs import node_rows
from jat_graph.hf import CapturedLayer
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.jumps.operators import DenseOperator, NormalizedOperator, laplacian_eigenvalues
from jat_graph.looking.inspection.graphs import LayerGraph, layer_graph
from jat_graph.looking.inspection.tracing import Inputs, run_model


@dataclass(frozen=True)
class GraphStructure:
    """What one head's graphs look like: means over the sequences.

    Two tokens are neighbours if one of them is mixed into the other, with the mean of both weights;
    with stones these are the tokens on one stone.

    Args:
        degree: Mean number of neighbours of a token.
        clustering: Mean share of a token's pairs of neighbours that are neighbours themselves; 0
            for a token with fewer than two.
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


@dataclass(frozen=True)
class HeadStatistics:
    """How dense one head's graph is.

    Args:
        layer, head: Which head it is, from 0.
        density: Share of the allowed pairs i ≠ k that are joined; with stones share of the allowed
            links, of a token to a stone, that there are.
        mean_weight: Mean of A over the joined pairs, or of b over the links; 0 where there is none.
        pairs: Number of allowed pairs, or links, over all sequences.
        structure: What the graphs look like, if it was asked for. (default: None)

    Reference:
        A is Eq. 3 of the JAT paper.
    """

    layer: int
    head: int
    density: float
    mean_weight: float
    pairs: int
    structure: GraphStructure | None = None


def graph_statistics(
    model: PreTrainedModel, batches: Iterable[Inputs], *, structure: bool = False
) -> list[HeadStatistics]:
    """Measure the density and the mean weight of every jump head's graph.

    Args:
        model: A model with jump heads.
        batches: Model inputs.
        structure: Measure degrees, clustering, components and the spectral gap, too, which takes
            longer and needs scipy. (default: False)

    Returns:
        One entry for each jump layer and head, in order, pooled over all sequences.

    Raises:
        ValueError: If the model has no jump heads, or there is no batch.

    Reference:
        A is Eq. 3 of the JAT paper; hard votes are counted where the config's are soft.
    """
    totals: dict[tuple[int, int], Tensor] = {}
    for batch in check_batches(batches):
        for layer in run_model(model, batch, kind=AttachedJumps)[1]:
            graph = layer_graph(layer)
            sums = _entry_sums(graph)
            if structure:
                sums = torch.cat([sums, _structure_sums(graph)], dim=-1)
            for head, own in zip(layer.heads, sums, strict=True):
                index = layer.layer, head
                totals[index] = own + totals.get(index, 0)
    return [_statistics(*index, sums) for index, sums in totals.items()]


def layer_statistics(layer: CapturedLayer, graph: LayerGraph) -> list[HeadStatistics]:
    """Return the statistics of each jump head of one layer, on one batch."""
    sums = _entry_sums(graph)
    return [_statistics(layer.layer, *entry) for entry in zip(layer.heads, sums, strict=True)]


def check_batches(batches: Iterable[Inputs]) -> list[Inputs]:
    """Return at least one batch."""
    if isinstance(batches, Mapping):
        raise ValueError("batches must be a list of dictionaries of inputs, got one dictionary")
    batches = list(batches)
    if not batches:
        raise ValueError("batches must hold at least one batch, got none")
    return batches


def _entry_sums(graph: LayerGraph) -> Tensor:  # [H, 3], on the CPU, float64
    """Return for each head how many entries there may be and are, and the sum of their weights."""
    allowed, weights = graph.entries
    columns = (allowed, weights > 0, weights)
    return torch.stack([c.sum((0, 2, 3), dtype=torch.float64).cpu() for c in columns], dim=-1)


def _structure_sums(graph: LayerGraph) -> Tensor:  # [H, 5], on the CPU, float64
    """Return for each head how many sequences have a token, and sums of GraphStructure's fields."""
    connected_components = import_extra("scipy.sparse.csgraph").connected_components
    valid = node_rows(graph.fixed.source, graph.fixed.mask)
    rows = []
    for matrix, own in zip(graph.weights.flatten(0, 1), valid, strict=True):
        weights = matrix[own][:, own]
        weights = (weights + weights.mT) / 2
        joined = (weights > 0).to(weights.dtype)
        if not len(joined):
            rows.append((0.0,) * 5)
            continue
        degree = joined.sum(-1)
        triangles = (joined @ joined * joined).sum(-1)
        clustering = triangles / (degree * (degree - 1)).clamp(min=1)
        components = connected_components(joined.cpu().numpy(), False, return_labels=False)
        gap = 0.0
        if components == 1 < len(joined):
            adj_norm = NormalizedOperator(DenseOperator(weights[None, None]))
            gap = float(laplacian_eigenvalues(adj_norm)[1])
        rows.append((1.0, float(degree.mean()), float(clustering.mean()), float(components), gap))
    return torch.tensor(rows, dtype=torch.float64).view(*graph.weights.shape[:2], 5).sum(0)


def _statistics(layer: int, head: int, sums: Tensor) -> HeadStatistics:
    """Make means of one head's sums, perhaps with those of its structure."""
    pairs, joined, weight, *rest = sums.tolist()
    density = joined / pairs if pairs else 0.0
    mean = weight / joined if joined else 0.0
    structure = None
    if rest:  # of how many sequences, and sums over them; of none the means are 0
        structure = GraphStructure(*(total / max(rest[0], 1.0) for total in rest[1:]))
    return HeadStatistics(layer, head, density, mean, int(pairs), structure)
