"""The attention function that transformers calls, and the mask function beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from jat_graph.attention import attend, attention_probabilities
from jat_graph.checks import default_scale
from jat_graph.hf.mask_cache import resolve_once
from jat_graph.hf.state import Attachment, JumpLayer, layer_state
from jat_graph.masks import TokenMask, shared_row
from jat_graph.propagation import HeadGroup, head_groups

NAME = "jat"

# What stock SDPA would silently leave out ...
SDPA_IGNORES = ("s_aux", "sinks", "indices", "block_indices")
# ... and what changes scores or keys in ways that jump heads cannot follow.
JUMP_REFUSES = ("softcap", "position_bias", "cache")


@dataclass(frozen=True)
class AttentionCall:
    """One call of an attention module, as transformers makes it.

    Args:
        module: The attention module.
        query: Queries.
        key: Keys.
        value: Values.
        attention_mask: The mask for SDPA, or None.
        is_causal: Whether SDPA masks later tokens, for want of a mask.
        dropout: Dropout of the attention probabilities.
        scale: Factor of the scores.

    Shapes:
        - ``query``: ``[B, H, Lq, D]``
        - ``key``, ``value``: ``[B, Hkv, Lk, D]``
        - ``attention_mask``: ``[B, 1|H, Lq|1, Lk]``
    """

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    attention_mask: Tensor | None
    is_causal: bool
    dropout: float
    scale: float

    def repeat_keys(self) -> AttentionCall:
        """Return the call with each key and value head repeated for its group of query heads."""
        groups = self.query.size(1) // self.key.size(1)
        if groups == 1:
            return self
        return replace(self, key=repeat_kv(self.key, groups), value=repeat_kv(self.value, groups))

    def token_mask(self) -> TokenMask:
        """Return the mask for the votes."""
        return resolve_once(self.attention_mask, self.is_causal, self.query)


def register() -> None:
    """Register the attention function and, under the same name, a mask function.

    Without the second, transformers would give every model a mask of None.
    """
    AttentionInterface.register(NAME, jat_attention_forward)
    AttentionMaskInterface.register(NAME, jat_mask)


def jat_mask(**kwargs: Any) -> Tensor | None:
    """Return SDPA's mask; padding alone is one row that all queries share, and not an L×L matrix.

    So the row is recognised without a look at its values, under ``torch.compile``, too.

    Args:
        kwargs: What transformers hands to a mask function.

    Returns:
        Bool ``[B, 1, Lq, Lk]``, or None where nothing is masked that SDPA would not mask itself.
    """
    padding_only = kwargs.get("mask_function") is bidirectional_mask_function
    if not padding_only or kwargs.get("allow_is_causal_skip", True):
        return sdpa_mask(**kwargs)
    row = sdpa_mask(**kwargs | {"q_length": 1})
    return None if row is None else row.expand(-1, -1, kwargs["q_length"], -1)


def jat_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Run one attention module: jump attention in its jump heads, SDPA in everything else.

    Args:
        module: The attention module, which says what jumps.
        query: Queries, after rotary embeddings, ``[B, H, L, D]``.
        key: Keys, one for each group of query heads, ``[B, Hkv, L, D]``.
        value: Values ``[B, Hkv, L, Dv]``.
        attention_mask: Bool or additive ``[B, 1, L, L]``; None allows everything, or what is not
            later in a causal module.
        dropout: Dropout of the attention probabilities. (default: 0.0)
        scaling: Factor of the scores. (default: None, which means 1/√D)
        kwargs: What else transformers passes on.

    Returns:
        The outputs, and the attention probabilities ``[B, H, L, L]`` if they are wanted.

    Raises:
        ValueError: If the module was never attached, or is called in a way that jump heads cannot
            follow: with a KV cache, softcapping, sinks or a position bias.

    Shapes:
        - **output:** ``[B, L, H, Dv]``
    """
    state = layer_state(module)
    if state is None:
        raise ValueError(
            f"{type(module).__name__} has no jump heads, although its model was saved with jump "
            "heads; load it with jat_graph.from_pretrained"
        )
    _refuse(module, kwargs, SDPA_IGNORES)
    shared, jump = state.attachment, state.jump
    wanted = bool(kwargs.pop("output_attentions", False)) or shared.output_attentions
    scale = default_scale(query.size(-1)) if scaling is None else scaling
    if attention_mask is not None:
        attention_mask = shared_row(attention_mask)  # SDPA would write an expanded one out
    causal = _is_causal(module, query, attention_mask, kwargs)
    call = AttentionCall(module, query, key, value, attention_mask, causal, dropout, scale)
    if jump is not None and (shared.enabled or shared.recorder is not None):
        _check_jump(call, jump, kwargs)
        if shared.recorder is not None:
            _record(call, jump, shared)
    if jump is None or not shared.enabled or jump.is_ordinary:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **kwargs
        )
        wanted = wanted and kwargs.get("position_bias") is None
        return output, _ordinary_probabilities(call) if wanted else None
    return _jump(call, jump, wanted)


def _jump(call: AttentionCall, jump: JumpLayer, wanted: bool) -> tuple[Tensor, Tensor | None]:
    """Return the outputs ``[B, L, H, Dv]``, and the probabilities if they are wanted."""
    call = call.repeat_keys()
    groups = head_groups(
        call.query,
        call.key,
        config=jump.config,
        heads=jump.heads,
        mask=call.token_mask(),
        scale=call.scale,
    )
    output = attend(
        groups,
        call.value,
        attn_mask=call.attention_mask,
        is_causal=call.is_causal,
        dropout_p=call.dropout,
        scale=call.scale,
    )
    output = output.transpose(1, 2).contiguous()  # [B, L, H, Dv]
    return output, _probabilities(call, groups) if wanted else None


def _probabilities(call: AttentionCall, groups: list[HeadGroup]) -> Tensor:
    return attention_probabilities(
        groups, attn_mask=call.attention_mask, is_causal=call.is_causal, scale=call.scale
    )


def _ordinary_probabilities(call: AttentionCall) -> Tensor:
    """Return plain softmax rows, which SDPA does not give."""
    call = call.repeat_keys()
    # As SDPA does: what a static cache holds beyond the queries is not there yet.
    key = call.key[:, :, : call.query.size(2)] if call.is_causal else call.key
    everyone = HeadGroup(tuple(range(call.query.size(1))), call.query, key, jumps=False)
    return _probabilities(call, [everyone])


def _record(call: AttentionCall, jump: JumpLayer, shared: Attachment) -> None:
    call = call.repeat_keys()
    if shared.recorder is not None:
        shared.recorder.record(jump, call.query, call.key, call.token_mask(), call.scale)


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


def _check_jump(call: AttentionCall, jump: JumpLayer, kwargs: Mapping[str, Any]) -> None:
    _refuse(call.module, kwargs, JUMP_REFUSES)
    num_queries, num_keys = call.query.size(2), call.key.size(2)
    if num_queries != num_keys:
        raise ValueError(
            "jump heads need the queries of all tokens, which a KV cache does not keep: pass "
            f"use_cache=False (got {num_queries} queries for {num_keys} keys)"
        )
    if call.query.size(1) != jump.num_heads:
        raise ValueError(
            f"{type(call.module).__name__} must have {jump.num_heads} heads as when jump heads "
            f"were attached, got {call.query.size(1)}"
        )
