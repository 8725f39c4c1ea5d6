"""Find the threshold ρ that gives every head's graph the density asked for."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.adjacency.pairs import PairAdjacency
from jat_graph.adjacency.scores import BLOCK
from jat_graph.config import JatConfig, check_calibration
from jat_graph.hf import CapturedLayer, attached_config
from jat_graph.hf.adapter import attach_again, learned_by_heads
from jat_graph.inspection.graphs import LayerGraph, layer_graph, layer_pairs
from jat_graph.inspection.relay import Relay
from jat_graph.inspection.structure import GraphStructure, structure_sums
from jat_graph.inspection.tracing import Inputs, run_model
from jat_graph.progress import track_progress

HOLD_OUT_EVERY = 5
FAR_OFF = 2.0  # a density so many times too high or too low is worth a warning

# Products that are held at a time: 1 MiB in float32, which stays in the cache.
PAIRS = 2**18

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HeadStatistics:
    """How dense one head's graph is.

    Args:
        layer: Layer, from 0.
        head: Head, from 0.
        density: Share of the allowed pairs i ≠ k that at least one key joined; with stones share
            of the allowed links, of a token to a stone, that there are.
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


def calibrate(
    model: PreTrainedModel,
    batches: Iterable[Inputs],
    *,
    density: float = 0.05,
    config: JatConfig | None = None,
) -> JatConfig:
    """Measure the ρ of every jump head that joins the wanted share of token pairs.

    The layers are taken in order, each with the jumps of the layers below it. A pair's critical ρ
    is the largest product with which any key would vote for it; ρ is the (1 − density) quantile of
    these over the allowed pairs i ≠ k of the batches used, as the k-th value, at least 0, and
    infinite where there is no pair. Every fifth batch is held out (the last, if there are two to
    four), and the density reached on those is logged, as a warning where its mean is not within a
    factor of two of the one asked for.

    Runs each layer at most twice on each batch and the model once more for the densities; where
    layers share a module (ALBERT), or an encoder and a decoder both jump, each layer needs a pass.
    Memory: one number a pair and head, and a layer's output for all batches.

    Args:
        model: A model of transformers, with or without jump heads; it comes back as it was.
        batches: Model inputs: ``input_ids``, ``attention_mask`` … (``labels`` are left out).
        density: Share of pairs to join, in (0, 1). (default: 0.05)
        config: The settings, except ``threshold``. (default: the model's own, or the default)

    Returns:
        The config with the table ``threshold[jump layer][jump head]``.

    Raises:
        ValueError: If the density is out of range, there is no batch, ``vote_rate`` is set, or the
            jumps go along stones: their threshold fits all heads as it is.

    Reference:
        The vote is Eq. 2 of the JAT paper, which takes one ρ for all heads.

    Example:
        >>> import jat_graph, torch
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> batches = [{"input_ids": torch.arange(100, 164).view(4, 16)}]
        >>> layer = jat_graph.JatConfig(layers=(2,), heads="all")
        >>> config = jat_graph.calibrate(model, batches, density=0.1, config=layer)
        >>> table = config.graph.threshold
        >>> len(table), len(table[0])  # layers, and heads that jump
        (1, 4)
        >>> model = jat_graph.attach(model, config)
    """
    config = config or attached_config(model) or JatConfig()
    check_calibration(density, config)
    batches = _check_batches(batches)
    step = min(HOLD_OUT_EVERY, len(batches))
    held_out = batches[step - 1 :: step] if step > 1 else []
    used = [batch for n, batch in enumerate(batches, start=1) if step == 1 or n % step]
    before, learned = attached_config(model), learned_by_heads(model)
    try:
        result = config.replace(threshold=_measure_table(model, learned, used, density, config))
        attach_again(model, result, learned)
        for name, some in (("used", used), ("held-out", held_out)):
            if some:
                _log_density(name, graph_statistics(model, some), density)
    finally:
        if attached_config(model) != before:
            attach_again(model, before, learned)
    return result


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
    batches = _check_batches(batches)
    if attached_config(model) is None:
        raise ValueError("model must have jump heads, got none: attach them first")
    totals: dict[tuple[int, int], Tensor] = {}
    for batch in batches:
        for layer in run_model(model, batch, jumps=True)[1]:
            for head, sums in _sums(layer, layer_graph(layer), structure).items():
                totals[head] = totals[head] + sums if head in totals else sums
    return [_statistics(*head, sums) for head, sums in totals.items()]


def layer_statistics(layer: CapturedLayer, graph: LayerGraph | None = None) -> list[HeadStatistics]:
    """Return the statistics of each jump head of one layer, on one batch, perhaps of its graph."""
    found = _sums(layer, graph or layer_graph(layer), structure=False)
    return [_statistics(*head, sums) for head, sums in found.items()]


