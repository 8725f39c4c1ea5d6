"""What jump heads keep in a model's own KV cache, so that it can generate token by token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from jat_graph.attention.propagation import Past, new_past
from jat_graph.masks.tokens import TokenMask, split_additive


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
    return layer.past


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
