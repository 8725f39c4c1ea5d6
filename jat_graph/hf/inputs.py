"""What an attention module is called with, as its heads see it; one look at a mask a forward."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.integrations.sdpa_attention import repeat_kv

from jat_graph.attention.propagation import Past
from jat_graph.hf.generation_cache import (
    PastOwner,
    cache_layer,
    causal_rows,
    excluded_with_past,
    keeps_all_tokens,
    mask_with_past,
    past_tokens,
)
from jat_graph.masks.tokens import TokenMask, exclude_tokens, resolve_mask, split_additive
from jat_graph.patterns.base import Pattern

if TYPE_CHECKING:
    from transformers import Cache


@dataclass(frozen=True)
class AttentionInputs:
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
    excluded: Tensor | None = None  # tokens that never vote and are never stones, bool [B, Lq]
    external: Any = None  # graphs, in the place of those of jump heads

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of queries and of keys."""
        return self.query.size(2), self.key.size(2)

    @property
    def is_whole(self) -> bool:
        """Tell whether the queries are those of all tokens."""
        return self.query.size(2) == self.key.size(2)

    def repeat_keys(self) -> AttentionInputs:
        """Return them with each head of keys and values repeated for its group of queries."""
        times = self.query.size(1) // self.key.size(1)
        return replace(self, key=repeat_kv(self.key, times), value=repeat_kv(self.value, times))

    def token_mask(self) -> TokenMask:
        """Return the mask of all tokens, the excluded ones among them."""
        mask = resolve_once(self.attention_mask, self.is_causal, self.query)
        return mask if self.excluded is None else exclude_tokens(mask, self.excluded, self.query)

    def past_and_mask(self, owner: PastOwner) -> tuple[Past | None, TokenMask]:
        """Return what earlier tokens left behind for heads, None if nothing is kept, and the mask.

        The first tokens may fill any cache, which training does by default; only the next ones,
        which never come there, need one that can be followed.
        """
        cache = self.cache
        if self.is_whole and (cache is None or not keeps_all_tokens(cache, self.module)):
            return None, self.token_mask()
        if cache is None:
            raise ValueError(
                "jump heads that came by name need the queries of all tokens: load the model with "
                "jat_graph.from_pretrained, or pass use_cache=False "
                f"(got {self.sizes[0]} queries for {self.sizes[1]} keys)"
            )
        past = past_tokens(cache, self.module, owner, self.query.size(2))
        if self.is_whole:
            return past, self.token_mask()
        mask = mask_with_past(past.valid, self.attention_mask, *self.sizes)
        excluded = excluded_with_past(past.excluded, self.excluded, past.length)
        return past, replace(mask, excluded=excluded)

    def _valid(self) -> Tensor | None:
        """Return the tokens that are no padding, also where the queries are the last ones."""
        if self.is_whole:
            return self.token_mask().valid
        if self.cache is not None:
            cache_layer(self.cache, self.module)  # others hold keys that are not there yet
        if self.attention_mask is None:
            return None
        self._check_no_window()
        return split_additive(self.attention_mask)[0].any(-2)

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
        from jat_graph.attention.patterns.dense import pattern_rows

        queries, keys = self.sizes
        device, heads = self.query.device, self.query.size(1)
        rows = pattern_rows(
            pattern,
            valid=self._valid(),
            num_queries=queries,
            num_keys=keys,
            heads=heads,
            device=device,
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
    # An entry for a mask without a version, or for a view, could go stale or keep its mask alive.
    if (
        attention_mask is None
        or torch.compiler.is_compiling()
        or attention_mask.is_inference()
        or attention_mask.dim() != 4
        or attention_mask.size(-2) == 1
    ):
        return resolve_mask(attention_mask, is_causal, query)
    entry = _entries.get(attention_mask)
    wanted = attention_mask._version, is_causal, query.shape[:3]
    if entry is None or (entry.version, entry.is_causal, entry.shape) != wanted:
        resolved = resolve_mask(attention_mask, is_causal, query)
        pairs_is_mask = resolved.pairs is attention_mask
        if pairs_is_mask:  # the entry would keep its own key alive
            resolved = replace(resolved, pairs=None)
        entry = _Entry(*wanted, resolved, pairs_is_mask)
        _entries[attention_mask] = entry
    return replace(entry.resolved, pairs=attention_mask) if entry.pairs_is_mask else entry.resolved
