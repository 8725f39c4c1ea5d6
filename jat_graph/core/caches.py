"""Layers of transformers' caches that tell heads of ours what happens to keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache, DynamicLayer

from jat_graph.core.past import Past, put


class KeepingLayer(cache_utils.CacheLayerMixin):  # type: ignore[no-untyped-call]
    """A layer of a cache that takes over another, and tells heads of ours what happens to it."""

    pasts: tuple[tuple[Any, Past], ...] = ()  # of each kind of heads that reads the layer
    # Keys and values as they were left, and how often they were written to; none in compiled code.
    known: Mapping[str, tuple[Any, int | None]] = MappingProxyType({})

    def update(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            length = int(self.get_seq_length())
            for _, past in self.pasts:
                cropped = length < past.length  # some were taken away by hand
                if cropped:
                    past.crop(length)
                changed = []
                for name, (x, times) in self.known.items() if past.length else ():
                    own = getattr(self, name)
                    same = own is x or (cropped and torch.equal(x[:, :, : own.size(2)], own))
                    if not same or times != (None if x.is_inference() else x._version):
                        changed.append(name)
                if changed:
                    past.forget(changed)
        states = super().update(*args, **kwargs)  # type: ignore[safe-super]
        self.remember()
        return states

    def remember(self) -> None:
        """Remember keys and values, to see whether somebody else changes them."""
        self.known = known = {}
        if not torch.compiler.is_compiling():
            for name, x in {"keys": self.keys, "values": self.values}.items():
                if isinstance(x, Tensor):
                    known[name] = (x, None if x.is_inference() else x._version)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what a copy holds, whose tensors count from 0."""
        vars(self).update(state)
        self.remember()

    def reset(self) -> None:
        super().reset()
        for _, past in self.pasts:
            past.reset()
        self.remember()

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove)  # type: ignore[misc]
        for _, past in self.pasts:
            past.crop(self.get_seq_length())
        self.remember()

    def offload(self) -> None:
        super().offload()  # type: ignore[no-untyped-call]
        self.remember()

    def prefetch(self) -> None:
        super().prefetch()  # type: ignore[no-untyped-call]
        self.remember()

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)  # type: ignore[misc]
        for _, past in self.pasts:
            past.reorder(indices)
        self.remember()

    def reorder_cache(self, beam_idx: Any) -> None:
        super().reorder_cache(beam_idx)
        for _, past in self.pasts:
            past.reorder(beam_idx)
        self.remember()

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.keys is not None:
            order = torch.arange(len(self.keys), device=self.keys.device)
            self.batch_select_indices(order.repeat_interleave(repeats))


class RoomyLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer with room for later tokens, so that none moves the keys of those before it."""

    stores: tuple[Tensor, ...] = ()  # of keys and of values

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        start = self.get_seq_length()
        if not start:
            return super().update(key_states, value_states, *args, **kwargs)
        held: Any = (self.keys, self.values)
        same = [x.data_ptr() for x in self.stores] == [x.data_ptr() for x in held]
        known = self.stores if same else held
        pairs = zip(known, (key_states, value_states), strict=True)
        self.stores = tuple(put(*pair, start, 2) for pair in pairs)
        self.keys, self.values = (x[:, :, : start + key_states.size(2)] for x in self.stores)
        return self.keys, self.values

    def offload(self) -> None:
        super().offload()  # type: ignore[no-untyped-call]
        self.stores = ()


KEEPING = dict[type, type]()  # what takes over each kind of layer that keeps all tokens
_names = ("Dynamic", "Static", "QuantoQuantized", "HQQQuantized", "Fp8Quantized")
for _name in (*_names, "LinearAttentionAndFullAttention"):
    if _kind := getattr(cache_utils, f"{_name}Layer", None):  # newer versions have more of them
        _bases = KeepingLayer, RoomyLayer if _kind is DynamicLayer else _kind
        _new = type(f"Keeping{_name}Layer", _bases, {"__module__": __name__})
        KEEPING[_kind] = KEEPING[_new] = globals()[_new.__name__] = _new  # where pickle looks


def keep_past(cache: Cache, index: int, owner: Any, past: Past) -> None:
    """Keep what earlier tokens left behind for some heads beside a layer of a cache."""
    layer: Any = cache.layers[index]
    if not isinstance(layer, KeepingLayer):
        kind: Any = KEEPING[type(layer)]
        cache.layers[index] = new = kind.__new__(kind)
        vars(new).update(vars(layer))
        layer = new
    others = tuple(own for own in layer.pasts if own[1].length >= past.length)
    layer.pasts = (*others, (owner, past))
    layer.remember()
