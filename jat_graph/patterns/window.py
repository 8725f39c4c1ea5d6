"""Restricted neighbours: a token sees those next to it, or those at even distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jat_graph.patterns.base import KeyRange, Pattern, check_count

if TYPE_CHECKING:
    from torch import Tensor


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
