"""Patterns of positions alone: causal order, windows, blocks, and global tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jat_graph.core.numbers import check_choice
from jat_graph.jumps.patterns.base import KeyRange, Pattern, check_count

if TYPE_CHECKING:
    from torch import Tensor

# How many blocks to the left and to the right each kind sees.
SIDES = {"own": (0, 0), "left": (1, 0), "both": (1, 1)}


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


@dataclass(frozen=True)
class GlobalTokens(Pattern):
    """The first ``count`` tokens see everything, and everything sees them: :math:`q < g ∨ k < g`.

    Without a number they are those that each call names: ``global_attention_mask`` of models, in
    :func:`jat_graph.using_global_tokens`; a pattern alone has a :class:`GlobalMask` instead.

    Args:
        count: How many; more than there are tokens means all. (default: None, those of the call)

    Raises:
        ValueError: If there is none.

    Reference:
        Global attention of Longformer (Beltagy et al. 2020, section 3.1) on the first tokens, and
        of ETC and BigBird.
    """

    name: ClassVar[str] = "global"
    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            check_count("number of global tokens", self.count)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q < self.num_global) | (k < self.num_global)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        stop = first.new_full(first.shape, length).where(first < self.num_global, self.num_global)
        return [KeyRange(first.new_zeros(first.shape), stop)]

    @property
    def num_global(self) -> int:
        return self.count or 0

    @property
    def needs_global(self) -> bool:
        return self.count is None

    def with_global(self, mask: Tensor) -> Pattern:
        from jat_graph.jumps.patterns.documents import GlobalMask

        return GlobalMask(mask) if self.count is None else self

    def check_size(self, batch: int, length: int) -> None:
        if self.count is None:
            raise ValueError(
                "pattern 'global' must be given its tokens, by jat_graph.using_global_tokens or "
                "global_attention_mask, in a pattern alone as GlobalMask(mask), got none"
            )

    def breaks(self, length: int) -> tuple[int, ...]:
        return (self.num_global,) if 0 < self.num_global < length else ()


@dataclass(frozen=True)
class LocalBlocks(Pattern):
    """The sequence is cut into blocks; a query sees whole blocks near its own.

    The last tokens may make a shorter block.

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
        check_choice("neighbours of local blocks", self.neighbours, tuple(SIDES))

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        left, right = SIDES[self.neighbours]
        ahead = k // self.block - q // self.block
        return (ahead >= -left) & (ahead <= right)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        left, right = SIDES[self.neighbours]
        start = (first // self.block - left) * self.block
        return [KeyRange(start, (last // self.block + right + 1) * self.block)]

    @property
    def grain(self) -> int:
        return self.block


@dataclass(frozen=True)
class RandomBlocks(Pattern):
    """Each block is joined, in both directions, to ``count`` random blocks before it.

    Block i draws one block from each of ``count`` equal shares of the blocks before it, or all of
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
        return self._joined(q // self.block, k // self.block)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        import torch

        blocks = torch.arange(-(-length // self.block), device=first.device)
        joined = torch.zeros(len(first), len(blocks), dtype=torch.bool, device=first.device)
        height = int((last - first).max()) // self.block + 2
        for ahead in range(height):
            own = (first // self.block + ahead).clamp(max=last // self.block).unsqueeze(-1)
            joined |= self._joined(own, blocks)
        degree = int(joined.sum(-1).max())
        neighbours = joined.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
        starts = neighbours[:, :degree] * self.block  # where there is none, a run is empty
        stops = starts + joined.gather(-1, neighbours[:, :degree]) * self.block
        return [KeyRange(*run) for run in zip(starts.unbind(-1), stops.unbind(-1), strict=True)]

    @property
    def grain(self) -> int:
        return self.block

    def _joined(self, one: Tensor, other: Tensor) -> Tensor:
        """Say whether the later of two blocks drew the earlier one."""
        late, early = one.maximum(other).long(), one.minimum(other).long()
        drawers = late.clamp(min=1)
        share = ((early + 1) * self.count - 1) // drawers  # that holds the earlier block
        start, stop = drawers * share // self.count, drawers * (share + 1) // self.count
        noise = _mix(share + _mix(drawers + self.seed % 2**31))
        drawn = start + noise % (stop - start).clamp(min=1)
        return (early < late) & (early == drawn)


def _mix(number: Tensor) -> Tensor:
    """Spread integers over 31 bits, in products that fit into 63."""
    for _ in range(2):
        number = ((number ^ (number >> 16)) * 0x45D9F3B) & 0x7FFFFFFF
    return number ^ (number >> 16)
