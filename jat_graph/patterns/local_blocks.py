"""Local blocks: a token sees its own block, and perhaps the blocks beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jat_graph.patterns.base import KeyRange, Pattern, check_count

if TYPE_CHECKING:
    from torch import Tensor

# How many blocks to the left and to the right each kind sees.
SIDES = {"own": (0, 0), "left": (1, 0), "both": (1, 1)}


@dataclass(frozen=True)
class LocalBlocks(Pattern):
    """The sequence is cut into blocks; a query sees whole blocks near its own.

    The last of the L tokens may make a shorter block: n full ones of b and a rest r.

    Args:
        block: Tokens in a block.
        neighbours: ``"own"`` block only, ``"left"`` for the one before it, too, or ``"both"`` for
            those on both sides. (default: ``"own"``)

    Raises:
        ValueError: If the block is empty, or the neighbours are none of the three.

    Reference:
        Tensor2Tensor's ``masked_within_block_local_attention_1d`` (own) and
        ``masked_local_attention_1d`` (left), both with causal order; ``local_attention_1d`` (both).
    """

    name: ClassVar[str] = "local"
    block: int
    neighbours: str = "own"

    def __post_init__(self) -> None:
        check_count("size of local blocks", self.block)
        if self.neighbours not in SIDES:
            raise ValueError(
                f"neighbours of local blocks must be own, left or both, got {self.neighbours!r}"
            )

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow keys whose block is near enough."""
        left, right = SIDES[self.neighbours]
        ahead = k // self.block - q // self.block
        return (ahead >= -left) & (ahead <= right)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Give whole blocks."""
        left, right = SIDES[self.neighbours]
        start = (first // self.block - left) * self.block
        return [KeyRange(start, (last // self.block + right + 1) * self.block)]

    @property
    def grain(self) -> int:
        """The block."""
        return self.block

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count :math:`n b^2 + r^2 + s ((n - 1) b^2 + b r)` pairs, s sides seen."""
        full, rest = divmod(length, self.block)
        pairs = max(0, full - 1) * self.block**2 + (self.block * rest if full else 0)
        return full * self.block**2 + rest**2 + sum(SIDES[self.neighbours]) * pairs