def _check_batches(batches: Iterable[Inputs]) -> list[Inputs]:
    batches = list(batches)
    if not batches:
        raise ValueError("batches must hold at least one batch, got none")
    return batches


def _measure_table(
    model: PreTrainedModel,
    learned: Mapping[str, Tensor],
    batches: list[Inputs],
    density: float,
    config: JatConfig,
) -> tuple[tuple[float, ...], ...]:
    """Fill the table row by row; the layer being measured has ρ = ∞, those above do not jump."""
    attach_again(model, config.replace(threshold=math.inf), learned)
    relay = Relay(model, batches)
    table: list[tuple[float, ...]] = []
    for row in track_progress(range(len(relay.heads)), "Calibrating", len(relay.heads)):
        below = tuple(layer for layer, _ in relay.heads[: row + 1])
        layers = config.layers if len(below) == len(relay.heads) else below
        infinite = (math.inf,) * len(relay.heads[row][1])
        attach_again(model, config.replace(threshold=(*table, infinite), layers=layers), learned)
        parts = [_critical_values(layer_pairs(layer)) for layer in relay.captured(row)]
        heads = zip(*parts, strict=True)  # one tuple of [pairs] for each head
        table.append(tuple(_quantile(torch.cat(values), 1 - density) for values in heads))
    return tuple(table)


def _quantile(values: Tensor, share: float) -> float:
    """Return the ⌈share · N⌉-th smallest value, at least 0; ∞ where there is none."""
    if values.numel() == 0:
        return math.inf
    rank = min(values.numel(), max(1, math.ceil(share * values.numel())))
    return max(0.0, float(values.kthvalue(rank).values))


def _critical_values(pairs: PairAdjacency) -> list[Tensor]:
    """Return, for each head, the critical ρ of every allowed pair: max_j of the product voted on.

    A pair no key can vote for has −∞. Keys are taken in blocks, so nothing is of size L×L×L.
    """
    batch, heads, length = pairs.source.shape
    dtype, device = pairs.source.dtype, pairs.source.device
    critical = torch.full((batch, heads, length, length), -torch.inf, dtype=dtype, device=device)
    height = max(1, PAIRS // (batch * heads * length))
    for keys in pairs.keys.slices(pairs.source, BLOCK):
        scores, norms = pairs.key_scores(keys)  # [B, H, L, u], max(1, ‖K_j‖) [B, H, u]
        for start, key in product(range(0, length, height), range(scores.size(-1))):
            rows, column = slice(start, start + height), scores[..., key]
            left, right = column[:, :, rows].unsqueeze(-1), column.unsqueeze(-2)
            norm = None if norms is None else norms[..., key, None, None]
            best = critical[:, :, rows]
            # A masked score is NaN: fmax passes it over.
            torch.fmax(best, pairs.rule.product(left, right, norm), out=best)
    allowed = pairs.edge_mask().expand_as(critical)
    return [critical[:, h][allowed[:, h]].cpu() for h in range(heads)]


def _sums(
    layer: CapturedLayer, graph: LayerGraph, structure: bool
) -> dict[tuple[int, int], Tensor]:  # [3], or [8] with structure
    """Return for each head how many entries there may be and are, and the sum of their weights."""
    allowed, weights = graph.entries
    columns = (allowed, weights > 0, weights)
    found = torch.stack([c.sum((0, 2, 3), dtype=torch.float64).cpu() for c in columns], dim=-1)
    if structure:
        found = torch.cat([found, structure_sums(graph)], dim=-1)
    return {(layer.layer, head): sums for head, sums in zip(layer.heads, found, strict=True)}


def _statistics(layer: int, head: int, sums: Tensor) -> HeadStatistics:
    pairs, joined, weight, *rest = sums.tolist()
    density = joined / pairs if pairs else 0.0
    mean = weight / joined if joined else 0.0
    structure = None
    if rest:  # of how many sequences, and sums over them; of none the means are 0
        structure = GraphStructure(*(total / max(rest[0], 1.0) for total in rest[1:]))
    return HeadStatistics(layer, head, density, mean, int(pairs), structure)


def _log_density(name: str, statistics: Sequence[HeadStatistics], wanted: float) -> None:
    reached = [s.density for s in statistics]
    mean = sum(reached) / len(reached)
    spread = f"mean {mean:.4f}, from {min(reached):.4f} to {max(reached):.4f}"
    said = f"density on {name} batches: {spread} over {len(reached)} heads (wanted {wanted:.4f})"
    if wanted / FAR_OFF <= mean <= wanted * FAR_OFF:
        logger.info(said)
    else:
        logger.warning("%s; calibrate on more texts, or on texts like these", said)
