"""The attention function that transformers calls, and what an attached model remembers for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from jat_graph.attention.heads import HeadGroup, merge_heads, split_heads
from jat_graph.attention.patterns.running import attend_within
from jat_graph.attention.softmax import attend, attention_probabilities
from jat_graph.checks.tensors import default_scale
from jat_graph.hf.attention_call import AttentionCall
from jat_graph.hf.by_name import start_layer
from jat_graph.hf.kinds import HeadParts, LayerHeads, Reading
from jat_graph.hf.state import GRAPHS, NAME, NAMES, LayerState, layer_state
from jat_graph.hf.token_masks import ARGUMENT
from jat_graph.masks.tokens import shared_row
from jat_graph.patterns import Pattern

INPUTS = "jat_inputs"  # what a module hands on to its attention: hidden states and cache

# What stock SDPA would silently leave out ...
SDPA_IGNORES = ("s_aux", "sinks", "indices", "block_indices")
# ... and what changes scores or keys in ways that heads of ours cannot follow.
HEADS_REFUSE = ("softcap", "position_bias", "cache")


def check_name(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Refuse to run an attention module that has left our attention, its heads unseen."""
    current = module.config._attn_implementation  # type: ignore[union-attr]
    if current != NAME:
        raise ValueError(
            f"{type(module).__name__} runs on {current!r}, but its model has heads that need "
            f"{NAME!r}; take them off by jat_graph.detach, or switch them off by jat_graph.disabled"
        )


