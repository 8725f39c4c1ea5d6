"""The attention function that transformers calls, and the mask function beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from jat_graph.checks.tensors import default_scale
from jat_graph.hf.attention_call import AttentionCall, ordinary_probabilities, run_heads
from jat_graph.hf.capture import ScoreRecorder
from jat_graph.hf.notes import take_note
from jat_graph.hf.state import JumpLayer, LayerState, layer_state
from jat_graph.masks import shared_row

NAME = "jat"

# What stock SDPA would silently leave out ...
SDPA_IGNORES = ("s_aux", "sinks", "indices", "block_indices")
# ... and what changes scores or keys in ways that jump heads cannot follow.
JUMP_REFUSES = ("softcap", "position_bias", "cache")


def register() -> None:
    """Register the attention function and, under the same name, a mask function.

    Without the second, transformers would give every model a mask of None.
    """
    AttentionInterface.register(NAME, jat_attention_forward)
    AttentionMaskInterface.register(NAME, jat_mask)


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
    query: Tensor,  # Queries, after rotary embeddings, [B, H, L, D]
    key: Tensor,  # Keys, one for each group of query heads, [B, Hkv, L, D]
    value: Tensor,  # Values [B, Hkv, L, Dv]
    attention_mask: Tensor | None,  # Bool or additive [B, 1, L, L]
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:  # [B, H, L, L]
    """Run one attention module: jump attention in its jump heads, SDPA in everything else."""
    state = layer_state(module)
    if state is None:
        raise ValueError(
            f"{type(module).__name__} has no jump heads, although its model was saved with jump "
            "heads; load it with jat_graph.from_pretrained"
        )
    _refuse(module, kwargs, SDPA_IGNORES)
    shared, jump = state.attachment, _jump_heads(state)
    cache = take_note(module)
    wanted = bool(kwargs.pop("output_attentions", False)) or shared.output_attentions
    scale = default_scale(query.size(-1)) if scaling is None else scaling
    if attention_mask is not None:
        attention_mask = shared_row(attention_mask)  # SDPA would write an expanded one out
    causal = _is_causal(module, query, attention_mask, kwargs)
    call = AttentionCall(module, query, key, value, attention_mask, causal, dropout, scale, cache)
    if state.jump is not None and shared.recorder is not None:
        _check_heads(call, state.jump, kwargs)
        _record(call, state.jump, shared.recorder)
    if shared.enabled and (jump is not None or state.pattern is not None):
        _check_heads(call, jump, kwargs)
        return run_heads(call, jump, state.pattern, wanted)
    output, _ = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout, scaling, **kwargs
    )
    wanted = wanted and kwargs.get("position_bias") is None
    return output, ordinary_probabilities(call) if wanted else None


def _jump_heads(state: LayerState) -> JumpLayer | None:
    """Return the jump heads of a layer, None if the settings make them ordinary ones."""
    return None if state.jump is None or state.jump.is_ordinary else state.jump


def _record(call: AttentionCall, jump: JumpLayer, recorder: ScoreRecorder) -> None:
    if not call.is_whole:
        raise ValueError(
            "capture_scores needs the queries of all tokens: pass use_cache=False "
            f"(got {call.sizes[0]} queries for {call.sizes[1]} keys)"
        )
    call = call.repeat_keys()
    recorder.record(jump, call.query, call.key, call.token_mask(), call.scale)


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
            raise ValueError(f"{type(module).__name__} passes {name}, which jump heads cannot use")


def _check_heads(call: AttentionCall, jump: JumpLayer | None, kwargs: Mapping[str, Any]) -> None:
    _refuse(call.module, kwargs, JUMP_REFUSES)
    if jump is not None and call.query.size(1) != jump.num_heads:
        raise ValueError(
            f"{type(call.module).__name__} must have {jump.num_heads} heads as when jump heads "
            f"were attached, got {call.query.size(1)}"
        )
