"""One call of an attention module, and what its heads make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import repeat_kv

from jat_graph.attention.heads import HeadGroup
from jat_graph.attention.past import PastTokens
from jat_graph.attention.patterns.dense import pattern_rows
from jat_graph.attention.patterns.running import attend_within
from jat_graph.attention.propagation import head_groups
from jat_graph.attention.softmax import attend, attention_probabilities
from jat_graph.hf.generation_cache import (
    cache_layer,
    causal_rows,
    keeps_all_tokens,
    mask_with_past,
    past_tokens,
)
from jat_graph.hf.mask_cache import resolve_once
from jat_graph.hf.state import JumpLayer
from jat_graph.masks import TokenMask, split_additive
from jat_graph.patterns import Pattern

if TYPE_CHECKING:
    from transformers import Cache


@dataclass(frozen=True)
class AttentionCall:
    """One call of an attention module, as transformers makes it.

    Args:
        module: The attention module.
        query: Queries, of the last tokens only if the keys of others come from a cache.
        key: Keys.
        value: Values.
        attention_mask: The mask for SDPA, or None.
        is_causal: Whether SDPA masks later tokens, for want of a mask.
        dropout: Dropout of the attention probabilities.
        scale: Factor of the scores.
        cache: What keeps the keys of earlier tokens, or None.

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
    cache: Cache | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of queries and of keys."""
        return self.query.size(2), self.key.size(2)

    @property
    def is_whole(self) -> bool:
        """Tell whether the queries are those of all tokens."""
        return self.query.size(2) == self.key.size(2)

    def repeat_keys(self) -> AttentionCall:
        """Return the call with each key and value head repeated for its group of query heads."""
        groups = self.query.size(1) // self.key.size(1)
        if groups == 1:
            return self
        return replace(self, key=repeat_kv(self.key, groups), value=repeat_kv(self.value, groups))

    def token_mask(self) -> TokenMask:
        """Return the mask for the votes."""
        return resolve_once(self.attention_mask, self.is_causal, self.query)

    def past(self, jump: JumpLayer) -> PastTokens | None:
        """Return what earlier tokens left behind for jump heads; None if nothing is to be kept.

        The first tokens may fill any cache, which training does by default; only the next ones,
        which never come there, need one that can be followed.
        """
        followed = self.cache is not None and keeps_all_tokens(self.cache, self.module)
        if self.cache is not None and (followed or not self.is_whole):
            return past_tokens(self.cache, self.module, jump, self.query.size(2))
        if not self.is_whole:
            raise ValueError(
                "jump heads need the queries of all tokens: pass use_cache=False "
                f"(got {self.sizes[0]} queries for {self.sizes[1]} keys)"
            )
        return None

    def whole_mask(self, past: PastTokens | None) -> TokenMask:
        """Return the mask of all tokens, also where the queries are those of the last ones."""
        if self.is_whole:
            return self.token_mask()
        if past is not None:
            return mask_with_past(past.valid, self.attention_mask, *self.sizes)
        if self.cache is not None:
            cache_layer(self.cache, self.module)  # others hold keys that are not there yet
        if self.attention_mask is None:
            return TokenMask(causal=True)
        self._check_no_window()
        return TokenMask(split_additive(self.attention_mask)[0].any(-2), causal=True)

    def _check_no_window(self) -> None:
        """Refuse a window of the model's own, outside of which tokens would pass for padding."""
        window = getattr(self.module.config, "sliding_window", None)
        if window is not None and self.key.size(2) > window:
            raise ValueError(
                f"{type(self.module).__name__} sees the last {window} tokens only, which a pattern "
                f"cannot follow with a cache: pass use_cache=False (got {self.key.size(2)} keys)"
            )

    def sdpa_mask(self) -> tuple[Tensor | None, bool]:
        """Return ``attn_mask`` and ``is_causal`` for scaled dot product attention."""
        if self.is_causal and not self.is_whole:  # SDPA would count the queries from the first key
            return causal_rows(*self.sizes, self.query.device), False
        return self.attention_mask, self.is_causal

    def mask_within(
        self,
        pattern: Pattern,
        valid: Tensor | None,  # Tokens that are no padding, [B|1, H|1, Lk]
    ) -> Tensor:  # [B, H, Lq, Lk]
        """Return the mask for SDPA, cut down to a pattern."""
        queries, keys = self.sizes
        device, heads = self.query.device, self.query.size(1)
        rows = pattern_rows(
            pattern, valid=valid, num_queries=queries, num_keys=keys, heads=heads, device=device
        )
        if self.is_causal:
            return rows & causal_rows(queries, keys, device)
        if self.attention_mask is None:
            return rows
        # What it masks by the least number there is, a query must not see for want of other keys.
        rows = rows & split_additive(self.attention_mask)[0]
        if self.attention_mask.dtype == torch.bool:
            return rows
        return self.attention_mask.masked_fill(~rows, -torch.inf)


def run_heads(
    call: AttentionCall, jump: JumpLayer | None, pattern: Pattern | None, wanted: bool
) -> tuple[Tensor, Tensor | None]:  # [B, Lq, H, Dv], [B, H, Lq, Lk]
    """Run the heads of a module: those that jump, all within the pattern."""
    call = call.repeat_keys()
    groups, mask = _groups(call, jump)
    if pattern is not None and call.is_whole:
        output = attend_within(
            pattern, groups, call.value, mask=mask, dropout_p=call.dropout, scale=call.scale
        )
    else:
        attn_mask, is_causal = _sdpa_mask(call, pattern, mask)
        output = attend(
            groups,
            call.value,
            attn_mask=attn_mask,
            is_causal=is_causal,
            dropout_p=call.dropout,
            scale=call.scale,
        )
    output = output.transpose(1, 2).contiguous()  # [B, Lq, H, Dv]
    if not wanted:
        return output, None
    attn_mask, is_causal = _sdpa_mask(call, pattern, mask)
    return output, attention_probabilities(
        groups, attn_mask=attn_mask, is_causal=is_causal, scale=call.scale
    )


def ordinary_probabilities(call: AttentionCall) -> Tensor:  # [B, H, Lq, Lk]
    """Return plain softmax rows, which SDPA does not give."""
    call = call.repeat_keys()
    # As SDPA does: what a static cache holds beyond the queries is not there yet.
    key = call.key[:, :, : call.query.size(2)] if call.is_causal else call.key
    return attention_probabilities(
        [_everyone(replace(call, key=key))],
        attn_mask=call.attention_mask,
        is_causal=call.is_causal,
        scale=call.scale,
    )


def _groups(call: AttentionCall, jump: JumpLayer | None) -> tuple[list[HeadGroup], TokenMask]:
    """Return the heads' features: the one place that says what kind of heads a layer has."""
    if jump is None:
        return [_everyone(call)], call.whole_mask(None)
    past = call.past(jump)
    mask = call.whole_mask(past)
    groups = head_groups(call.query, call.key, jump, mask=mask, scale=call.scale, past=past)
    return groups, mask


def _everyone(call: AttentionCall) -> HeadGroup:
    heads = tuple(range(call.query.size(1)))
    return HeadGroup(heads, call.query, call.key, jumps=False)


def _sdpa_mask(
    call: AttentionCall, pattern: Pattern | None, mask: TokenMask
) -> tuple[Tensor | None, bool]:
    return call.sdpa_mask() if pattern is None else (call.mask_within(pattern, mask.valid), False)