def hand_inputs(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Hand on to an attention module's attention what only the module is told."""
    check_name(module, args, kwargs)
    hidden = args[0] if args else kwargs.get("hidden_states")
    cache = next((x for x in (*args, *kwargs.values()) if isinstance(x, Cache)), None)
    return args, {**kwargs, INPUTS: (hidden, cache)}


def jat_mask(**kwargs: Any) -> Tensor | None:  # [B, 1, Lq, Lk]
    """Return SDPA's mask; padding alone is one row that all queries share, and not an L×L matrix.

    So the row is recognised without a look at its values, under ``torch.compile``, too.
    """
    padding_only = kwargs.get("mask_function") is bidirectional_mask_function
    if not padding_only or kwargs.get("allow_is_causal_skip", True):
        return sdpa_mask(**kwargs)
    row = sdpa_mask(**kwargs | {"q_length": 1})
    return None if row is None else row.expand(-1, -1, kwargs["q_length"], -1)


def jat_attention_forward(
    module: nn.Module,
    query: Tensor,  # after rotary embeddings, [B, H, L, D]
    key: Tensor,  # one for each group of query heads, [B, Hkv, L, D]
    value: Tensor,  # [B, Hkv, L, Dv]
    attention_mask: Tensor | None,  # bool or additive [B, 1, L, L]
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:  # [B, L, H, Dv], [B, H, L, L]
    """Run one attention module: each kind of heads in its own way, SDPA in everything else."""
    state = layer_state(module) or start_layer(module)
    _refuse(module, kwargs, SDPA_IGNORES)
    shared, (hidden, cache) = state.attachment, kwargs.pop(INPUTS, (None, None))
    silent = _take_excluded(module, state, kwargs)
    graphs = _take_graphs(module, state, kwargs)
    wanted = bool(kwargs.pop("output_attentions", False)) or shared.output_attentions
    wanted = wanted and shared.gives_rows
    scale = default_scale(query.size(-1)) if scaling is None else scaling
    if attention_mask is not None:
        attention_mask = shared_row(attention_mask)  # SDPA would write an expanded one out
    causal = _is_causal(module, query, attention_mask, kwargs)
    call = AttentionCall(
        module,
        query,
        key,
        value,
        attention_mask,
        causal,
        dropout,
        scale,
        hidden,
        cache,
        silent,
        graphs,
    )
    if shared.recorder is not None and state.heads:
        _check_heads(call, state.heads, kwargs)
        shared.recorder(state.heads, call)
    kinds = tuple(heads for heads in state.heads if not heads.at_rest(module))
    pattern = shared.pattern if state.takes_heads else None
    if shared.enabled and (kinds or pattern is not None):
        _check_heads(call, kinds, kwargs)
        return run_heads(call, kinds, pattern, wanted)
    output, _ = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout, scaling, **kwargs
    )
    wanted = wanted and kwargs.get("position_bias") is None
    return output, _ordinary_probabilities(call) if wanted else None


def run_heads(
    call: AttentionCall,
    kinds: tuple[LayerHeads, ...],
    pattern: Pattern | None,
    wanted: bool,
) -> tuple[Tensor, Tensor | None]:  # [B, Lq, H, Dv], [B, H, Lq, Lk]
    """Run the heads of a module, each kind in its own way, all within the pattern."""
    call = call.repeat_keys()
    parts = _parts(call, kinds)
    groups = [part for part in parts if isinstance(part, HeadGroup)]
    readings = [part for part in parts if isinstance(part, Reading)]
    names = [reading.heads for reading in readings]
    outputs = [reading.output for reading in readings]
    if groups:
        names.append(tuple(sorted(head for group in groups for head in group.heads)))
        outputs.append(_attend(call, groups, pattern))
    output = merge_heads(names, outputs).transpose(1, 2).contiguous()  # [B, Lq, H, Dv]
    return output, _probabilities(call, groups, pattern) if wanted else None


def _parts(call: AttentionCall, kinds: tuple[LayerHeads, ...]) -> HeadParts:
    """Return how each head reads: those of a kind as it says, the others as they are."""
    taken = [heads.heads for heads in kinds]
    heads = range(call.query.size(1))
    others = tuple(head for head in heads if not any(head in own for own in taken))
    names = [*taken, others] if others else taken
    queries, keys, values = (split_heads(x, names) for x in (call.query, call.key, call.value))
    cut = list(zip(names, queries, keys, values, strict=True))
    parts: list[HeadGroup | Reading] = []
    for kind, own in zip(kinds, cut, strict=False):
        parts += [
            part._replace(heads=tuple(kind.heads[place] for place in part.heads))
            for part in kind.run(call.of_heads(*own))
        ]
    return parts + [HeadGroup(*own, jumps=False) for own in cut[len(kinds) :]]


def _attend(
    call: AttentionCall, groups: list[HeadGroup], pattern: Pattern | None
) -> Tensor:  # [B, H, Lq, Dv]
    options = {"dropout_p": call.dropout, "scale": call.scale}
    if pattern is not None and call.is_whole:
        return attend_within(pattern, groups, mask=call.token_mask(), **options)
    attn_mask, is_causal = call.sdpa_mask(pattern)
    return attend(groups, attn_mask=attn_mask, is_causal=is_causal, **options)


def _probabilities(
    call: AttentionCall, groups: list[HeadGroup], pattern: Pattern | None
) -> Tensor:  # [B, H, Lq, Lk]
    attn_mask, is_causal = call.sdpa_mask(pattern)
    return attention_probabilities(
        groups, attn_mask=attn_mask, is_causal=is_causal, scale=call.scale
    )


def _ordinary_probabilities(call: AttentionCall) -> Tensor:  # [B, H, Lq, Lk]
    """Return plain softmax rows, which SDPA does not give."""
    call = call.repeat_keys()
    # As SDPA does: what a static cache holds beyond the queries is not there yet.
    key = call.key[:, :, : call.query.size(2)] if call.is_causal else call.key
    heads = tuple(range(call.query.size(1)))
    return attention_probabilities(
        [HeadGroup(heads, call.query, key, call.value, jumps=False)],
        attn_mask=call.attention_mask,
        is_causal=call.is_causal,
        scale=call.scale,
    )


def _take_excluded(
    module: nn.Module, state: LayerState, kwargs: dict[str, Any]
) -> Tensor | None:  # bool [B, Lq]
    """Return which tokens are excluded, as the layer around a module handed it on."""
    asked = any(getattr(heads.config, "excluded_token_ids", ()) for heads in state.heads)
    if asked and ARGUMENT not in kwargs:
        raise ValueError(
            f"{type(module).__name__} was not told which tokens are excluded: load the model with "
            "jat_graph.from_pretrained, and call the model, not a part of it"
        )
    excluded: Tensor | None = kwargs.pop(ARGUMENT, None)
    return excluded


def _take_graphs(module: nn.Module, state: LayerState, kwargs: dict[str, Any]) -> Any:
    """Return the graphs from outside, as the layer around a module handed them on."""
    if state.attachment.graphs is not None and state.heads and GRAPHS not in kwargs:
        raise ValueError(
            f"{type(module).__name__} was not given the graphs of jat_graph.using_graphs: call the "
            "model, not a part of it"
        )
    return kwargs.pop(GRAPHS, None)


def _is_causal(
    module: nn.Module, query: Tensor, mask: Tensor | None, kwargs: Mapping[str, Any]
) -> bool:
    """Tell whether SDPA masks later tokens here: a mask, where there is one, says it all."""
    is_causal = kwargs.get("is_causal")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    return mask is None and query.size(2) > 1 and bool(is_causal)


def _refuse(module: nn.Module, kwargs: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if kwargs.get(name) is not None:
            raise ValueError(f"{type(module).__name__} passes {name}, which our heads cannot use")


def _check_heads(
    call: AttentionCall, kinds: tuple[LayerHeads, ...], kwargs: Mapping[str, Any]
) -> None:
    _refuse(call.module, kwargs, HEADS_REFUSE)
    for heads in kinds:
        if call.query.size(1) != heads.num_heads:
            raise ValueError(
                f"{type(call.module).__name__} must have {heads.num_heads} heads as when "
                f"{heads.word} heads were attached, got {call.query.size(1)}"
            )


# Without a mask function of the same name, transformers would give every model a mask of None.
for _name in NAMES:
    AttentionInterface.register(_name, jat_attention_forward)
    AttentionMaskInterface.register(_name, jat_mask)
