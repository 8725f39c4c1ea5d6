"""Resolve the mask of a forward once, not in each of its layers."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from jat_graph.masks import TokenMask, resolve_mask


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
    query: Tensor,  # Tensor [B, H, L, D] whose shape the mask must fit
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
