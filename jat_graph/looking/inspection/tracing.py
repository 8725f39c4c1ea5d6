"""Models run to be looked at, what one jump head did, and heads on clusters for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.heads import HeadGroup
from jat_graph.core.progress import track_progress
from jat_graph.hf import CapturedLayer, attach, attached_config, capture_scores, detach
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.by_name import graph_by_name
from jat_graph.hf.capture import heads_by_layer
from jat_graph.hf.inputs import window_of
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import AttachedHeads, attention_modules, execution_device, transformer_of
from jat_graph.jumps.adjacency.scores import attention_scores
from jat_graph.jumps.config import ClusterGraph, JatConfig, check_clusters
from jat_graph.jumps.heads import JumpHeads, attention_probabilities
from jat_graph.jumps.patterns.dense import pattern_rows
from jat_graph.jumps.propagation import Strengths, head_groups
from jat_graph.looking.inspection.graphs import LayerGraph, layer_graph
from jat_graph.looking.inspection.selection import (
    EncodedText,
    Indices,
    Places,
    choose_heads,
    encode_text,
)

Inputs: TypeAlias = Mapping[str, Any]


def run_model(
    model: PreTrainedModel,
    batch: Inputs,
    *,
    attention: bool = False,
    states: bool = False,
    kind: type[AttachedHeads] | None = None,
) -> tuple[Any, list[CapturedLayer]]:
    """Run a model in evaluation mode, without gradients, labels and cache; it stays as it was."""
    # Returns its outputs, and what its heads of a kind saw.
    if not isinstance(batch, Mapping):
        raise ValueError(f"batches must hold dictionaries of inputs, got {type(batch).__name__}")
    if not hasattr(model, "get_base_model"):  # PEFT's adds inputs of its own
        model = transformer_of(model)
    device = execution_device(model) or model.device
    inputs = {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in batch.items()
        if name != "labels"
    }
    asked = {"output_attentions": attention, "output_hidden_states": states}
    inputs |= {name: True for name, wanted in asked.items() if wanted}
    if getattr(model.config, "use_cache", False):  # which would be filled and thrown away
        inputs = {"use_cache": False} | inputs
    captured: Any = nullcontext([]) if kind is None else capture_scores(model, kind.graphs[0])
    modes = [(module, module.training) for module in model.modules()]
    implementation = model.config._attn_implementation
    # Without heads of ours, only this one shows its attention.
    to_eager = attention and implementation != "eager" and find_attachment(model) is None
    model.eval()  # type: ignore[no-untyped-call]
    try:
        if to_eager:
            model.set_attn_implementation("eager")
        with torch.no_grad(), captured as layers:
            outputs = model(**inputs)
    finally:
        if to_eager:
            model.set_attn_implementation(implementation)
        for module, training in modes:
            module.training = training
    if attention and (not outputs.attentions or any(rows is None for rows in outputs.attentions)):
        raise ValueError("model must give attention probabilities, got none")
    return outputs, layers


def look_at_heads(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    layers: Indices,
    heads: Indices,
    tokens: Places,
    special_tokens: bool,
    kind: type[AttachedHeads] = AttachedJumps,
) -> tuple[EncodedText, Iterator[CapturedLayer]]:
    """Return the text, and what one head after the other sees of it, from one run of the model."""
    # What is not there is refused at once.
    there = heads_by_layer(model, kind)
    if not there:
        raise ValueError(f"model must have {kind.word} heads, got none: attach them first")
    chosen = choose_heads(there, layers, heads, f"{kind.word} ")
    encoded = encode_text(model, tokenizer, text, tokens, special_tokens)

    def seen() -> Iterator[CapturedLayer]:
        _, found = run_model(model, encoded.inputs, kind=kind)
        known = {layer.layer: layer for layer in found}
        for layer, head in track_progress(chosen, "heads", len(chosen), transient=True):
            yield known[layer].of_head(head)

    return encoded, seen()


@dataclass(frozen=True)
class HeadTrace:
    """What one jump head did with a text; a matrix ``[L, L]`` is made when it is asked for."""

    layer: CapturedLayer  # of this head alone

    @cached_property
    def graph(self) -> LayerGraph:
        """What the head jumps along."""
        return layer_graph(self.layer)

    @cached_property
    def groups(self) -> list[HeadGroup]:
        """The head as it jumps, with its keys for values."""
        layer = self.layer
        with torch.no_grad():
            return head_groups(
                layer.query,
                layer.key,
                layer.key,
                JumpHeads.everyone(layer.config, 1),
                mask=layer.mask,
                scale=layer.scale,
                strength=layer.strength,
                layers=layer.conv,
            )

    @property
    def weights(self) -> Tensor:
        """What the graph mixes into each token of every other (Eq. 3)."""
        return self.graph.weights[0, 0]

    @cached_property
    def before(self) -> Tensor:
        """Attention probabilities without propagation."""
        layer = self.layer
        return self._probabilities([HeadGroup((0,), layer.query, layer.key, layer.key, False)])

    @cached_property
    def after(self) -> Tensor:
        """Attention probabilities with it."""
        return self._probabilities(self.groups)

    @property
    def change(self) -> float:
        """The mean over tokens of how much attention the jumps move elsewhere."""
        return float((self.after - self.before).abs().sum(-1).mean()) / 2

    @property
    def scores(self) -> Tensor:
        """X before propagation (Eq. 1)."""
        return attention_scores(self.layer.query, self.layer.key, self.layer.scale)[0, 0]

    @property
    def propagated(self) -> Tensor:
        """The scores after it, scale · Σ_p w_p Φ_p (Eq. 9)."""
        (group,) = self.groups
        return attention_scores(group.query, group.key, self.layer.scale)[0, 0]

    def strengths(self) -> Tensor | None:  # [3, hops]
        """Return θ of queries, keys and values for each hop; None without."""
        layer = self.layer
        if layer.config.strength is None:
            return None
        jumping = JumpHeads.everyone(layer.config, 1)
        return Strengths.of(jumping, layer.strength, layer.query).theta[..., 0]

    def _probabilities(self, groups: list[HeadGroup]) -> Tensor:
        """Return the softmax of the scores that are read: those that a pattern leaves."""
        layer = self.layer
        mask = self.layer.mask
        length = self.layer.query.size(2)
        pattern = layer.config.attention_pattern()
        if pattern is not None:
            rows = pattern_rows(
                pattern.of_head(layer.heads[0]),
                valid=mask.valid,
                num_queries=length,
                num_keys=length,
                device=layer.query.device,
            )
            mask = replace(mask, pairs=rows if mask.pairs is None else rows & mask.pairs)
        attn_mask, is_causal = mask.attention_mask(length, layer.query)
        return attention_probabilities(
            groups, attn_mask=attn_mask, is_causal=is_causal, scale=layer.scale
        )[0, 0]


def cluster_config(model: PreTrainedModel, config: JatConfig | None = None) -> JatConfig:
    """Return settings of clusters, by default those that the model reads with, or else ours."""
    # Without layers, they are for those that clusters can serve.
    if config is None:
        graph = graph_by_name(transformer_of(model).config)
        named = JatConfig.clustered() if graph is None else JatConfig.clustered(graph=graph)
        config = attached_config(model, ClusterGraph) or named
    check_clusters(config)
    if config.layers:
        return config
    found = [e for e in attention_modules(transformer_of(model)) if e.left_alone is None]
    served = tuple(index for index, e in enumerate(found) if window_of(e.module) is None)
    # None if no layer has a window, or all have one, which attach refuses.
    return config.replace(layers=served if 0 < len(served) < len(found) else None)


@contextmanager
def keeping_clusters(model: PreTrainedModel) -> Iterator[Callable[[JatConfig | None], None]]:
    """Yield what gives a model other heads on clusters, or none; then it has its own again."""

    def change(config: JatConfig | None) -> None:
        known = attached_config(model, ClusterGraph)
        if known not in (config, None):
            detach(model, ClusterGraph)
        if config not in (known, None):
            attach(model, config)

    before = attached_config(model, ClusterGraph)
    try:
        yield change
    finally:
        change(before)
