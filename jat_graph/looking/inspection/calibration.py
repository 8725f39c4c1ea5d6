"""Find the threshold ρ that gives every head's graph a density, or the fewest keys of clusters."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from jat_graph.core.compiling import steps
from jat_graph.core.progress import track_progress
from jat_graph.hf import CapturedLayer, attached_config
from jat_graph.hf.adapter import attach_again, learned_by_heads
from jat_graph.hf.capture import modules_with, recording
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import AttachedHeads, layers_around
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import BLOCK
from jat_graph.jumps.config import ClusterGraph, JatConfig, check_calibration
from jat_graph.looking.inspection.clusters import LENGTH, MEASURES, READ, measure_layer
from jat_graph.looking.inspection.fidelity import Tally
from jat_graph.looking.inspection.graphs import layer_pairs
from jat_graph.looking.inspection.statistics import check_batches, graph_statistics
from jat_graph.looking.inspection.tracing import Inputs, cluster_config, keeping_clusters, run_model

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
    its mean error, as :func:`jat_graph.fidelity` measures it, is within the tolerance, sequences of
    all lengths being on clusters; it is dense (``dense_below=inf``) if none is, or none is cheaper.

    Every fifth batch is held out (the last, if there are two to four), and the density or the error
    reached on those is logged: as a warning where the density is off by more than a factor of two,
    the error above the tolerance, or no head on clusters.

    Each layer runs at most twice on each batch, and once more for the log; where layers share a
    module (ALBERT), or an encoder and a decoder both jump, each layer needs a pass of the model.
    Memory: a layer's output for all batches and, with pairs, a number for each pair and head.

    Args:
        model: A model of transformers, with or without heads of ours; it comes back as it was.
        batches: Model inputs: ``input_ids``, ``attention_mask`` … (``labels`` are left out).
        density: Share of pairs to join, in (0, 1). (default: None, with pairs 0.05)
        tolerance: Largest mean error of a head, above 0. (default: None, with clusters 0.1)
        config: The settings, except those that are measured. (default: the model's own of that
            kind, or the default; with a tolerance those of clusters)

    Returns:
        The config with ``threshold[jump layer][jump head]``, or with ``keys`` and ``dense_below``.

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
    step = max(2, min(HOLD_OUT_EVERY, len(batches)))
    parts = {"used": [batch for n, batch in enumerate(batches, start=1) if n % step]}
    if len(batches) > 1:
        parts["held-out"] = batches[step - 1 :: step]
    if isinstance(config.graph, ClusterGraph):
        return _choose_clusters(model, parts, TOLERANCE if tolerance is None else tolerance, config)
    return _choose_thresholds(model, parts, DENSITY if density is None else density, config)


def _choose_thresholds(
    model: PreTrainedModel, parts: Mapping[str, list[Inputs]], density: float, config: JatConfig
) -> JatConfig:
    """Return the config with a ρ for each head, and log the densities that are reached."""
    before, learned = attached_config(model), learned_by_heads(model)
    try:
        attach_again(model, config.replace(threshold=math.inf), learned)
        relay = Relay(model, parts["used"])
        table: list[Any] = [(math.inf,) * len(heads) for _, heads in relay.heads]
        for row in track_progress(range(len(table)), "Calibrating", len(table)):
            attach_again(model, config.replace(threshold=tuple(table)), learned)
            found = [_critical_values(layer_pairs(layer)) for layer in relay.captured(row)]
            by_head = zip(*found, strict=True)
            limits = []
            for values in map(torch.cat, by_head):  # below which so many are; infinite without one
                rank = math.ceil((1 - density) * len(values))  # from 1
                least = float(values.kthvalue(rank).values) if rank else math.inf
                limits.append(max(0.0, least))
            table[row] = tuple(limits)
        result = config.replace(threshold=tuple(table))
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
    hint = "" if good else "; calibrate on more texts, or on texts like these"
    logger.log(logging.INFO if good else logging.WARNING, "%s%s", said, hint)


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
            rows = slice(start, start + height)
            column = scores[..., key]
            left = column[:, :, rows].unsqueeze(-1)
            right = column.unsqueeze(-2)
            norm = None if norms is None else norms[..., key, None, None]
            best = critical[:, :, rows]
            # A masked score is NaN: fmax passes it over.
            torch.fmax(best, pairs.rule.product(left, right, norm), out=best)
    allowed = pairs.edge_mask().expand_as(critical)
    return [critical[:, h][allowed[:, h]].cpu() for h in range(heads)]


# What heads may be given: to be dense, or so many keys, whatever the length of a sequence.
KEYS = (None, 8, 16, 32, 64, 128, 256, 512)
QUERIES = 16  # measured of each head and sequence
ERROR = MEASURES.index("error")


def _choose_clusters(
    model: PreTrainedModel, parts: Mapping[str, list[Inputs]], tolerance: float, config: JatConfig
) -> JatConfig:
    """Return the config with a number of keys for each head, and log the errors reached."""
    config = cluster_config(model, config)
    whole = config.cluster_graph.dense_below
    with keeping_clusters(model) as change:
        change(config.replace(keys=None, dense_below=math.inf))
        relay = Relay(model, parts["used"], AttachedClusters)
        table: list[Any] = [(None,) * len(heads) for _, heads in relay.heads]
        for row in track_progress(range(len(table)), "Calibrating", len(table)):
            change(_with_keys(config, table))
            number = len(table[row])
            ladder = [_with_keys(config, [(keys,) * number] * len(table)) for keys in KEYS]
            graphs = [rung.cluster_graph.for_layer(row, number) for rung in ladder]
            given = number, relay.causal[row], model.device.type
            rules = [graph.rules(*given) for graph in graphs]
            found = [
                torch.stack([measure_layer(layer, own, QUERIES, config.seed) for own in rules])
                for layer in relay.captured(row)
            ]
            rows = torch.cat(found, dim=1)  # [rungs, sequences, H, 7]
            length = rows[..., LENGTH:]
            means = (rows * length).sum(1) / length.sum(1)
            too_far = means[..., ERROR] > tolerance
            cheapest = means[..., READ].masked_fill(too_far, torch.inf).argmin(0).tolist()
            table[row] = tuple(KEYS[place] for place in cheapest)  # all dense: the first of these
        result = _with_keys(config, table)
        change(result)
        for name, batches in parts.items():
            tally = Tally(result, QUERIES)
            with recording(model, AttachedClusters, tally.add_layer):
                for batch in batches:
                    run_model(model, batch)
            heads = tally.heads()
            # What is read densely is off by nothing, and does not count.
            errors = [head.error for head in heads if head.share < 1] or [0.0]
            mean = sum(errors) / len(errors)
            said = f"error on {name} batches: mean {mean:.3f}, at most {max(errors):.3f}"
            dense = sum(head.share == 1 for head in heads)
            said += f" over {len(heads)} heads, {dense} of them dense (tolerance {tolerance:g})"
            _log(said, mean <= tolerance and dense < len(heads))
    return _with_keys(config, table, None if isinstance(whole, tuple) else whole)


def _with_keys(config: JatConfig, table: list[Any], below: float | None = 0) -> JatConfig:
    """Return the config with the keys of each layer and head, and from which token on."""
    dense = [[math.inf if keys is None else below for keys in row] for row in table]
    return config.replace(keys=table, dense_below=dense)


class Relay:
    """Runs batches up to one layer after another, each from where it came the last time."""

    # The layers are those with heads of one kind, none of which may differ from ordinary ones yet.
    # What a layer gave stands for all layers before it. Where the first batch shows that layers are
    # no chain, as where they share a module, every run goes through the whole model.

    def __init__(
        self,
        model: PreTrainedModel,
        batches: Sequence[Inputs],
        kind: type[AttachedHeads] = AttachedJumps,
    ) -> None:
        self.model, self.batches, self.kind = model, batches, kind
        self._given: list[Any] = [None] * len(batches)  # what the layers before gave
        _, whole = run_model(model, batches[0], kind=kind)
        self.heads = [(layer.layer, layer.heads) for layer in whole]
        self.causal = [layer.mask.causal for layer in whole]
        self._chain, self._rows = _find_chain(model, kind, len(whole))
        for row, layer in enumerate(whole if self._chain else ()):
            alone = self._capture(row, 0)
            same = torch.equal(alone.query, layer.query) and torch.equal(alone.key, layer.key)
            if alone.layer != layer.layer or not same:
                self._chain = []
                break
        self._given[0] = None

    def captured(self, row: int) -> Iterator[CapturedLayer]:
        """Yield what a layer sees of each batch, in order, once those before are final."""
        for number in range(len(self.batches)):
            yield self._capture(row, number)

    def _capture(self, row: int, number: int) -> CapturedLayer:
        batch, given = self.batches[number], self._given[number]
        if not self._chain:
            return run_model(self.model, batch, kind=self.kind)[1][row]
        first = self._rows[row - 1] if row else 0
        last = self._rows[row]
        latest = [given, given]  # what the last layer that ran was given, and what it gave

        def forward(index: int, own: Any, *args: Any, **kwargs: Any) -> Any:
            if first <= index <= last:
                latest[:] = latest[1], own(*args, **kwargs)
            return latest[1]  # others hand on what there is

        for index, layer in enumerate(self._chain):
            layer.forward = partial(forward, index, layer.forward)
        try:
            _, (*_, captured) = run_model(self.model, batch, kind=self.kind)
        finally:
            for layer in self._chain:
                del layer.forward
        self._given[number] = latest[0]
        return captured


def _find_chain(
    model: PreTrainedModel, kind: type[AttachedHeads], rows: int
) -> tuple[list[nn.Module], list[int]]:
    """Return the layers of the list in which all those layers are, and where these are in it."""
    around = layers_around(model, [module for module, _ in modules_with(model, kind)])
    for part in model.modules():
        if isinstance(part, nn.ModuleList) and len(around) == rows and set(around) <= set(part):
            chain = list(part)
            if not any("forward" in vars(layer) for layer in chain):  # as accelerate puts there
                return chain, [chain.index(layer) for layer in around]
    return [], []
