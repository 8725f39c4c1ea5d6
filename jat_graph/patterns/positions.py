"""Patterns of positions alone: causal order, windows, and global tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jat_graph.patterns.base import KeyRange, Pattern, check_count

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


@dataclass(frozen=True)
class Window(Pattern):
    """A query sees the keys fewer than ``width`` tokens away: :math:`|q - k| < w`.

    With causal order a query so sees ``width`` keys, itself included; ``Window(1)`` is the token
    itself.

    Args:
        width: How many tokens on one side, the token itself included.

    Raises:
        ValueError: If the width is below 1.

    Reference:
        Restricted self-attention of "Attention Is All You Need", section 4; Tensor2Tensor's
        ``attention_bias_local``, there with ``width - 1``.
    """

    name: ClassVar[str] = "window"
    spacing: ClassVar[int] = 1  # neighbours share most of their keys
    width: int

    def __post_init__(self) -> None:
        check_count("width of a window", self.width)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q - k).abs() < self.width

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        return [KeyRange(first - self.width + 1, last + self.width)]

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count :math:`L (2w - 1) - w (w - 1)` pairs, with w at most L."""
        width = min(self.width, length)
        return length * (2 * width - 1) - width * (width - 1)


@dataclass(frozen=True)
class DilatedWindow(Pattern):
    r"""A query sees every ``dilation``-th key, ``width`` of them on one side, itself included.

    :math:`|q - k| < w d` and :math:`q \equiv k \pmod d`.

    Args:
        width: How many keys on one side, the token itself included.
        dilation: From key to key; 1 is a plain window.

    Raises:
        ValueError: If one of them is below 1.

    Reference:
        Dilated sliding window of Longformer (Beltagy et al. 2020, section 3.1); Tensor2Tensor's
        ``dilated_self_attention_1d`` has blocks in place of tokens.
    """

    name: ClassVar[str] = "dilated"
    width: int
    dilation: int

    def __post_init__(self) -> None:
        check_count("width of a dilated window", self.width)
        check_count("dilation of a dilated window", self.dilation)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        distance = (q - k).abs()
        return (distance < self.width * self.dilation) & (distance % self.dilation == 0)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        reach = (self.width - 1) * self.dilation
        gap = self.dilation if step % self.dilation == 0 else 1
        return [KeyRange(first - reach, last + reach + 1, gap)]

    @property
    def spacing(self) -> int:
        return self.dilation

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count windows in lines of tokens: L mod d of ⌈L/d⌉, and the others of ⌊L/d⌋."""
        short, longer = divmod(length, self.dilation)
        sizes = {short + 1: longer, short: self.dilation - longer}
        return sum(many * Window(self.width).num_edges(size) for size, many in sizes.items())


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
