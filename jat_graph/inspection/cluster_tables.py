"""Find for every head the cheapest clusters whose error stays below a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.config import JatConfig
from jat_graph.graph_config import ClusterRule
from jat_graph.hf import CapturedLayer
from jat_graph.hf.adapter import attach_again
from jat_graph.hf.cluster_layer import ClusterLayer
from jat_graph.inspection.cluster_rows import MEASURES, measure_rows, split_sequences
from jat_graph.inspection.relay import Relay
from jat_graph.inspection.tracing import Inputs
from jat_graph.progress import track_progress

# Of a sequence's √n how many clusters, how many best keys, and how many tokens a block.
LADDER = (
    (1, 8, 4),
    (2, 8, 8),
    (2, 16, 16),
    (4, 16, 16),
    (2, 32, 32),
    (4, 32, 32),
    (4, 64, 32),
    (4, 64, 64),
)
QUERIES = 16  # measured of each head and sequence
ERROR, READ = MEASURES.index("error"), len(MEASURES)


FIELDS = ("clusters", "keys", "block", "dense_below")  # that get a table


def measure_tables(
    model: PreTrainedModel,
    learned: Mapping[str, Tensor],
    batches: Sequence[Inputs],
    tolerance: float,
    config: JatConfig,
) -> JatConfig:
    """Return the config with a rung for each head, where sequences of any length are on clusters.

    The layers are taken in order, those below as chosen, those above dense.
    """
    rules = _ladder(batches, config)
    dense = rules[0]._replace(dense_below=math.inf)
    plain: dict[str, Any] = {name: getattr(dense, name) for name in FIELDS}
    attach_again(model, config.replace(**plain), learned)
    relay = Relay(model, batches, ClusterLayer)
    chosen = [[dense] * len(heads) for _, heads in relay.heads]
    for row in track_progress(range(len(chosen)), "Calibrating", len(chosen)):
        attach_again(model, _tabled(config, chosen), learned)
        error, read = _measure(relay.captured(row), [dense, *rules], config.seed)
        cheapest = read.masked_fill(error > tolerance, torch.inf).argmin(0).tolist()
        chosen[row] = [[dense, *rules][rung] for rung in cheapest]  # all dense: the first of these
    return _tabled(config, chosen)


def _ladder(batches: Sequence[Inputs], config: JatConfig) -> list[ClusterRule]:
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
