"""What models make of texts: states after each layer, and what chosen heads have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from jat_graph.adjacency.scores import attention_scores
from jat_graph.data.texts import EncodedTexts
from jat_graph.hf import CapturedLayer
from jat_graph.hf.capture import jumping_heads
from jat_graph.hf.modules import attention_modules, serves_several_layers
from jat_graph.inspection.graphs import layer_graph
from jat_graph.inspection.tracing import propagated_heads, run_model

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
    attention, jumps = maps == ATTENTION, maps not in (None, ATTENTION)
    for some in texts.batches(rows, batch_size):
        tables = texts.inputs.items()
        inputs = {name: torch.tensor([table[row] for row in some]) for name, table in tables}
        outputs, layers = run_model(model, inputs, attention=attention, states=True, jumps=jumps)
        states = torch.stack(outputs.hidden_states, dim=1)
        kind = torch.promote_types(states.dtype, torch.float32)
        if attention:
            own = [outputs.attentions[layer][:, head] for layer, head in heads]
        else:
            wanted = {layer for layer, _ in heads}
            known = {
                (layer.layer, head): found
                for layer in layers
                if layer.layer in wanted
                for head, found in zip(layer.heads, layer_maps(layer, maps).unbind(1), strict=True)
            }
            own = [known[head] for head in heads]
        for index, row in enumerate(some):
            nothing = states.new_zeros(0, states.size(2), states.size(2))
            found = torch.stack([one[index] for one in own]) if own else nothing
            yield row, states[index].to(kind), found.to(kind)


def layer_maps(layer: CapturedLayer, maps: str | None) -> Tensor:  # [B, H, L, L]
    """Return what the jump heads of a layer have."""
    with torch.no_grad():
        if maps == GRAPH:
            return layer_graph(layer).weights
        if maps == SCORES:
            return attention_scores(layer.query, layer.key, layer.scale)
        groups = propagated_heads(layer)
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
    names = ("num_hidden_layers", "num_attention_heads")
    layers, heads = (getattr(model.config, name, 0) for name in names)
    if not heads:
        raise ValueError(f"model must have attention heads, got a {type(model).__name__} without")
    return tuple((layer, head) for layer in range(layers) for head in range(heads))


def jump_heads(model: PreTrainedModel) -> tuple[Head, ...]:
    """The heads of a model that jump, if it has some."""
    known = jumping_heads(model)
    if not known:
        raise ValueError("model must have jump heads for edges='jumps', got none: attach them")
    if shares_modules(model):
        raise ValueError("edges must be 'attention' where layers share a module, got 'jumps'")
    return tuple((layer, head) for layer, heads in sorted(known.items()) for head in heads)


def shares_modules(model: PreTrainedModel) -> bool:
    """Tell whether layers of a model share one module for attention."""
    return serves_several_layers([m for m in attention_modules(model) if m.left_alone is None])


def check_heads(heads: Sequence[Head], known: tuple[Head, ...]) -> tuple[Head, ...]:
    """Return pairs of layer and head, of those that there are."""
    pairs: list[Any] = list(heads) if isinstance(heads, Sequence) else []
    chosen = [head for head in known if head in pairs or list(head) in pairs]
    if not pairs or len(chosen) != len(pairs):
        raise ValueError(
            f"heads must be pairs (layer, head) of {len(known)} that there are, each of them once, "
            f"got {heads!r}"
        )
    return tuple((layer, head) for layer, head in heads)
