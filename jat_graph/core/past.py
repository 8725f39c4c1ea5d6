"""What earlier tokens of a causal sequence left behind for the next ones, beside a cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from jat_graph.core.heads import Features, HeadParts
from jat_graph.core.masks import TokenMask, causal_rows, split_additive

LEAST_ROOM = 64  # tokens
BACK = 64  # tokens that a crop may take away at little cost


@dataclass(eq=False)
class Past(ABC):
    """What earlier tokens left behind for the heads of one layer.

    A cache holds their keys and values besides, as they came, and says what happens to them: tokens
    come, sequences change places, the last tokens go, or all do.
    """

    # Attributes with dimension 2 for tokens; all tensors have the sequences of the batch first.
    by_token: ClassVar[tuple[str, ...]] = ("valid", "excluded")
    keeps: ClassVar[tuple[str, ...]] = ("keys", "values")  # what is kept in another form

    heads: Any  # what the heads are, and how they read
    length: int = 0  # L, the number of tokens
    valid: Tensor | None = None  # those that are no padding, bool [B, H|1, L]; None if all are
    excluded: Tensor | None = None  # those that never vote and are never stones; None if none are

    @abstractmethod
    def append(
        self,
        own: Features,  # queries of the next n tokens, keys and values of all L + n
        mask: TokenMask,  # of all tokens
        scale: float,
        strength: Tensor | None = None,  # what the heads have learned
    ) -> HeadParts:
        """Return how the next tokens read, and keep what those after them need."""

    def forget(self, changed: list[str]) -> None:
        """Take note that somebody changed the keys or the values of earlier tokens."""
        lost = [name for name in changed if name in self.keeps]
        if lost:
            got = f"the {' and '.join(lost)} of a cache were replaced or written to"
            raise ValueError(f"{got}, of which heads of jat_graph keep more: pass a new one")

    def reset(self) -> None:
        """Forget all tokens."""
        vars(self).update(vars(type(self)(self.heads)))

    def reorder(self, order: Tensor) -> None:
        """Take some sequences of the batch in some order, once or more often."""
        moved = tree_map_only(Tensor, lambda x: x[order.to(x.device)], vars(self))
        vars(self).update(moved)

    def crop(self, length: int) -> None:
        """Forget the tokens from a position on."""
        self.length = min(self.length, length)
        for name in self.by_token:
            kept = tree_map_only(Tensor, lambda x: x[:, :, : self.length], getattr(self, name))
            setattr(self, name, kept)

    def count(self, query: Tensor, mask: TokenMask) -> bool:
        """Count the next tokens, unless later ones could not follow their mask."""
        length = self.length + query.size(2)
        valid = mask.valid
        follows = mask.causal
        if not follows:  # no sequence may have two tokens, which causal order could tell apart
            follows = length == 1 if valid is None else int(valid.sum(-1).max()) <= 1
        if mask.pairs is not None or not follows:
            return False
        self.length = length
        self.valid, self.excluded = (
            None if part is None else part.expand(len(query), -1, -1)
            for part in (valid, mask.excluded)
        )
        return True

    def mask_of_all(
        self,
        attention_mask: Tensor | None,  # of the next tokens, [B|1, H|1, n|1, L + n]
        excluded: Tensor | None,  # of them, bool [B, n]; a model says it of all tokens or of none
        query: Tensor,  # theirs, [B, H, n, D]
    ) -> TokenMask:
        """Return the mask of all tokens from that of the next ones."""
        valid = self.valid
        start = self.length
        number = query.size(2)
        if attention_mask is not None or valid is not None:
            allowed = rows = causal_rows(number, start + number, query.device)
            if attention_mask is not None:
                allowed = split_additive(attention_mask)[0].expand(-1, -1, number, -1)
            here = allowed.diagonal(start, -2, -1)  # a token that is no padding sees itself
            valid = _behind(valid, here, here.new_ones(1, 1, start))
            if bool(((allowed != valid.unsqueeze(-2) & rows) & here.unsqueeze(-1)).any()):
                raise ValueError("attention_mask must be causal order and padding, as in the cache")
            valid = None if self.valid is None and bool(valid.all()) else valid
        if excluded is not None:
            nobody = excluded.new_zeros(1, 1, start)
            excluded = _behind(self.excluded, excluded.unsqueeze(1), nobody)
        return TokenMask(valid, causal=True, excluded=excluded)


def _behind(before: Tensor | None, here: Tensor, default: Tensor) -> Tensor:  # [B|1, H|1, ...]
    """Return what is known of tokens, that of the next ones behind the others."""
    before = default if before is None else before
    batch, heads = (max(before.size(axis), here.size(axis)) for axis in (0, 1))
    return torch.cat([part.expand(batch, heads, -1) for part in (before, here)], dim=-1)


def put(store: Tensor | None, part: Tensor, start: int, *dims: int) -> Tensor:
    """Put a part into a store from a position along the last of ``dims`` on; return the store.

    It has room for more in these dimensions, which is NaN, so that nothing is copied for a new
    token. With gradients it is a new one, without.
    """
    sizes = list(part.shape)
    recorded = torch.is_grad_enabled()
    sizes[dims[-1]] += start
    if (
        store is None
        or recorded
        or any(store.size(dim) < sizes[dim] for dim in dims)
        or (store.is_inference() and not torch.is_inference_mode_enabled())  # none may write to it
    ):
        room = {dim: 0 if recorded else max(LEAST_ROOM, sizes[dim] // 8) for dim in dims}
        old = store
        store = part.new_full(
            [size + room.get(dim, 0) for dim, size in enumerate(sizes)], torch.nan
        )
        if old is not None:
            # After a crop there may be more in the other dimensions than there is now.
            known = old[:, :, : sizes[2], : sizes[3]].narrow(dims[-1], 0, start)
            store[:, :, : known.size(2), : known.size(3)] = known
    here = store[:, :, : sizes[2], : sizes[3]].narrow(dims[-1], start, part.size(dims[-1]))
    here.copy_(part)
    return store
