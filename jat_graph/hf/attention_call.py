"""One call of an attention module, as its heads see it; its mask is resolved once a forward."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.integrations.sdpa_attention import repeat_kv

from jat_graph.attention.patterns.dense import pattern_rows
from jat_graph.attention.propagation import Past
from jat_graph.hf.generation_cache import (
    PastOwner,
    cache_layer,
    causal_rows,
    keeps_all_tokens,
    mask_with_past,
    past_tokens,
    silent_with_past,
)
from jat_graph.masks.tokens import TokenMask, resolve_mask, silence, split_additive
from jat_graph.patterns import Pattern

if TYPE_CHECKING:
    from transformers import Cache


@dataclass(frozen=True)
class AttentionCall:
    """What an attention module is called with."""

    module: nn.Module
    query: Tensor  # of the last tokens if the keys of others come from a cache, [B, H, Lq, D]
    key: Tensor  # [B, Hkv, Lk, D]
    value: Tensor  # [B, Hkv, Lk, Dv]
    attention_mask: Tensor | None  # for SDPA, [B, 1|H, Lq|1, Lk]
    is_causal: bool  # whether SDPA masks later tokens, for want of a mask
    dropout: float  # of the attention probabilities
    scale: float
    hidden: Tensor | None = None  # what the module made the queries of, [B, Lq, C]
    cache: Cache | None = None  # of the keys of earlier tokens
    silent: Tensor | None = None  # tokens that never vote and are never stones, bool [B, Lq]
    graph: Any = None  # from outside, in the place of those of jump heads

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of queries and of keys."""
        return self.query.size(2), self.key.size(2)

    @property
    def is_whole(self) -> bool:
        """Tell whether the queries are those of all tokens."""
        return self.query.size(2) == self.key.size(2)

    def repeat_keys(self) -> AttentionCall:
        """Return the call with each head of keys and values repeated for its group of queries."""
        groups = self.query.size(1) // self.key.size(1)
        if groups == 1:
            return self
        return replace(self, key=repeat_kv(self.key, groups), value=repeat_kv(self.value, groups))

    def of_heads(
        self, heads: tuple[int, ...], query: Tensor, key: Tensor, value: Tensor
    ) -> AttentionCall:
        """Return the call of some heads, whose queries, keys and values are given."""
        mask = self.attention_mask
        if mask is not None and mask.dim() == 4 and mask.size(1) > 1:
            mask = mask[:, list(heads)]
        return replace(self, query=query, key=key, value=value, attention_mask=mask)

    def token_mask(self) -> TokenMask:
        """Return the mask for the votes."""
        mask = resolve_once(self.attention_mask, self.is_causal, self.query)
        return silence(mask, self.silent, self.query)

    def past(self, owner: PastOwner) -> Past | None:
        """Return what earlier tokens left behind for heads; None if nothing is to be kept.

        The first tokens may fill any cache, which training does by default; only the next ones,
        which never come there, need one that can be followed.
        """
        followed = self.cache is not None and keeps_all_tokens(self.cache, self.module)
        if self.cache is not None and (followed or not self.is_whole):
            return past_tokens(self.cache, self.module, owner, self.query.size(2))
        if not self.is_whole:
            raise ValueError(
                "jump heads that came by name need the queries of all tokens: load the model with "
                "jat_graph.from_pretrained, or pass use_cache=False "
                f"(got {self.sizes[0]} queries for {self.sizes[1]} keys)"
            )
        return None

    def whole_mask(self, past: Past | None) -> TokenMask:
        """Return the mask of all tokens, also where the queries are those of the last ones."""
        if self.is_whole:
            return self.token_mask()
        if past is not None:
            mask = mask_with_past(past.valid, self.attention_mask, *self.sizes)
            return replace(mask, silent=silent_with_past(past.silent, self.silent, past.length))
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

    def sdpa_mask(self, pattern: Pattern | None) -> tuple[Tensor | None, bool]:
        """Return ``attn_mask`` and ``is_causal`` for SDPA, cut down to a pattern."""
        if pattern is not None:
            return self._mask_within(pattern), False
        if self.is_causal and not self.is_whole:  # SDPA would count the queries from the first key
            return causal_rows(*self.sizes, self.query.device), False
        return self.attention_mask, self.is_causal

    def _mask_within(self, pattern: Pattern) -> Tensor:  # [B, H, Lq, Lk]
        queries, keys = self.sizes
        device, heads = self.query.device, self.query.size(1)
        valid = self.whole_mask(None).valid
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


@dataclass(frozen=True)
class _Entry:
    version: int
    is_causal: bool
    shape: torch.Size
    resolved: TokenMask
    pairs_is_mask: bool


_entries: MutableMapping[Tensor, _Entry] = WeakTensorKeyDictionary()


def resolve_once(
    attention_mask: Tensor | None,
    is_causal: bool,
    query: Tensor,  # [B, H, L, D], whose shape the mask must fit
) -> TokenMask:
    """Resolve a mask as :func:`resolve_mask` does, and remember the result while the mask lives.

    Resolving looks at the mask's values and so waits for the device; the layers of one forward
    share their mask. A mask that was written to since is resolved anew.
    """
    if attention_mask is None or not _can_be_remembered(attention_mask):
        return resolve_mask(attention_mask, is_causal, query)
    entry = _entries.get(attention_mask)
    wanted = attention_mask._version, is_causal, query.shape[:3]
    if entry is None or (entry.version, entry.is_causal, entry.shape) != wanted:
        entry = _remember(attention_mask, is_causal, query)
    return replace(entry.resolved, pairs=attention_mask) if entry.pairs_is_mask else entry.resolved


def _can_be_remembered(mask: Tensor) -> bool:
    """Tell whether an entry can go stale or keep its own mask alive: versions, and views."""
    if torch.compiler.is_compiling() or mask.is_inference():
        return False
    return mask.dim() == 4 and mask.size(-2) > 1


def _remember(mask: Tensor, is_causal: bool, query: Tensor) -> _Entry:
    resolved = resolve_mask(mask, is_causal, query)
    pairs_is_mask = resolved.pairs is mask
    if pairs_is_mask:
        # The entry would keep its own key alive.
        resolved = replace(resolved, pairs=None)
    entry = _Entry(mask._version, is_causal, query.shape[:3], resolved, pairs_is_mask)
    _entries[mask] = entry
    return entry
