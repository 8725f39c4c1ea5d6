"""Global tokens: a few tokens see all others and are seen by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jat_graph.patterns.base import KeyRange, Pattern, check_count

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GlobalTokens(Pattern):
    """The first ``count`` tokens see everything, and everything sees them: :math:`q < g ∨ k < g`.

    Args:
        count: How many; more than there are tokens means all.

    Raises:
        ValueError: If there is none.

    Reference:
        Global attention of Longformer (Beltagy et al. 2020, section 3.1) on the first tokens, and
        of ETC and BigBird.
    """

    name: ClassVar[str] = "global"
    count: int

    def __post_init__(self) -> None:
        check_count("number of global tokens", self.count)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q < self.count) | (k < self.count)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        stop = first.new_full(first.shape, length).where(first < self.count, self.count)
        return [KeyRange(first.new_zeros(first.shape), stop)]

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count :math:`L^2 - (L - g)^2` pairs, with g at most L."""
        return length**2 - max(0, length - self.count) ** 2

    @property
    def num_global(self) -> int:
        return self.count

    def breaks(self, length: int) -> tuple[int, ...]:
        return (self.count,) if self.count < length else ()
