"""The attention function that transformers calls: a layer's heads, each kind in its own way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from jat_graph.core.compiling import knows_no_contexts
from jat_graph.core.heads import HeadGroup, HeadOutput, merge_heads, split_heads
from jat_graph.core.masks import shared_row
from jat_graph.core.tensors import check_values, default_scale, read_global
from jat_graph.hf.arguments import hold_graphs, take_graphs
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.hf.inputs import AttentionInputs, hand_cache
from jat_graph.hf.modules import AttachedHeads
from jat_graph.hf.names import EXCLUDED, GLOBAL, GRAPHS, INPUTS, NAME, NAMES, SDPA_IGNORES
from jat_graph.hf.positions import PositionTable
from jat_graph.hf.state import STATE_ATTRIBUTE, Attachment, LayerState, own_settings, start_layer
from jat_graph.jumps.heads import attend, attention_probabilities
from jat_graph.jumps.patterns.backends import attend_within
from jat_graph.jumps.patterns.base import Pattern

# What changes scores or keys in ways that heads of ours cannot follow.
HEADS_REFUSE = ("softcap", "position_bias", "cache")


def setting_of(attachment: Attachment, name: str) -> Any:
    """Return a setting of this thread or task, or the last one where no context is known."""
    if torch.compiler.is_compiling():
        return getattr(attachment, name)
    own = own_settings.get()
    key = (attachment.mark, name)
    if key in own:
        return own[key]
    return getattr(attachment if knows_no_contexts() else Attachment, name)


def start_forward(
    attachment: Attachment,
    is_root: bool,
    tables: list[PositionTable],
    module: nn.Module,
    args: Any,
    kwargs: dict[str, Any],
) -> tuple[Any, dict[str, Any]] | None:
    """Refuse long inputs, note a wish for probabilities, which GPT-2 swallows, and take graphs."""
    if is_root and attachment.entered:  # by a call that Ctrl-C has ended, which calls no hook
        hold_graphs(attachment, None, None)
    wish = kwargs.get("output_attentions")
    if wish is None and is_root:
        wish = getattr(module.config, "output_attentions", False)
    if wish is not None:
        attachment.output_attentions = wanted = bool(wish)
        if not torch.compiler.is_compiling():
            key = (attachment.mark, "output_attentions")
            if own_settings.get().get(key, False) is not wanted:
                own_settings.set({**own_settings.get(), key: wanted})
    if not torch.compiler.is_compiling():  # when lengths are no numbers
        ids = args[0] if args else kwargs.get("input_ids")
        alone = ids if not kwargs.get("past_key_values") else None
        for table in tables:
            room = table.rows.num_embeddings - table.first
            if not isinstance(alone, Tensor) or alone.size(-1) > room:
                table.check_length(args, kwargs)
    return take_graphs(attachment, module, args, kwargs) if "graphs" in kwargs else None


def end_forward(attachment: Attachment, module: nn.Module, args: Any, output: Any) -> None:
    """End what the forward of a part has begun, when it has given something or has raised."""
    if attachment.entered:
        hold_graphs(attachment, module, None)


def hand_inputs(
    hands_on: bool, module: nn.Module, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    """Hand on to attention what only its module gets; one that left our attention is refused."""
    current = module.config._attn_implementation  # type: ignore[union-attr]
    if current != NAME:
        cure = "take them off by jat_graph.detach, or switch them off by jat_graph.disabled"
        got = f"{type(module).__name__} runs on {current!r}, but its model has heads that need"
        raise ValueError(f"{got} {NAME!r}; {cure}")
    return hand_cache(NAME, module, args, kwargs) if hands_on else None


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
    state: LayerState = getattr(module, STATE_ATTRIBUTE, None) or start_layer(module)
    shared = state.attachment
    kinds = tuple(heads for heads in state.heads if not heads.is_identity(module))
    pattern = shared.pattern if state.takes_heads else None
    enabled = setting_of(shared, "enabled")
    recorder = setting_of(shared, "recorder") if state.heads else None
    runs = enabled and (bool(kinds) or pattern is not None)
    _check_arguments(module, query, kwargs, state, runs or recorder is not None)
    everywhere = kwargs.pop(GLOBAL, None)
    if everywhere is not None:
        everywhere = _global_tokens(query, everywhere, state)
    if pattern is not None and everywhere is not None:
        pattern = pattern.with_global(everywhere)
    given = kwargs.pop(INPUTS, None), kwargs.pop(EXCLUDED, None), kwargs.pop(GRAPHS, None)
    wanted = bool(kwargs.pop("output_attentions", False)) or setting_of(shared, "output_attentions")
    wanted = wanted and (shared.on_features or not enabled)
    causal = kwargs.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    if attention_mask is not None:
        attention_mask = shared_row(attention_mask)  # SDPA would write an expanded one out
    causal = attention_mask is None and query.size(2) > 1 and bool(causal)  # a mask says it all
    scale = default_scale(query.size(-1)) if scaling is None else scaling
    call = (module, query, key, value, attention_mask, causal, dropout, scale)
    inputs = AttentionInputs(*call, *given, everywhere)
    if state.takes_heads and inputs.cache is not None:
        inputs = inputs.without_room()
    if recorder is not None:
        recorder(state.heads, inputs)
    if runs:
        return run_heads(inputs, kinds, pattern, wanted)
    output, _ = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout, scaling, **kwargs
    )
    if not wanted or kwargs.get("position_bias") is not None:
        return output, None
    key = inputs.repeat_keys().key
    group = HeadGroup(tuple(range(key.size(1))), query, key, key, jumps=False)
    masks: dict[str, Any] = {"attn_mask": inputs.attention_mask, "is_causal": inputs.is_causal}
    return output, attention_probabilities([group], **masks, scale=scale)


def _global_tokens(query: Tensor, mask: object, state: LayerState) -> Tensor | None:  # bool [B, L]
    """Return which tokens of a self-attention module are global, if a mask says so."""
    pattern = state.attachment.pattern
    within = pattern is not None and pattern.needs_global
    if state.takes_heads and not within and AttachedClusters not in state.attachment.configs:
        wanted = "cluster heads or a pattern with 'global'"
        raise ValueError(f"{GLOBAL} needs {wanted}, got a model with neither")
    return read_global(mask, query) if state.takes_heads else None


def run_heads(
    inputs: AttentionInputs, kinds: tuple[AttachedHeads, ...], pattern: Pattern | None, wanted: bool
) -> tuple[Tensor, Tensor | None]:  # [B, Lq, H, Dv], [B, H, Lq, Lk]
    """Run the heads of a module, each kind in its own way, all within the pattern."""
    mask = inputs.attention_mask
    names = [kind.heads for kind in kinds]
    taken = {head for heads in names for head in heads}
    others = tuple(head for head in range(inputs.query.size(1)) if head not in taken)
    names += [others] if others else []
    shared = pattern is None and len(names) == 1 and isinstance(kinds[0], AttachedClusters)
    if not shared and inputs.key.size(1) < inputs.query.size(1):
        inputs = inputs.repeat_keys()
    cut = (split_heads(x, names) for x in (inputs.query, inputs.key, inputs.value))
    groups: list[HeadGroup] = []
    outputs: list[HeadOutput] = []
    for number, (heads, query, own_key, own_value) in enumerate(zip(names, *cut, strict=True)):
        if number == len(kinds):
            groups.append(HeadGroup(heads, query, own_key, own_value, jumps=False))
            continue
        own_mask = mask if mask is None or mask.size(1) == 1 else mask[:, list(heads)]
        alone = replace(inputs, query=query, key=own_key, value=own_value, attention_mask=own_mask)
        for part in kinds[number].run(alone):
            part = part._replace(heads=tuple(heads[index] for index in part.heads))
            (groups if isinstance(part, HeadGroup) else outputs).append(part)  # type: ignore[arg-type]
    options = {"scale": inputs.scale, "dropout_p": inputs.dropout}
    attn_mask, is_causal = None, False
    if groups and (wanted or pattern is None or not inputs.is_whole):
        attn_mask, is_causal = inputs.sdpa_mask(pattern)
    for group in groups:
        if pattern is not None and inputs.is_whole:
            output = attend_within(pattern, [group], mask=inputs.token_mask(), **options)
        else:
            output = attend([group], attn_mask=attn_mask, is_causal=is_causal, **options)
        outputs.append(HeadOutput(group.heads, output))
    output = merge_heads([part.heads for part in outputs], [part.output for part in outputs])
    output = output.transpose(1, 2).contiguous()  # [B, Lq, H, Dv]
    masks: dict[str, Any] = {"attn_mask": attn_mask, "is_causal": is_causal, "scale": inputs.scale}
    return output, attention_probabilities(groups, **masks) if wanted else None


def _check_arguments(
    module: nn.Module, query: Tensor, kwargs: dict[str, Any], state: LayerState, runs: bool
) -> None:
    """Refuse what stock attention, or heads of ours, would have to leave out."""
    name = type(module).__name__
    for argument in (*SDPA_IGNORES, *(HEADS_REFUSE if runs else ())):
        if kwargs.get(argument) is not None:
            raise ValueError(f"{name} passes {argument}, which heads of jat_graph cannot use")
    if kwargs.get("graphs") is not None:  # which a model with hooks of ours has taken out
        cure = "load its model with jat_graph.from_pretrained, and call that, not a part of it"
        raise ValueError(f"{name} cannot take graphs: {cure}")
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    if runs and not torch.compiler.is_compiling():
        if query.is_meta or torch.jit.is_tracing() or wrapped(query):  # type: ignore[attr-defined, no-untyped-call]
            check_values("query", query)
    cure = "call the model, not a part of it"
    for heads in state.heads:
        if heads.config.excluded_token_ids and EXCLUDED not in kwargs:
            cure = f"load the model with jat_graph.from_pretrained, and {cure}"
            raise ValueError(f"{name} does not know which tokens are excluded: {cure}")
        if setting_of(state.attachment, "graphs") is not None and GRAPHS not in kwargs:
            raise ValueError(f"{name} was not given the graphs of jat_graph.using_graphs: {cure}")
        if runs and query.size(1) != heads.num_heads:
            raise ValueError(f"{name} must have {heads.num_heads} heads, got {query.size(1)}")


for _name in NAMES:  # in the place of what loaded this module
    AttentionInterface.register(_name, jat_attention_forward)
