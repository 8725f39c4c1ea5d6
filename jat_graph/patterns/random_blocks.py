"""Random blocks: a random graph over blocks, the same for a seed wherever it is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jat_graph.patterns.base import KeyRange, Pattern, check_count

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RandomBlocks(Pattern):
    """Each block is joined, in both directions, to ``count`` random blocks before it.

    Block i draws one block from each of ``count`` equal parts of the blocks before it, or all of
    them if they are fewer. So a block has about twice as many random neighbours; with causal
    order it sees ``count``. What a block draws depends on the seed and its number alone: a longer
    sequence does not change it, and neither do batch and device.

    Args:
        block: Tokens in a block.
        count: Blocks that each one draws.
        seed: Another seed gives another graph. (default: 0)

    Raises:
        ValueError: If the block or the count is below 1, or the seed is negative.

    Reference:
        Random attention of BigBird (Zaheer et al. 2020, section 2), where a block draws from all
        blocks, so that the graph depends on the length.
    """

    name: ClassVar[str] = "random"
    block: int
    count: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("size of random blocks", self.block)
        check_count("count of random blocks", self.count)
        check_count("seed of random blocks", self.seed, least=0, most=math.inf)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow blocks of which the later one drew the earlier one."""
        return self._joined(q // self.block, k // self.block)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Give one run a neighbour."""
        import torch

        blocks = torch.arange(-(-length // self.block), device=first.device)
        joined = torch.zeros(len(first), len(blocks), dtype=torch.bool, device=first.device)
        height = int((last - first).max()) // self.block + 2
        for ahead in range(height):
            own = (first // self.block + ahead).clamp(max=last // self.block).unsqueeze(-1)
            joined |= self._joined(own, blocks)
        degree = int(joined.sum(-1).max())
        neighbours = joined.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
        seen = joined.gather(-1, neighbours)
        return [
            KeyRange(start, start + self.block * found)
            for start, found in zip(
                (neighbours[:, :degree] * self.block).unbind(-1),
                seen[:, :degree].long().unbind(-1),
                strict=True,
            )
        ]

    @property
    def grain(self) -> int:
        """The block."""
        return self.block

    def num_edges(self, length: int, head: int = 0) -> int:
        r"""Count :math:`2 \sum_i b s_i \min(c, i)` pairs, :math:`s_i` the size of block i."""
        full, rest = divmod(length, self.block)
        drawn = [min(self.count, number) for number in range(full + 1)]
        return 2 * self.block * (self.block * sum(drawn[:full]) + rest * drawn[full])

    def _joined(self, one: Tensor, other: Tensor) -> Tensor:
        """Say whether the later of two blocks drew the earlier one."""
        late, early = one.maximum(other).long(), one.minimum(other).long()
        drawers = late.clamp(min=1)
        part = ((early + 1) * self.count - 1) // drawers  # the part that holds the earlier block
        start, stop = drawers * part // self.count, drawers * (part + 1) // self.count
        noise = _mix(part + _mix(drawers + self.seed % 2**31))
        drawn = start + noise % (stop - start).clamp(min=1)
        return (early < late) & (early == drawn)


def _mix(number: Tensor) -> Tensor:
    """Spread integers over 31 bits, in products that fit into 63."""
    for _ in range(2):
        number = ((number ^ (number >> 16)) * 0x45D9F3B) & 0x7FFFFFFF
    return number ^ (number >> 16)
