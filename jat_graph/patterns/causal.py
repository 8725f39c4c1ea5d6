"""Causal order: a token sees itself and what comes before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jat_graph.patterns.base import KeyRange, Pattern

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Causal(Pattern):
    """A query sees itself and earlier keys: :math:`k ≤ q`.

    Reference:
        Masked self-attention of "Attention Is All You Need", section 3.2.3.
    """

    name: ClassVar[str] = "causal"

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k <= q

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        return [KeyRange(last.new_zeros(last.shape), last + 1)]

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count :math:`L (L + 1) / 2` pairs."""
        return length * (length + 1) // 2
