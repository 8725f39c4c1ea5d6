"""What an attention module is called with, and what its jump heads keep in a model's KV cache."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import repeat_kv

from jat_graph.attention.propagation import Past, new_past
from jat_graph.masks.tokens import TokenMask, exclude_tokens, resolve_mask, split_additive
from jat_graph.patterns.base import Pattern


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

    def check_whole(self, what: str) -> None:
        """Refuse the queries of the last tokens alone."""
        if not self.is_whole:
            got = "got {} queries for {} keys".format(*self.sizes)
            raise ValueError(f"{what} need the queries of all tokens: pass use_cache=False ({got})")

    def repeat_keys(self) -> AttentionInputs:
        """Return them with each head of keys and values repeated for its group of queries."""
        times = self.query.size(1) // self.key.size(1)
        return replace(self, key=repeat_kv(self.key, times), value=repeat_kv(self.value, times))

    def token_mask(self) -> TokenMask:
        """Return the mask of all tokens, the excluded ones among them."""
        mask = resolve_once(self.attention_mask, self.is_causal, self.query)
        return mask if self.excluded is None else exclude_tokens(mask, self.excluded, self.query)

    def past_and_mask(self, owner: Any) -> tuple[Past | None, TokenMask]:
        """Return what earlier tokens left for heads, and the mask; none for a whole input."""
        # The first tokens may fill any cache, as in training; the next ones need one to follow.
        cache = self.cache
        if cache is None or (self.is_whole and not keeps_all_tokens(cache, self.module)):
            self.check_whole("jump heads not loaded by jat_graph.from_pretrained")
            return None, self.token_mask()
        past = past_tokens(cache, self.module, owner, self.query.size(2))
        if self.is_whole:
            return past, self.token_mask()
        mask = mask_with_past(past.valid, self.attention_mask, *self.sizes)
        if self.excluded is None:  # a model says it of all tokens or of none
            return past, mask
        last, before = self.excluded.unsqueeze(1), past.excluded  # [B, 1, Lq], [B, H|1, L]
        before = last.new_zeros(len(last), 1, past.length) if before is None else before
        last = last.expand(-1, before.size(1), -1)
        return past, replace(mask, excluded=torch.cat([before, last], dim=-1))

    def sdpa_mask(self, pattern: Pattern | None) -> tuple[Tensor | None, bool]:
        """Return ``attn_mask`` and ``is_causal`` for SDPA, cut down to a pattern."""
        if pattern is not None:
            return self._mask_within(pattern), False
        if self.is_causal and not self.is_whole:  # SDPA would count the queries from the first key
            return causal_rows(*self.sizes, self.query.device), False
        return self.attention_mask, self.is_causal

    def _mask_within(self, pattern: Pattern) -> Tensor:  # [B, H, Lq, Lk]
        from jat_graph.attention.patterns.dense import pattern_rows

        mask, (queries, keys) = self.attention_mask, self.sizes
        shown = None if mask is None else split_additive(mask)[0]
        if self.is_whole:
            valid = self.token_mask().valid
        else:
            valid = None if shown is None else shown.any(-2)
            if self.cache is not None:
                check_cache(self.cache, self.module)  # others hold keys that are not there yet
            window = getattr(self.module.config, "sliding_window", None)
            # Outside of a window of the model's own, tokens would pass for padding.
            if shown is not None and window is not None and keys > window:
                raise ValueError(
                    f"{type(self.module).__name__} sees the last {window} tokens only, which a "
                    f"pattern cannot follow with a cache: pass use_cache=False (got {keys} keys)"
                )
        heads, device = range(self.query.size(1)), self.query.device
        sizes = {"num_queries": queries, "num_keys": keys}
        rows = pattern_rows(pattern, valid=valid, heads=heads, device=device, **sizes)
        if self.is_causal:
            return rows & causal_rows(queries, keys, device)
        if mask is None or shown is None:
            return rows
        # What it masks by the least number there is, a query must not see for want of other keys.
        rows = rows & shown
        return rows if mask.dtype == torch.bool else mask.masked_fill(~rows, -torch.inf)


# Of a mask: its version, causality and shape; what it resolves to; whether its pairs are itself.
_entries: MutableMapping[Tensor, tuple[Any, TokenMask, bool]] = WeakTensorKeyDictionary()


def resolve_once(
    attention_mask: Tensor | None,
    is_causal: bool,
    query: Tensor,  # [B, H, L, D], whose shape the mask must fit
) -> TokenMask:
    """Resolve a mask, which waits for the device, once for all layers that share it."""
    # What was written to since is resolved anew.
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
    if entry is None or entry[0] != wanted:
        resolved = resolve_mask(attention_mask, is_causal, query)
        pairs_is_mask = resolved.pairs is attention_mask
        if pairs_is_mask:  # the entry would keep its own key alive
            resolved = replace(resolved, pairs=None)
        _entries[attention_mask] = entry = (wanted, resolved, pairs_is_mask)
    return replace(entry[1], pairs=attention_mask) if entry[2] else entry[1]


class JumpCacheLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer of a DynamicCache that takes over another, and keeps what jump heads need."""

    def __init__(self, layer: DynamicLayer, owner: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        vars(self).update(vars(layer))
        self.owner, self.past = owner, new_past(owner.config)

    def reset(self) -> None:
        """Forget all tokens."""
        super().reset()
        self.past = new_past(self.owner.config)

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens."""
        super().crop(tokens_to_remove)
        self.past.crop(self.get_seq_length())

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take the sequences of the batch in another order, as beam search does."""
        super().reorder_cache(beam_idx)  # type: ignore[arg-type]
        self.past.change_batch(lambda x: x.index_select(0, beam_idx.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence."""
        super().batch_repeat_interleave(repeats)
        self.past.change_batch(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some sequences."""
        super().batch_select_indices(indices)
        self.past.change_batch(lambda x: x[indices])


def keeps_all_tokens(cache: Cache, module: Any) -> bool:
    """Tell whether a cache keeps the keys of all tokens as they are, and on their device."""
    followed = type(cache.layers[module.layer_idx]) in (DynamicLayer, JumpCacheLayer)
    return followed and not cache.offloading


def check_cache(cache: Cache, module: Any) -> None:
    """Refuse a cache that does not keep all tokens as they are."""
    if not keeps_all_tokens(cache, module):
        kind = type(cache.layers[module.layer_idx]).__name__
        kind += ", offloaded" if cache.offloading else ""
        raise ValueError(
            "jump heads and patterns generate with transformers.DynamicCache only, got a "
            f"{type(cache).__name__} ({kind}); pass past_key_values=DynamicCache(), or no cache"
        )


def past_tokens(cache: Cache, module: Any, owner: Any, num_new: int) -> Past:
    """Return what the earlier tokens in a cache left behind for a layer's jump heads."""
    check_cache(cache, module)
    layer: Any = cache.layers[module.layer_idx]
    before = layer.get_seq_length() - num_new
    if not isinstance(layer, JumpCacheLayer) or (before == 0 and layer.owner != owner):
        cache.layers[module.layer_idx] = layer = JumpCacheLayer(layer, owner)
    if layer.past.length != before or layer.owner != owner:
        raise ValueError(
            f"the cache holds {before} tokens that came without these jump heads, or under a mask "
            "that is neither causal nor padding; fill a new one, or pass use_cache=False"
        )
    past: Past = layer.past
    return past


def mask_with_past(
    past: Tensor | None,  # Which of the earlier tokens are no padding, [B|1, H|1, Lk - Lq]
    attention_mask: Tensor | None,  # The mask of the last tokens, [B|1, H|1, Lq|1, Lk]
    num_queries: int,
    num_keys: int,
) -> TokenMask:
    """Return the mask of all tokens from that of the last ones."""
    start = num_keys - num_queries
    if attention_mask is None:
        if past is None:
            return TokenMask(causal=True)
        attention_mask = causal_rows(num_queries, num_keys, past.device)
    allowed, _ = split_additive(attention_mask)
    allowed = allowed.expand(-1, -1, num_queries, -1)
    here = allowed.diagonal(start, -2, -1)  # a token that is no padding sees itself
    before = here.new_ones(1, 1, start) if past is None else past
    batch, heads = (max(before.size(axis), here.size(axis)) for axis in (0, 1))
    valid = torch.cat([part.expand(batch, heads, -1) for part in (before, here)], dim=-1)
    expected = valid.unsqueeze(-2) & causal_rows(num_queries, num_keys, valid.device)
    if bool(((allowed != expected) & here.unsqueeze(-1)).any()):
        raise ValueError("attention_mask must be causal order and padding, as in the cache")
    return TokenMask(None if past is None and bool(valid.all()) else valid, causal=True)


def causal_rows(num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    """Return which keys the last queries see in causal order."""
    ones = torch.ones(1, 1, num_queries, num_keys, dtype=torch.bool, device=device)
    return ones.tril(num_keys - num_queries)
