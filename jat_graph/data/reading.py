"""What models make of texts: states after each layer, and what chosen heads have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from jat_graph.adjacency.scores import attention_scores
from jat_graph.attention.jump_heads import JumpHeads
from jat_graph.attention.propagation import head_groups
from jat_graph.checks.numbers import is_integer
from jat_graph.data.texts import EncodedTexts
from jat_graph.hf import CapturedLayer, attached_config, capture_scores
from jat_graph.hf.modules import attention_modules, serves_several_layers
from jat_graph.inspection.graphs import layer_graph
from jat_graph.inspection.tracing import attention_of, evaluating, giving_attention, model_inputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Head: TypeAlias = tuple[int, int]  # layer and head

# Probabilities of any model; of jump heads scores before and after propagation, and their graph.
ATTENTION, SCORES, PROPAGATED, GRAPH = MAPS = ("attention", "scores", "propagated", "graph")


def read_texts(
    model: PreTrainedModel,
    texts: EncodedTexts,
    rows: Sequence[int],
    batch_size: int,
    maps: str | None,
    heads: Sequence[Head],
) -> Iterator[tuple[int, Tensor, Tensor]]:  # row, [layers + 1, n, D], [C, n, n]
    """Yield the states of each text, and what chosen heads have there; no heads without maps."""
    shown = giving_attention(model) if maps == ATTENTION else nullcontext()
    with evaluating(model), shown, torch.no_grad():
        for some in texts.batches(rows, batch_size):
            states, own = _run(model, texts.inputs_of(some), maps, heads)
            kind = torch.promote_types(states.dtype, torch.float32)
            for index, row in enumerate(some):
                nothing = states.new_zeros(0, states.size(2), states.size(2))
                found = torch.stack([one[index] for one in own]) if own else nothing
                yield row, states[index].to(kind), found.to(kind)


def _run(
    model: PreTrainedModel, batch: Mapping[str, Tensor], maps: str | None, heads: Sequence[Head]
) -> tuple[Tensor, list[Tensor]]:  # [B, layers + 1, L, D], [B, L, L] of each head
    inputs = model_inputs(model, batch) | {"output_hidden_states": True}
    if maps in (None, ATTENTION):
        outputs = model(**inputs, output_attentions=maps == ATTENTION)
        rows = attention_of(outputs) if maps == ATTENTION else ()
        own = [rows[layer][:, head] for layer, head in heads]
    else:
        with capture_scores(model) as layers:
            outputs = model(**inputs)
        wanted = {layer for layer, _ in heads}
        known = {
            one.layer: dict(zip(one.heads, layer_maps(one, maps).unbind(1), strict=True))
            for one in layers
            if one.layer in wanted
        }
        own = [known[layer][head] for layer, head in heads]
    return torch.stack(outputs.hidden_states, dim=1), own


def layer_maps(layer: CapturedLayer, maps: str | None) -> Tensor:  # [B, H, L, L]
    """Return what the jump heads of a layer have."""
    if maps == GRAPH:
        return layer_graph(layer).weights
    if maps == SCORES:
        return attention_scores(layer.query, layer.key, layer.scale)
    groups = head_groups(
        layer.query,
        layer.key,
        layer.key,
        JumpHeads.everyone(layer.config, len(layer.heads)),
        mask=layer.mask,
        scale=layer.scale,
        strength=layer.strength,
        layers=layer.conv,
    )
    order = torch.tensor([head for group in groups for head in group.heads])
    found = [attention_scores(group.query, group.key, layer.scale) for group in groups]
    return torch.cat(found, dim=1)[:, order.argsort()]


def pool_words(
    words: Tensor,  # [n], -1 for tokens of no word
    hidden: Tensor,  # [..., n, D]
    maps: Tensor,  # [C, n, n]
    both_mean: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # [w], [..., w, D], [C, w, w]
    """Return the numbers of words, their states and maps.

    What goes to a word is the sum over its tokens, what comes from one the mean; of scores it is
    the mean both ways.
    """
    numbers = torch.unique(words[words >= 0])
    members = (numbers[:, None] == words).to(hidden.dtype)
    mean = members / members.sum(1, keepdim=True)
    return numbers, mean @ hidden, mean @ maps @ (mean if both_mean else members).T


def check_model(model: Any) -> None:
    """Refuse what is no model of one stack of layers."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {type(model).__name__}")
    if model.config.is_encoder_decoder:
        raise ValueError(
            f"model must be one stack of layers, got a {type(model).__name__}: give its encoder"
        )


def attention_heads(model: PreTrainedModel) -> tuple[Head, ...]:
    """All heads of a model."""
    layers, heads = (
        getattr(model.config, f"num_{name}", 0) for name in ("hidden_layers", "attention_heads")
    )
    if not heads:
        raise ValueError(f"model must have attention heads, got a {type(model).__name__} without")
    return tuple((layer, head) for layer in range(layers) for head in range(heads))


def jump_heads(model: PreTrainedModel) -> tuple[Head, ...]:
    """The heads of a model that jump, if it has some."""
    config = attached_config(model)
    if config is None:
        raise ValueError("model must have jump heads for edges='jumps', got none: attach them")
    modules = [entry for entry in attention_modules(model) if entry.left_alone is None]
    if serves_several_layers(modules):
        raise ValueError("edges must be 'attention' where layers share a module, got 'jumps'")
    return tuple(
        (layer, head)
        for layer in config.layer_indices(len(modules))
        for head in config.head_indices(modules[layer].num_heads)
    )


def check_heads(heads: Sequence[Head], known: tuple[Head, ...], edges: str) -> tuple[Head, ...]:
    """Return pairs of layer and head, of those that there are."""
    if not isinstance(heads, Sequence) or not heads:
        raise ValueError(f"heads must be one or more pairs (layer, head), got {heads!r}")
    for pair in heads:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(map(is_integer, pair)):
            raise ValueError(f"heads must be pairs (layer, head), got {pair!r} among them")
        if tuple(pair) not in known:
            kind = "heads" if edges == "attention" else "jump heads"
            raise ValueError(f"heads must name {kind} of the model, got {tuple(pair)}")
    chosen = tuple((layer, head) for layer, head in heads)
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"heads must not name a head twice, got {heads!r}")
    return chosen
