"""Find for every head the cheapest clusters whose error stays below a tolerance."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.config import ClusterGraph, JatConfig
from jat_graph.graph_config import ClusterRule
from jat_graph.hf import CapturedLayer
from jat_graph.hf.capture import recording
from jat_graph.hf.cluster_heads import ClusterLayer
from jat_graph.inspection.cluster_heads import change_clusters, cluster_config, keeping_clusters
from jat_graph.inspection.cluster_rows import MEASURES, measure_rows, split_sequences
from jat_graph.inspection.fidelity import Tally
from jat_graph.inspection.relay import Relay
from jat_graph.inspection.tracing import Inputs, run_model
from jat_graph.progress import track_progress

# Of a sequence's √n how many clusters, how many best keys, and how many tokens a block.
LADDER = (
    (1, 8, 4),
    (2, 8, 8),
    (2, 16, 16),
    (4, 16, 16),
    (2, 32, 32),
    (4, 32, 32),
    (2, 32, 64),
    (4, 64, 64),
)
QUERIES = 16  # measured of each head and sequence
ERROR, READ = MEASURES.index("error"), len(MEASURES)

FIELDS = ("clusters", "keys", "block", "dense_below")  # that get a table

logger = logging.getLogger(__name__)


def choose_clusters(
    model: PreTrainedModel,
    used: list[Inputs],
    held_out: list[Inputs],
    tolerance: float,
    config: JatConfig,
) -> JatConfig:
    """Return the config with a rung for each head, and log the errors that are reached."""
    config = cluster_config(model, config)
    with keeping_clusters(model):
        result = _measure_tables(model, used, tolerance, config)
        change_clusters(model, result)
        for name, batches in {"used": used, "held-out": held_out}.items():
            if batches:
                _log_errors(name, model, batches, result, tolerance)
    own = config.cluster_graph.dense_below
    own = None if isinstance(own, tuple) else own
    table = result.cluster_graph.dense_below
    assert isinstance(table, tuple)
    return result.replace(dense_below=[[own if x == 0 else x for x in row] for row in table])


def _log_errors(
    name: str, model: PreTrainedModel, batches: list[Inputs], config: JatConfig, tolerance: float
) -> None:
    """Say how far off heads are, each with the layers below it as they are; warn where it is far.

    What is read densely is off by nothing, and does not count.
    """
    tally = Tally(config, QUERIES)
    with recording(model, ClusterLayer, tally.add_layer):
        for batch in batches:
            run_model(model, batch)
    heads = tally.heads()
    errors = [head.error for head in heads if head.share < 1] or [0.0]
    mean = sum(errors) / len(errors)
    said = f"error on {name} batches: mean {mean:.3f}, at most {max(errors):.3f}"
    dense = sum(head.share == 1 for head in heads)
    said += f" over {len(heads)} heads, {dense} of them dense (tolerance {tolerance:g})"
    if mean <= tolerance:
        logger.info(said)
    else:
        logger.warning("%s; calibrate on more texts, or on texts like these", said)


def _measure_tables(
    model: PreTrainedModel, batches: list[Inputs], tolerance: float, config: JatConfig
) -> JatConfig:
    """Fill the tables layer by layer, those below as chosen and those above dense.

    Sequences of any length are on clusters here.
    """
    rules = _ladder(batches, config)
    dense = ClusterRule(**vars(ClusterGraph(dense_below=math.inf)))
    change_clusters(model, config.replace(**{name: getattr(dense, name) for name in FIELDS}))
    relay = Relay(model, batches, ClusterLayer)
    chosen = [[dense] * len(heads) for _, heads in relay.heads]
    for row in track_progress(range(len(chosen)), "Calibrating", len(chosen)):
        change_clusters(model, _tabled(config, chosen))
        error, read = _measure(relay.captured(row), [dense, *rules], config.seed)
        cheapest = read.masked_fill(error > tolerance, torch.inf).argmin(0).tolist()
        chosen[row] = [[dense, *rules][rung] for rung in cheapest]  # all dense: the first of these
    return _tabled(config, chosen)


def _ladder(batches: list[Inputs], config: JatConfig) -> list[ClusterRule]:
    """Return the rungs, for the longest input."""
    tensors = [x for batch in batches for x in batch.values() if isinstance(x, Tensor)]
    longest = max(x.size(1) for x in tensors if x.dim() > 1)
    graph = config.cluster_graph
    return [
        ClusterRule(
            # By default the number grows with the length.
            None if times == 2 else math.ceil(times * math.sqrt(longest)),
            keys,
            block,
            graph.refine,
            0,
            graph.propagate,
        )
        for times, keys, block in LADDER
    ]


def _measure(
    layers: Iterable[CapturedLayer], rules: list[ClusterRule], seed: int
) -> tuple[Tensor, Tensor]:  # [rungs, H]
    """Return the mean error of each rung, and how many keys and clusters it reads."""
    sums, tokens = torch.zeros(()), 0
    for layer in layers:
        heads = tuple(range(len(layer.heads)))
        for sequence in split_sequences(layer):
            length = sequence.query.size(1)
            found = [measure_rows(sequence, {rule: heads}, QUERIES, seed) for rule in rules]
            sums = sums + torch.stack(found).double().cpu() * length
            tokens += length
    return (sums / tokens)[..., ERROR], (sums / tokens)[..., READ]


def _tabled(config: JatConfig, chosen: list[list[ClusterRule]]) -> JatConfig:
    """Return the config with a rule for each layer and head."""
    return config.replace(
        **{name: [[getattr(rule, name) for rule in row] for row in chosen] for name in FIELDS}
    )
