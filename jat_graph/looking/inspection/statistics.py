"""How dense the graphs of heads are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.hf import CapturedLayer
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.looking.inspection.graphs import LayerGraph, layer_graph
from jat_graph.looking.inspection.tracing import Inputs, run_model


@dataclass(frozen=True)
class HeadStatistics:
    """How dense one head's graph is.

    Args:
        layer, head: Which head it is, from 0.
        density: Share of the allowed pairs i ≠ k that are joined; with stones share of the allowed
            links, of a token to a stone, that there are.
        mean_weight: Mean of A over the joined pairs, or of b over the links; 0 where there is none.
        pairs: Number of allowed pairs, or links, over all sequences.

    Reference:
        A is Eq. 3 of the JAT paper.
    """

    layer: int
    head: int
    density: float
    mean_weight: float
    pairs: int


def graph_statistics(model: PreTrainedModel, batches: Iterable[Inputs]) -> list[HeadStatistics]:
    """Measure the density and the mean weight of every jump head's graph.

    Args:
        model: A model with jump heads.
        batches: Model inputs.

    Returns:
        One entry for each jump layer and head, in order, pooled over all sequences.

    Raises:
        ValueError: If the model has no jump heads, or there is no batch.

    Reference:
        A is Eq. 3 of the JAT paper; hard votes are counted where the config's are soft.
    """
    layers = (
        layer
        for batch in check_batches(batches)
        for layer in run_model(model, batch, kind=AttachedJumps)[1]
    )
    return pooled_statistics((layer, layer_graph(layer)) for layer in layers)


def pooled_statistics(seen: Iterable[tuple[CapturedLayer, LayerGraph]]) -> list[HeadStatistics]:
    """Return the statistics of each head of layers, pooled over what they saw."""
    totals: dict[tuple[int, int], Tensor] = {}
    for layer, graph in seen:
        allowed, weights = graph.entries
        columns = (allowed, weights > 0, weights)
        sums = torch.stack([c.sum((0, 2, 3), dtype=torch.float64).cpu() for c in columns], dim=-1)
        for head, own in zip(layer.heads, sums, strict=True):
            index = layer.layer, head
            totals[index] = own + totals.get(index, 0)
    found = []
    for (number, head), own in totals.items():
        pairs, joined, weight = own.tolist()
        density = joined / pairs if pairs else 0.0
        mean = weight / joined if joined else 0.0
        found.append(HeadStatistics(number, head, density, mean, int(pairs)))
    return found


def check_batches(batches: Iterable[Inputs]) -> list[Inputs]:
    """Return at least one batch."""
    if isinstance(batches, Mapping):
        raise ValueError("batches must be a list of dictionaries of inputs, got one dictionary")
    batches = list(batches)
    if not batches:
        raise ValueError("batches must hold at least one batch, got none")
    return batches
