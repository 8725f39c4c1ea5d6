"""Scores, patterns and jumps of a model under the names of TransformerLens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.masks import split_additive
from jat_graph.hf import CapturedLayer, attach, detach
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import AttachedHeads
from jat_graph.jumps.config import JatConfig
from jat_graph.jumps.operators import DenseOperator, NormalizedOperator, Operator
from jat_graph.jumps.patterns import Pattern
from jat_graph.looking.data.reading import PROPAGATED, check_model, layer_maps
from jat_graph.looking.inspection.graphs import StoneLinks, layer_graph
from jat_graph.looking.inspection.selection import encode_text
from jat_graph.looking.inspection.tracing import run_model
from jat_graph.looking.viewer.reading import enabled_heads

# Scores as they are: no hop but the one that stays, in every head.
UNCHANGED = JatConfig(heads="all", hop_weights=(1,))


def hooked_tensors(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str
) -> dict[str, Tensor]:
    """Return what heads compute on a text, named as in a cache of TransformerLens.

    For each layer i ``blocks.{i}.attn.hook_pattern``, attention probabilities, and
    ``hook_attn_scores``, scores before softmax and jumps, −∞ where a token must not look. Where the
    layer has heads that jump, also ``hook_jump_scores``, the scores after propagation, and
    ``hook_adj_norm``, Â, with stones the walk P; of heads that do not jump, the unchanged scores
    and the identity. In a model with jump heads, layers without them have the probabilities alone.

    Args:
        model: An encoder or decoder of transformers, with jump heads or without; it comes back as
            it was.
        tokenizer, text: As for :func:`jat_graph.inspection.inspect_text`.

    Returns:
        The tensors by name, layer by layer.

    Shapes:
        - each: ``[1, H, L, L]``, queries before keys

    Raises:
        ValueError: If the model gives no attention, its layers share a module, or the text is empty
            or too long.

    Reference:
        The names are those of Nanda and Bloom, *TransformerLens*, 2022; X of Eq. 1, Â of Eq. 4 and
        the propagated scores of Eq. 9 of the JAT paper.
    """
    check_model(model)
    inputs = encode_text(model, tokenizer, text, special_tokens=True).inputs
    kind = AttachedJumps if enabled_heads(model) else None
    outputs, captured = run_model(model, inputs, attention=True, kind=kind)
    with _recorded(model) as calls:
        run_model(model, inputs, attention=True)
    attachment = find_attachment(model)
    pattern = None if attachment is None else attachment.pattern
    layers = {layer.layer: layer for layer in captured}
    found: dict[str, Tensor] = {}
    for index, rows in enumerate(outputs.attentions):
        names = {"pattern": rows.detach()}
        if index in calls:
            call = calls[index]
            scores = (call.scale * call.query @ call.key.mT).detach()
            names["attn_scores"] = _masked(scores, call, pattern)
            if index in layers:
                jumped, adj_norm = _jumps(layers[index], scores)
                names |= {"jump_scores": _masked(jumped, call, pattern), "adj_norm": adj_norm}
        found |= {f"blocks.{index}.attn.hook_{name}": tensor for name, tensor in names.items()}
    return found


@contextmanager
def _recorded(model: PreTrainedModel) -> Iterator[dict[int, AttentionInputs]]:
    """Collect the calls of layers; a model without heads of ours has some for a while."""
    bare = find_attachment(model) is None
    if bare:
        attach(model, UNCHANGED)
    calls: dict[int, AttentionInputs] = {}

    def record(kinds: tuple[AttachedHeads, ...], call: AttentionInputs) -> None:
        index = next((heads.index for heads in kinds if isinstance(heads, AttachedJumps)), None)
        if index in calls:
            raise ValueError(
                "model must have a module for each layer to give scores, got layers that share one"
            )
        if index is not None:
            calls[index] = call.repeat_keys()

    attachment = find_attachment(model)
    assert attachment is not None
    try:
        with attachment.having("recorder", record):
            yield calls
    finally:
        if bare:
            detach(model, JatConfig)


def _masked(scores: Tensor, call: AttentionInputs, pattern: Pattern | None) -> Tensor:
    """Put −∞ where a token must not look, and add what a mask adds."""
    mask, causal = call.sdpa_mask(pattern)
    if causal:
        mask = torch.ones_like(scores, dtype=torch.bool).tril()
    if mask is None:
        return scores
    allowed, bias = split_additive(mask)
    return (scores if bias is None else scores + bias).masked_fill(~allowed, -torch.inf)


def _jumps(layer: CapturedLayer, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return propagated scores and Â of all heads of a layer, ``[1, H, L, L]`` each."""
    heads = list(layer.heads)
    graph = layer_graph(layer)
    jumps = scores.clone()
    jumps[:, heads] = layer_maps(layer, PROPAGATED).to(scores)
    operator: Operator
    if isinstance(graph, StoneLinks):
        operator = graph.operator
    else:
        operator = NormalizedOperator(DenseOperator(graph.weights))
    adj_norm = torch.eye(scores.size(-1)).to(scores).expand_as(scores).clone()
    adj_norm[:, heads] = operator.to_dense().to(scores)
    return jumps, adj_norm
