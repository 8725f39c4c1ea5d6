"""What an attention module is and is called with, and what earlier tokens left for its heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticLayer
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from jat_graph.core.caches import KEEPING, keep_past
from jat_graph.core.masks import (
    TokenMask,
    causal_rows,
    exclude_tokens,
    resolve_once,
    split_additive,
)
from jat_graph.core.past import Past
from jat_graph.hf.names import INPUTS, NO_SDPA, lacks_sdpa, refuse_name
from jat_graph.hf.reasons import CROSS, SDPA_LACKS, read_kind, read_traced

if TYPE_CHECKING:
    from jat_graph.jumps.patterns.base import Pattern

_on_sdpa = set[type]()  # configurations of models that it can read


@dataclass(frozen=True)
class AttentionInputs:
    """What an attention module is called with."""

    module: Any
    query: Tensor  # of the last tokens if the keys of others come from a cache, [B, H, Lq, D]
    key: Tensor  # [B, Hkv, Lk, D]
    value: Tensor  # [B, Hkv, Lk, Dv]
    attention_mask: Tensor | None  # for SDPA, [B, 1|H, Lq|1, Lk]
    is_causal: bool  # whether SDPA masks later tokens, for want of a mask
    dropout: float  # of the attention probabilities
    scale: float
    cache: Cache | None = None  # of the keys of earlier tokens
    excluded: Tensor | None = None  # tokens that never vote and are never stones, bool [B, Lq]
    external: Any = None  # graphs, in the place of those of jump heads
    everywhere: Tensor | None = None  # which tokens are global, bool [B, L]

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of queries and of keys."""
        return self.query.size(2), self.key.size(2)

    @property
    def is_whole(self) -> bool:
        """Tell whether the queries are those of all tokens."""
        return self.query.size(2) == self.key.size(2)

    def in_order(self, causal: bool) -> bool:
        """Tell whether tokens see earlier ones only, of a module that is causal or not."""
        mask = self.attention_mask
        if not self.is_whole or self.query.size(2) == 1:
            return causal
        return self.is_causal if mask is None else causal and mask.size(-2) > 1

    def check_whole(self, what: str) -> None:
        """Refuse the queries of the last tokens alone."""
        if not self.is_whole:
            got = "got {} queries for {} keys".format(*self.sizes)
            raise ValueError(f"{what} need the queries of all tokens: pass use_cache=False ({got})")

    def without_room(self) -> AttentionInputs:
        """Return them without the room for later tokens that a static cache hands on as well."""
        (queries, number), mask = self.sizes, self.attention_mask
        if self.is_whole or (torch.compiler.is_compiling() and not self.is_causal):
            return self
        if self.is_causal:  # no token is in it yet
            number = queries
        elif self.cache is not None:
            layer = self.cache.layers[self.module.layer_idx]
            number = int(layer.get_seq_length()) if isinstance(layer, StaticLayer) else number
        elif mask is not None:  # one of the first and the last token is no padding, and sees itself
            seen = split_additive(mask)[0][:, :, [0, -1]].flatten(0, 1).any(0)
            first, last = (seen * torch.arange(number, device=seen.device)).amax(-1).tolist()
            number = min(number, max(first + queries, last + 1))
        key, value = self.key[:, :, :number], self.value[:, :, :number]
        mask = None if mask is None else mask[..., :number]
        return replace(self, key=key, value=value, attention_mask=mask)

    def repeat_keys(self) -> AttentionInputs:
        """Return them with each head of keys and values repeated for its group of queries."""
        times = self.query.size(1) // self.key.size(1)
        return replace(self, key=repeat_kv(self.key, times), value=repeat_kv(self.value, times))

    def past(self, owner: Any, new_past: Callable[[], Past], adopt: Any = None) -> Past | None:
        """Return what earlier tokens left behind for heads; None where nothing can keep it."""
        # The first tokens may fill any cache, as in training; the next ones need one to follow.
        cache = self.cache
        module = self.module
        before = self.key.size(2) - self.query.size(2)
        layer = None if cache is None else cache.layers[module.layer_idx]
        if before == 0 and type(layer) not in KEEPING:
            return None
        if before and cache is not None:
            self.check_cache()
        kept = getattr(layer, "pasts", ())  # of a KeepingLayer
        known = next((past for heads, past in kept if heads == owner), None)
        past = new_past() if known is None else known
        if before and isinstance(layer, StaticLayer) and layer.get_seq_length() != self.key.size(2):
            cure = "pass disable_compile=True to generate(), or a DynamicCache"
            raise ValueError(f"heads cannot read a static cache in a compiled model: {cure}")
        if past.length != before and adopt is not None:
            adopt(past, before, self.attention_mask)
        elif past.length != before:
            if cache is None:
                self.check_whole("heads not loaded by jat_graph.from_pretrained")
            got = f"the cache holds {before} tokens that were added without these heads"
            raise ValueError(f"{got}, which read {past.length}: pass a new one, or use_cache=False")
        if cache is not None and known is None:
            keep_past(cache, module.layer_idx, owner, past)
        return past

    def check_cache(self) -> None:
        """Refuse a cache, or a module's window, that does not keep all tokens."""
        window = window_of(self.module)
        number = self.key.size(2)
        if window is not None and number > window:
            name = type(self.module).__name__
            got = f"{name} sees the last {window} tokens only, which jump heads and patterns"
            cure = f"do not support with a cache: pass use_cache=False (got {number} keys)"
            raise ValueError(f"{got} {cure}")
        cache: Any = self.cache
        layer = cache.layers[self.module.layer_idx]
        if type(layer) not in KEEPING:
            most = "" if window is None else f" for up to {window} tokens"
            got = f"a {type(cache).__name__} ({type(layer).__name__})"
            raise ValueError(
                f"heads of jat_graph and patterns need a cache that keeps all tokens, got {got}; "
                f"pass past_key_values=DynamicCache(){most}, or use_cache=False"
            )

    def token_mask(self, past: Past | None = None) -> TokenMask:
        """Return the mask of all tokens, the excluded ones among them."""
        if past is not None and not self.is_whole:
            given = self.attention_mask
            if given is not None and given.size(-1) != self.key.size(2):
                got = f"{given.size(-1)} columns for {self.key.size(2)} keys"
                raise ValueError(f"attention_mask must have a column for each key, got {got}")
            return past.mask_of_all(self.attention_mask, self.excluded, self.query)
        if self.attention_mask is None:
            mask = TokenMask(causal=self.is_causal)
        else:
            mask = resolve_once(self.attention_mask, self.is_causal, self.query)
        return mask if self.excluded is None else exclude_tokens(mask, self.excluded, self.query)

    def sdpa_mask(self, pattern: Pattern | None) -> tuple[Tensor | None, bool]:  # [B, H, Lq, Lk]
        """Return ``attn_mask`` and ``is_causal`` for SDPA, cut down to a pattern."""
        mask, (queries, keys) = self.attention_mask, self.sizes
        if pattern is None:
            return mask, self.is_causal
        from jat_graph.jumps.patterns.dense import pattern_rows

        shown = None if mask is None else split_additive(mask)[0]
        if self.is_whole:
            valid = self.token_mask().valid
        else:
            valid = None if shown is None else shown.any(-2)
            if self.cache is not None:
                # Others lack keys; what has left the model's own window would pass for padding.
                self.check_cache()
        sizes: Any = {"num_queries": queries, "num_keys": keys, "device": self.query.device}
        rows = pattern_rows(pattern, valid=valid, heads=range(self.query.size(1)), **sizes)
        if self.is_causal:
            return rows & causal_rows(queries, keys, self.query.device), False
        if mask is None or shown is None:
            return rows, False
        # What it masks by the least number there is, a query must not see for want of other keys.
        rows = rows & shown
        return rows if mask.dtype == torch.bool else mask.masked_fill(~rows, -torch.inf), False


