"""What one jump head did with a text: scores, graph, probabilities; and how models are run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from jat_graph.adjacency.scores import attention_scores
from jat_graph.attention.heads import HeadGroup, attention_probabilities
from jat_graph.attention.jump_heads import JumpHeads
from jat_graph.attention.patterns.dense import pattern_rows
from jat_graph.attention.propagation import Strengths, head_groups
from jat_graph.hf import CapturedLayer, capture_scores
from jat_graph.hf.adapter import find_attachment
from jat_graph.inspection.graphs import LayerGraph, layer_graph
from jat_graph.masks.tokens import TokenMask

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Inputs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class HeadTrace:
    """What one jump head did with a text; a matrix ``[L, L]`` is made when it is asked for."""

    layer: CapturedLayer  # of this head alone

    @cached_property
    def graph(self) -> LayerGraph:
        """What the head jumps along."""
        return layer_graph(self.layer)

    @property
    def weights(self) -> Tensor:
        """What the graph mixes into each token of every other (Eq. 3)."""
        return self.graph.weights[0, 0]

    @property
    def scores(self) -> Tensor:
        """X before propagation (Eq. 1)."""
        return self._scores(self._unchanged)

    @property
    def propagated(self) -> Tensor:
        """The scores after it (Eq. 9)."""
        return self._scores(self._group)

    @cached_property
    def before(self) -> Tensor:
        """Attention probabilities without propagation."""
        return self._probabilities(self._unchanged)

    @cached_property
    def after(self) -> Tensor:
        """Attention probabilities with it."""
        return self._probabilities(self._group)

    def carried(self, keys: list[int]) -> Tensor | None:  # [L, len(keys)]
        """Return how much of the values of some keys comes along the graph, Σ_p θᵛ_p Pᵖ.

        None without strengths, or where a layer stands in the place of the graph.
        """
        query = self.layer.query
        if self.layer.config.strength is None or self.layer.conv is not None:
            return None
        units = query.new_zeros(*query.shape[:3], len(keys))
        units[..., keys, range(len(keys))] = 1
        moved = self._moved(units).value_update
        return units[0, 0] * 0 if moved is None else moved[0, 0]

    @property
    def strengths(self) -> Tensor | None:  # [3, hops]
        """θ of queries, keys and values for each hop; None without."""
        layer = self.layer
        if layer.config.strength is None:
            return None
        return Strengths.of(JumpHeads.everyone(layer.config, 1), layer.strength, layer.query).theta[
            ..., 0
        ]

    @property
    def _unchanged(self) -> HeadGroup:
        """The head as if it did not jump; what its values are changes nothing here."""
        return HeadGroup((0,), self.layer.query, self.layer.key, self.layer.key, jumps=False)

    @cached_property
    def _group(self) -> HeadGroup:
        """The head as it jumps."""
        return self._moved(self.layer.key)

    def _moved(self, value: Tensor) -> HeadGroup:  # [B, 1, L, Dv]
        """Return the head as it jumps with these values."""
        layer, jumping = self.layer, JumpHeads.everyone(self.layer.config, 1)
        with torch.no_grad():
            (group,) = head_groups(
                layer.query,
                layer.key,
                value,
                jumping,
                mask=layer.mask,
                scale=layer.scale,
                strength=layer.strength,
                layers=layer.conv,
            )
        return group

    def _scores(self, group: HeadGroup) -> Tensor:
        """Return scale · Σ_p w_p Φ_p."""
        return attention_scores(group.query, group.key, self.layer.scale)[0, 0]

    def _probabilities(self, group: HeadGroup) -> Tensor:
        query, scale = self.layer.query, self.layer.scale
        attn_mask, is_causal = self._mask.attention_mask(query.size(2), query)
        return attention_probabilities(
            [group], attn_mask=attn_mask, is_causal=is_causal, scale=scale
        )[0, 0]

    @property
    def _mask(self) -> TokenMask:
        """Which scores are read: those that a pattern leaves."""
        layer, pattern = self.layer, self.layer.config.attention_pattern()
        if pattern is None:
            return layer.mask
        length = layer.query.size(2)
        rows = pattern_rows(
            pattern.of_head(layer.heads[0]),
            valid=layer.mask.valid,
            num_queries=length,
            num_keys=length,
            heads=1,
            device=layer.query.device,
        )
        pairs = rows if layer.mask.pairs is None else rows & layer.mask.pairs
        return replace(layer.mask, pairs=pairs)


def capture_batch(model: PreTrainedModel, batch: Inputs) -> list[CapturedLayer]:
    """Return what each jump layer saw of a batch, in evaluation mode and without gradients."""
    inputs = model_inputs(model, batch)
    with evaluating(model), torch.no_grad(), capture_scores(model) as layers:
        model(**inputs)
    return layers


def model_inputs(model: PreTrainedModel, batch: Inputs) -> dict[str, Any]:
    """Return what the model is called with: on its device, without labels, and without a cache."""
    if not isinstance(batch, Mapping):
        raise ValueError(f"batches must hold dictionaries of inputs, got {type(batch).__name__}")
    inputs = {
        name: value.to(model.device) if isinstance(value, Tensor) else value
        for name, value in batch.items()
        if name != "labels"
    }
    # A cache would only be filled and thrown away.
    return {"use_cache": False} | inputs if getattr(model.config, "use_cache", False) else inputs


@contextmanager
def giving_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let a model without heads of ours compute attention in the way that shows it."""
    before = model.config._attn_implementation
    if find_attachment(model) is not None or before == "eager":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def attention_of(outputs: Any) -> tuple[Tensor, ...]:  # [B, H, L, L] each
    """Return the attention probabilities of all layers."""
    rows = outputs.attentions
    if not rows or any(row is None for row in rows):
        raise ValueError("model must give attention probabilities, got none")
    return tuple(rows)


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off, and give every module back the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
