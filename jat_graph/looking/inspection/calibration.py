"""Find the threshold ρ that gives every head's graph a density, or the fewest keys of clusters."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.clusters.choice import Rule
from jat_graph.core.compiling import steps
from jat_graph.core.progress import track_progress
from jat_graph.hf import CapturedLayer, attached_config
from jat_graph.hf.adapter import attach_again, learned_by_heads
from jat_graph.hf.capture import recording
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import BLOCK
from jat_graph.jumps.config import ClusterGraph, JatConfig, check_calibration
from jat_graph.looking.inspection.cluster_rows import MEASURES, READ, measure_rows, split_sequences
from jat_graph.looking.inspection.fidelity import Tally
from jat_graph.looking.inspection.graphs import layer_pairs
from jat_graph.looking.inspection.relay import Relay
from jat_graph.looking.inspection.statistics import check_batches, graph_statistics
from jat_graph.looking.inspection.tracing import (
    Inputs,
    change_clusters,
    cluster_config,
    keeping_clusters,
    run_model,
)

DENSITY, TOLERANCE = 0.05, 0.1  # unless others are wanted
HOLD_OUT_EVERY = 5
FAR_OFF = 2.0  # a density so many times too high or too low is worth a warning

# Products that are held at a time: 1 MiB in float32, which stays in the cache.
PAIRS = 2**18

logger = logging.getLogger(__name__)


def calibrate(
    model: PreTrainedModel,
    batches: Iterable[Inputs],
    *,
    density: float | None = None,
    tolerance: float | None = None,
    config: JatConfig | None = None,
) -> JatConfig:
    """Measure the ρ of every jump head that joins the wanted share of pairs, or keys of clusters.

    The layers are taken in order, each with those below as chosen. With pairs, a pair's critical ρ
    is the largest product with which any key would vote for it; ρ is the (1 − density) quantile of
    these over the allowed pairs i ≠ k, as the k-th value, at least 0, and infinite where there is
    no pair. With clusters each head reads the fewest keys of 8, 16, 32 and so on to 512 with which
    its mean error ‖o' − o‖ / ‖o‖ is within the tolerance, and is dense (``dense_below=inf``) where
    none of these is, or none is cheaper; cost is the number of keys that a query reads exactly.
    Errors are those of 16 queries of each head and sequence, as in :func:`jat_graph.fidelity`, and
    sequences of all lengths are on clusters for them.

    Every fifth batch is held out (the last, if there are two to four), and the density or the error
    reached on those is logged, as a warning where the mean density is off by more than a factor of
    two, the mean error of heads on clusters above the tolerance, or no head on clusters.

    Runs each layer at most twice on each batch and the model once more for the log; where layers
    share a module (ALBERT), or an encoder and a decoder both jump, each layer needs a pass. Memory:
    one number a pair and head, none with clusters, and a layer's output for all batches.

    Args:
        model: A model of transformers, with or without heads of ours; it comes back as it was.
        batches: Model inputs: ``input_ids``, ``attention_mask`` … (``labels`` are left out).
        density: Share of pairs to join, in (0, 1). (default: None, with pairs 0.05)
        tolerance: Largest mean error of a head on clusters, above 0. (default: None, with clusters
            0.1)
        config: The settings, except those that are measured. (default: the model's own of that
            kind, or the default; with a tolerance those of clusters)

    Returns:
        The config with the table ``threshold[jump layer][jump head]``, or the tables ``keys`` and
        ``dense_below``.

    Raises:
        ValueError: If the density or the tolerance is out of range or belongs to another graph,
            there is no batch, ``vote_rate`` is set, or the jumps go along stones, whose threshold
            fits all heads.

    Reference:
        The vote is Eq. 2 of the JAT paper, which takes one ρ for all heads.

    Example:
        >>> import jat_graph, torch
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> batches = [{"input_ids": torch.arange(100, 164).view(4, 16)}]
        >>> layer = jat_graph.JatConfig(layers=(2,), heads="all")
        >>> config = jat_graph.calibrate(model, batches, density=0.1, config=layer)
        >>> table = config.jump_graph.threshold
        >>> len(table), len(table[0])  # layers, and heads that jump
        (1, 4)
        >>> model = jat_graph.attach(model, config)
    """
    if config is None and tolerance is not None:
        config = cluster_config(model)
    config = config or attached_config(model) or JatConfig()
    check_calibration(config, density, tolerance)
    batches = check_batches(batches)
    step = min(HOLD_OUT_EVERY, len(batches))
    held_out = batches[step - 1 :: step] if step > 1 else []
    used = [batch for n, batch in enumerate(batches, start=1) if step == 1 or n % step]
    parts = {name: some for name, some in (("used", used), ("held-out", held_out)) if some}
    if isinstance(config.graph, ClusterGraph):
        return choose_clusters(model, parts, TOLERANCE if tolerance is None else tolerance, config)
    return _choose_thresholds(model, parts, DENSITY if density is None else density, config)


def _choose_thresholds(
    model: PreTrainedModel, parts: Mapping[str, list[Inputs]], density: float, config: JatConfig
) -> JatConfig:
    """Return the config with a ρ for each head, and log the densities that are reached."""
    before, learned = attached_config(model), learned_by_heads(model)
    try:
        table = _measure_table(model, learned, parts["used"], density, config)
        result = config.replace(threshold=table)
        attach_again(model, result, learned)
        for name, batches in parts.items():
            reached = [head.density for head in graph_statistics(model, batches)]
            mean = sum(reached) / len(reached)
            spread = f"mean {mean:.4f}, from {min(reached):.4f} to {max(reached):.4f}"
            wanted = f"over {len(reached)} heads (wanted {density:.4f})"
            good = density / FAR_OFF <= mean <= density * FAR_OFF
            _log(f"density on {name} batches: {spread} {wanted}", good)
    finally:
        if attached_config(model) != before:
            attach_again(model, before, learned)
    return result


def _log(said: str, good: bool) -> None:
    """Say what is reached on some batches, and warn where it is far off."""
    if good:
        logger.info(said)
    else:
        logger.warning("%s; calibrate on more texts, or on texts like these", said)


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
        thresholds = []
        for values in map(torch.cat, zip(*parts, strict=True)):  # [pairs] of each head
            rank = math.ceil((1 - density) * len(values))  # from 1
            thresholds.append(max(0.0, float(values.kthvalue(rank).values)) if rank else math.inf)
        table.append(tuple(thresholds))
    return tuple(table)


def _critical_values(pairs: PairAdjacency) -> list[Tensor]:
    """Return each head's critical ρ of allowed pairs, max_j of the product; −∞ without votes."""
    # Keys are taken in blocks, so nothing is of size L×L×L.
    batch, heads, length = pairs.source.shape
    dtype, device = pairs.source.dtype, pairs.source.device
    critical = torch.full((batch, heads, length, length), -torch.inf, dtype=dtype, device=device)
    height = max(1, PAIRS // (batch * heads * length))
    for keys in steps(pairs.num_keys, BLOCK, batch * heads * length):
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


LADDER = (8, 16, 32, 64, 128, 256, 512)  # keys that a token reads exactly
QUERIES = 16  # measured of each head and sequence
ERROR = MEASURES.index("error")

FIELDS = ("keys", "dense_below")  # that get a table


def choose_clusters(
    model: PreTrainedModel, parts: Mapping[str, list[Inputs]], tolerance: float, config: JatConfig
) -> JatConfig:
    """Return the config with a rung for each head, and log the errors that are reached."""
    config = cluster_config(model, config)
    with keeping_clusters(model):
        result = _measure_tables(model, parts["used"], tolerance, config)
        change_clusters(model, result)
        for name, batches in parts.items():
            # What is read densely is off by nothing, and does not count.
            tally = Tally(result, QUERIES)
            with recording(model, AttachedClusters, tally.add_layer):
                for batch in batches:
                    run_model(model, batch)
            heads = tally.heads()
            errors = [head.error for head in heads if head.share < 1] or [0.0]
            mean = sum(errors) / len(errors)
            said = f"error on {name} batches: mean {mean:.3f}, at most {max(errors):.3f}"
            dense = sum(head.share == 1 for head in heads)
            said += f" over {len(heads)} heads, {dense} of them dense (tolerance {tolerance:g})"
            _log(said, mean <= tolerance and dense < len(heads))
    own = config.cluster_graph.dense_below
    own = None if isinstance(own, tuple) else own
    table = result.cluster_graph.dense_below
    assert isinstance(table, tuple)
    return result.replace(dense_below=[[own if x == 0 else x for x in row] for row in table])


def _measure_tables(
    model: PreTrainedModel, batches: list[Inputs], tolerance: float, config: JatConfig
) -> JatConfig:
    """Fill the tables layer by layer, those below as chosen and those above dense."""
    # Sequences of any length are on clusters here.
    rungs = [(None, math.inf), *((keys, 0) for keys in LADDER)]
    change_clusters(model, config.replace(**dict(zip(FIELDS, rungs[0], strict=True))))
    relay = Relay(model, batches, AttachedClusters)
    chosen = [rungs[:1] * len(heads) for _, heads in relay.heads]
    for row in track_progress(range(len(chosen)), "Calibrating", len(chosen)):
        change_clusters(model, _tabled(config, chosen))
        number = len(chosen[row])
        own = config.replace(**dict.fromkeys(FIELDS)).cluster_graph.for_layer(row, number)
        graphs = [replace(own, **dict(zip(FIELDS, rung, strict=True))) for rung in rungs]
        rules = [graph.rules(number, relay.causal[row]) for graph in graphs]
        error, read = _measure(relay.captured(row), rules, config.seed)
        cheapest = read.masked_fill(error > tolerance, torch.inf).argmin(0).tolist()
        chosen[row] = [rungs[rung] for rung in cheapest]  # all dense: the first of these
    return _tabled(config, chosen)


def _measure(
    layers: Iterable[CapturedLayer], rungs: list[dict[Rule, tuple[int, ...]]], seed: int
) -> tuple[Tensor, Tensor]:  # [rungs, H]
    """Return the mean error of each rung, and how many keys it reads."""
    sums, tokens = torch.zeros(()), 0
    for layer in layers:
        for sequence in split_sequences(layer):
            length = sequence.query.size(1)
            found = [measure_rows(sequence, rules, QUERIES, seed) for rules in rungs]
            sums = sums + torch.stack(found).double().cpu() * length
            tokens += length
    return (sums / tokens)[..., ERROR], (sums / tokens)[..., READ]


def _tabled(config: JatConfig, chosen: list[list[Any]]) -> JatConfig:
    """Return the config with a rung for each layer and head."""
    tables = {
        name: [[rung[place] for rung in row] for row in chosen] for place, name in enumerate(FIELDS)
    }
    return config.replace(**tables)