def hand_cache(
    name: str, module: Any, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    """Hand on to attention the cache that its module is given, while its model is on a name."""
    if str(module.config._attn_implementation).partition(":")[0] != name:
        return None
    cache = next((x for x in (*args, *kwargs.values()) if isinstance(x, Cache)), None)
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    return args, {**kwargs, INPUTS: cache}


def jat_mask(**kwargs: Any) -> Tensor | None:  # [B, 1, Lq, Lk]
    """Return SDPA's mask; padding alone is one row for all queries, known without its values."""
    config = kwargs.get("config")
    if type(config) not in _on_sdpa:
        if lacks_sdpa(type(config)):
            refuse_name(type(config).__name__.removesuffix("Config"), config, NO_SDPA)
        _on_sdpa.add(type(config))
    padding_only = kwargs.get("mask_function") is bidirectional_mask_function
    if padding_only and not kwargs.get("allow_is_causal_skip", True):
        row = sdpa_mask(**kwargs | {"q_length": 1})
        return None if row is None else row.expand(-1, -1, kwargs["q_length"], -1)
    with torch.inference_mode(False):  # it has a version, by which layers know it again
        return sdpa_mask(**kwargs)


def why_left_alone(module: Any, name: str = "") -> str | None:
    """Return why heads of ours cannot read a module; None if it is self-attention that they can."""
    for attribute, why in SDPA_LACKS.items():
        if getattr(module, attribute, None) is not None:
            return why
    if (
        getattr(module, "is_cross_attention", False)
        or (getattr(module, "is_decoder", False) and not getattr(module, "is_causal", False))
        or any(part.startswith("cross") and "att" in part for part in name.split("."))
        or "encoder_attn" in name.split(".")
    ):
        return CROSS
    if getattr(module, "is_kv_shared_layer", False):
        return "it reads the keys of an earlier layer"
    if getattr(module, "layer_idx", 0) is None and getattr(module, "is_causal", True):
        return "it serves layers whose numbers it does not know"
    read: Any = read_traced if torch.compiler.is_compiling() else read_kind
    found: str | None = read(type(module), type(module.config))
    return found


def window_of(module: Any) -> int | None:
    """Return the window or chunk of its model's own that a module sees; None for all tokens."""
    types = getattr(module.config, "layer_types", None) or ()
    index = getattr(module, "layer_idx", None)
    kind = types[index] if index is not None and index < len(types) else None
    if kind == "full_attention":
        return None  # whatever the module holds, as EXAONE 4's do in all layers
    name = "attention_chunk_size" if kind == "chunked_attention" else "sliding_window"
    window: int | None = getattr(module.config, name, None)
    return getattr(module, name, window)
