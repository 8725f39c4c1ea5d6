"""What an attention module is called with, and what its jump heads keep in a model's KV cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache, StaticLayer
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from jat_graph.core.masks import (
    TokenMask,
    causal_rows,
    exclude_tokens,
    resolve_once,
    split_additive,
)
from jat_graph.core.past import Past, put

if TYPE_CHECKING:
    from jat_graph.jumps.patterns.base import Pattern

INPUTS = "jat_inputs"  # what a module hands on to its attention: the cache


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
            check_cache(cache, module, self.key.size(2))
        known = isinstance(layer, KeepingLayer) and layer.owner == owner
        past: Past = layer.past if known else new_past()  # type: ignore[union-attr]
        if past.length > before:
            name = type(module).__name__
            again = f"{name} reads again what it read in this forward"
            raise ValueError(
                f"{again}, which heads with a cache do not support: pass use_cache=False"
            )
        if past.length != before and adopt is not None:
            adopt(past, before, self.attention_mask)
        elif past.length != before:
            if cache is None:
                self.check_whole("heads not loaded by jat_graph.from_pretrained")
            raise ValueError(
                f"the cache holds {before} tokens that were added without these heads, by a prefix "
                "of PEFT, while gradients were recorded, under a mask that is neither causal nor "
                "padding, or without jat_graph.from_pretrained: pass a new one, or use_cache=False"
            )
        if cache is not None and not known:
            kind: Any = KEEPING[type(layer)]
            cache.layers[module.layer_idx] = new = kind.__new__(kind)
            vars(new).update(vars(layer) | {"owner": owner, "past": past})
            new.remember()
        return past

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
                check_cache(self.cache, self.module, keys)
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
    padding_only = kwargs.get("mask_function") is bidirectional_mask_function
    if padding_only and not kwargs.get("allow_is_causal_skip", True):
        row = sdpa_mask(**kwargs | {"q_length": 1})
        return None if row is None else row.expand(-1, -1, kwargs["q_length"], -1)
    with torch.inference_mode(False):  # it has a version, by which layers know it again
        return sdpa_mask(**kwargs)


class KeepingLayer(cache_utils.CacheLayerMixin):  # type: ignore[no-untyped-call]
    """A layer of a cache that takes over another, and tells heads of ours what happens to it."""

    owner: Any
    past: Past
    known: dict[str, tuple[Any, int | None]] | None = None  # keys and values as they were left

    def update(self, *args: Any, **kwargs: Any) -> Any:
        """Add the keys and values of the next tokens, and return those of all."""
        if not torch.compiler.is_compiling():
            if self.get_seq_length() < self.past.length:
                self.past.crop(int(self.get_seq_length()))  # some were taken away by hand
            elif self.known and self.past.length:
                old, new = self.known, self.remember()
                pairs = [(n, *old[n], *new[n]) for n in old]
                changed = [n for n, x, times, y, again in pairs if x is not y or times != again]
                if changed:
                    self.past.forget(changed)
        states = super().update(*args, **kwargs)  # type: ignore[safe-super]
        self.remember()
        return states

    def remember(self) -> dict[str, tuple[Any, int | None]]:
        """Remember keys and values, and how often they were written to, to see who changes them."""
        marks = self.known = dict[str, tuple[Any, int | None]]()
        if torch.compiler.is_compiling():
            return marks
        for name, x in {"keys": self.keys, "values": self.values}.items():
            counts = isinstance(x, Tensor) and not x.is_inference()
            marks[name] = (x, x._version if counts else None)  # type: ignore[union-attr]
        return marks

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what a copy holds, whose tensors count from 0."""
        vars(self).update(state)
        self.remember()

    def reset(self) -> None:
        """Forget all tokens."""
        super().reset()
        self.past.reset()
        self.remember()

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens."""
        super().crop(tokens_to_remove)  # type: ignore[misc]
        self.past.crop(self.get_seq_length())
        self.remember()

    def offload(self) -> None:
        """Leave nothing on the device."""
        super().offload()  # type: ignore[no-untyped-call]
        self.remember()

    def prefetch(self) -> None:
        """Bring keys and values back to the device."""
        super().prefetch()  # type: ignore[no-untyped-call]
        self.remember()

    def batch_select_indices(self, indices: Tensor) -> None:
        """Take some sequences of the batch, in this order."""
        super().batch_select_indices(indices)  # type: ignore[misc]
        self.past.reorder(indices)
        self.remember()

    def reorder_cache(self, beam_idx: Any) -> None:
        """Take the sequences in another order, as beam search does."""
        super().reorder_cache(beam_idx)
        self.past.reorder(beam_idx)
        self.remember()

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence."""
        if self.keys is not None:
            order = torch.arange(len(self.keys), device=self.keys.device)
            self.batch_select_indices(order.repeat_interleave(repeats))


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer with room for later tokens, so that none moves the keys of those before it."""

    stores: tuple[Tensor, ...] = ()  # of keys and of values

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Add the keys and values of the next tokens, and return those of all."""
        start = self.get_seq_length()
        if not start:
            return super().update(key_states, value_states, *args, **kwargs)
        held: Any = (self.keys, self.values)
        pairs = zip(self.stores, held, strict=False)
        kept = self.stores and all(one.data_ptr() == two.data_ptr() for one, two in pairs)
        known = self.stores if kept else held
        pairs = zip(known, (key_states, value_states), strict=True)
        self.stores = tuple(put(*pair, start, 2) for pair in pairs)
        self.keys, self.values = (x[:, :, : start + key_states.size(2)] for x in self.stores)
        return self.keys, self.values

    def offload(self) -> None:
        """Leave nothing on the device."""
        super().offload()  # type: ignore[no-untyped-call]
        self.stores = ()


KEEPING = dict[type, type]()  # what takes over each kind of layer that keeps all tokens
_names = ("Dynamic", "Static", "QuantoQuantized", "HQQQuantized", "Fp8Quantized")
for _name in (*_names, "LinearAttentionAndFullAttention"):
    if _kind := getattr(cache_utils, f"{_name}Layer", None):  # newer versions have more of them
        _bases = KeepingLayer, RoomyLayer if _kind is DynamicLayer else _kind
        _new = type(f"Keeping{_name}Layer", _bases, {"__module__": __name__})
        KEEPING[_kind] = KEEPING[_new] = globals()[_new.__name__] = _new  # where pickle looks


def check_cache(cache: Cache, module: Any, num_keys: int) -> None:
    """Refuse a cache, or a module's window, that does not keep all tokens."""
    window = window_of(module)
    layer = cache.layers[module.layer_idx]
    if window is not None and num_keys > window:
        raise ValueError(
            f"{type(module).__name__} sees the last {window} tokens only, which jump heads and "
            f"patterns do not support with a cache: pass use_cache=False (got {num_keys} keys)"
        )
    if type(layer) not in KEEPING:
        most = "" if window is None else f" for up to {window} tokens"
        got = f"a {type(cache).__name__} ({type(layer).__name__})"
        raise ValueError(
            f"heads of jat_graph and patterns need a cache that keeps all tokens, got {got}; "
            f"pass past_key_values=DynamicCache(){most}, or use_cache=False"
        )


def window_of(module: Any) -> int | None:
    """Return the window of its model's own that an attention module sees; None for all tokens."""
    types = getattr(module.config, "layer_types", None)
    index = getattr(module, "layer_idx", None)
    if types is not None and index is not None and types[index] == "full_attention":
        return None  # whatever the module holds, as EXAONE 4's do in all layers
    window: int | None = getattr(module.config, "sliding_window", None)
    return getattr(module, "sliding_window", window)
