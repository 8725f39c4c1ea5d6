"""Everything one layer's jump heads did with a batch: scores, graph, probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from jat_graph.attention.heads import HeadGroup, JumpHeads, merge_heads
from jat_graph.attention.propagation import Given, head_groups
from jat_graph.attention.softmax import attention_probabilities
from jat_graph.attention.strengths import Strengths
from jat_graph.hf import CapturedLayer, capture_scores
from jat_graph.inspection.graphs import LayerGraph, layer_graph
from jat_graph.voting.scores import attention_scores

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Inputs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class LayerTrace:
    """What one layer's jump heads did; tensors are ``[B, H, L, L]``, H the heads that jump."""

    graph: LayerGraph
    scores: Tensor  # X before propagation
    propagated: Tensor  # the scores after it
    before: Tensor  # attention probabilities without propagation
    after: Tensor  # and with it
    carried: Tensor | None  # how much of each value comes along the graph, Σ_p θᵛ_p Pᵖ
    strengths: Tensor | None  # θ [3, hops, H]; both if there are any strengths

    @property
    def weights(self) -> Tensor:
        """What the graph mixes into each token of every other."""
        return self.graph.weights


def capture_batch(model: PreTrainedModel, batch: Inputs) -> list[CapturedLayer]:
    """Return what each jump layer saw of a batch, in evaluation mode and without gradients."""
    inputs = model_inputs(model, batch)
    with evaluating(model), torch.no_grad(), capture_scores(model) as layers:
        model(**inputs)
    return layers


def trace_layer(layer: CapturedLayer) -> LayerTrace:
    """Return what a layer's jump heads did (Eq. 1, 3 and 9)."""
    query, key, config = layer.query, layer.key, layer.config
    with torch.no_grad():
        jumping = JumpHeads.everyone(config, query.size(1))
        given = Given(layer.strength, layer.conv)
        strong = config.strength is not None
        linear = strong and layer.conv is None  # so that weights say what values bring
        units = torch.eye(query.size(2), dtype=query.dtype, device=query.device)
        own = query, key, units.expand(*query.shape[:2], -1, -1) if linear else key
        groups = head_groups(*own, jumping, mask=layer.mask, scale=layer.scale, given=given)
        unchanged = [HeadGroup(jumping.heads, *own, jumps=False)]
        after = _probabilities(layer, groups)
        return LayerTrace(
            layer_graph(layer),
            _scores(layer, unchanged),
            _scores(layer, groups),
            _probabilities(layer, unchanged),
            after,
            groups[0].plus_carried(0 * after) if linear else None,
            Strengths.of(config, layer.strength, query).theta if strong else None,
        )


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
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off, and give every module back the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _scores(layer: CapturedLayer, groups: list[HeadGroup]) -> Tensor:
    """Return scale · Σ_p w_p Φ_p of all jump heads, ``[B, H, L, L]``."""
    parts = [attention_scores(group.query, group.key, layer.scale) for group in groups]
    return merge_heads([group.heads for group in groups], parts)


def _probabilities(layer: CapturedLayer, groups: list[HeadGroup]) -> Tensor:
    """Return attention probabilities, ``[B, H, L, L]``."""
    attn_mask, is_causal = layer.mask.attention_mask(layer.query.size(2), layer.query)
    return attention_probabilities(
        groups, attn_mask=attn_mask, is_causal=is_causal, scale=layer.scale
    )
