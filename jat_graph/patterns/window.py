"""Restricted neighbours: a token sees those next to it."""

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
    width: int

    def __post_init__(self) -> None:
        check_count("width of a window", self.width)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow :math:`|q - k| < w`."""
        return (q - k).abs() < self.width

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Reach a window further on both sides."""
        return [KeyRange(first - self.width + 1, last + self.width)]

    @property
    def spacing(self) -> int:
        """Neighbours share most of their keys."""
        return 1

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count :math:`L (2w - 1) - w (w - 1)` pairs, with w at most L."""
        width = min(self.width, length)
        return length * (2 * width - 1) - width * (width - 1)
