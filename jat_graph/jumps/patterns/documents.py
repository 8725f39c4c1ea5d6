"""Patterns that hold a tensor, of a rule for each sequence: packed documents, global tokens."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.jumps.patterns.base import KeyRange, Pattern


@dataclass(frozen=True, eq=False)
class _OfTokens(Pattern):
    """A pattern that holds a number for each token of a batch, ``[B, L]``, its one field."""

    spacing: ClassVar[int] = 1  # neighbours mostly share theirs
    what: ClassVar[str]

    @property
    def _values(self) -> Tensor:
        return getattr(self, fields(self)[0].name)  # type: ignore[no-any-return]

    def __post_init__(self) -> None:
        values = self._values
        if not isinstance(values, Tensor) or values.dim() != 2 or values.is_floating_point():
            got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"{self.what} must be integers [B, L], got {got}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and torch.equal(self._values, other._values)

    def __hash__(self) -> int:
        return hash((self.name, tuple(self._values.shape)))

    @property
    def spec(self) -> str:
        """None.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"{self.name} hold a tensor and have no spec; pass the pattern itself")

    @property
    def num_sequences(self) -> int:
        return self._values.size(0)

    def of_sequence(self, index: int) -> Pattern:
        return type(self)(self._values[index : index + 1])  # type: ignore[call-arg]

    def at(self, order: Tensor) -> Pattern:
        order = order.to(self._values.device).expand(self.num_sequences, -1)
        return type(self)(self._values.gather(1, order))  # type: ignore[call-arg]

    def check_size(self, batch: int, length: int) -> None:
        if tuple(self._values.shape) != (batch, length):
            got = list(self._values.shape)
            raise ValueError(f"{self.what} must be [{batch}, {length}], got {got}")


@dataclass(frozen=True, eq=False)
class Documents(_OfTokens):
    """A query sees the keys of its own document.

    Args:
        ids: The document of each token, ``[B, L]`` integers, padding included whatever it says.

    Raises:
        ValueError: If the ids are no such tensor.

    Reference:
        Document masks of FlexAttention; "packing" of Krell et al. 2021, "Efficient Sequence Packing
        without Cross-contamination".
    """

    name: ClassVar[str] = "documents"
    what: ClassVar[str] = "ids of documents"
    ids: Tensor

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        ids = self.ids if self.ids.device == q.device else self.ids.to(q.device)
        return ids[b, q] == ids[b, k]

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        number = self.ids[0].cpu().unique(return_inverse=True)[1]  # type: ignore[no-untyped-call]
        index, count = torch.arange(len(number)), int(number.max()) + 1
        start = torch.full((count,), len(number)).scatter_reduce(0, number, index, "amin")[number]
        stop = index.new_zeros(count).scatter_reduce(0, number, index, "amax")[number] + 1
        inside = [
            torch.stack([start[a : z + 1 : step].amin(), stop[a : z + 1 : step].amax()])
            for a, z in zip(first.tolist(), last.tolist(), strict=True)
        ]
        low, high = torch.stack(inside).unbind(-1)
        return [KeyRange(low, high)]


@dataclass(frozen=True, eq=False)
class GlobalMask(_OfTokens):
    """Some tokens of each sequence see everything, and everything sees them, wherever they are.

    Args:
        mask: Which tokens, ``[B, L]`` bool, or 0 and 1; padding included, whatever it says.

    Raises:
        ValueError: If the mask is no such tensor.

    Reference:
        Global attention of Longformer (Beltagy et al. 2020, section 3.1), whose models take it as
        ``global_attention_mask``; there with projections of its own.
    """

    name: ClassVar[str] = "global tokens by mask"
    what: ClassVar[str] = "mask of global tokens"
    spacing: ClassVar[int] = 0  # any blocks will do
    mask: Tensor

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        mask = self.mask.to(q.device).bool()
        return mask[b, q] | mask[b, k]

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        before = F.pad(self.mask[0].bool().long().cumsum(0).cpu(), (1, 0))
        some = before[last + 1] > before[first]
        ones = torch.ones_like(first)
        everything = KeyRange(0 * ones, some * length)
        return [everything, *(KeyRange(a * ones, z * ones) for a, z in self._runs())]

    def breaks(self, length: int) -> tuple[int, ...]:
        return tuple(query for run in self._runs() for query in run if 0 < query < length)

    def _runs(self) -> list[tuple[int, int]]:
        """Return where each run of global tokens of the first sequence starts and stops."""
        steps = F.pad(self.mask[0].bool().int().cpu(), (1, 1)).diff()
        starts, stops = ((steps == sign).nonzero().flatten().tolist() for sign in (1, -1))
        return list(zip(starts, stops, strict=True))
