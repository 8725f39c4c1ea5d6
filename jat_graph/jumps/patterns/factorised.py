"""Factorised attention of Sparse Transformers: heads that reach all tokens only together."""

from __future__ import annotations

import operator
from abc import abstractmethod
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, ClassVar

from jat_graph.core.numbers import check_choice
from jat_graph.jumps.patterns.base import LARGEST_COUNT, KeyRange, Pattern, check_count
from jat_graph.jumps.patterns.positions import Causal, DilatedWindow, LocalBlocks

if TYPE_CHECKING:
    from torch import Tensor

ONE_RULE = ("rows", "columns")


class Factorised(Pattern):
    """Several rules, which heads have in turn, or all at once; a step along each goes anywhere.

    A subclass has the fields, gives the rules, and is one of them where ``part`` says so.
    """

    stride: int
    part: str
    factors: int

    def __post_init__(self) -> None:
        what = f"of {self.name} attention"
        check_count(f"stride {what}", self.stride)
        check_choice(f"part {what}", self.part, ("turns", "merged", *ONE_RULE))
        check_count(f"factors {what}", self.factors, least=2, most=LARGEST_COUNT.bit_length())
        check_count(f"stride ** (factors - 1) {what}", self.stride ** (self.factors - 1))
        if self.part in ONE_RULE and self.factors > 2:
            raise ValueError(f"factors {what} must be 2 with {self.part}, got {self.factors}")

    @property
    @abstractmethod
    def rules(self) -> tuple[Pattern, ...]:
        """The rules, from the nearest keys to the farthest."""

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        masks = [rule.mask_mod(b, h, q, k) for rule in self.rules]
        if self.part == "merged":
            return reduce(operator.or_, masks)
        turn, mask = h % self.factors, masks[-1]
        for number, own in enumerate(masks[:-1]):
            mask = own.where(turn == number, mask)
        return mask

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        return [run for rule in self.rules for run in rule.key_ranges(first, last, step, length)]

    @property
    def period(self) -> int:
        return self.factors if self.part == "turns" else 1

    def of_head(self, head: int) -> Pattern:
        return self.rules[head % self.factors] if self.part == "turns" else self


@dataclass(frozen=True)
class Strided(Factorised):
    r"""Rows :math:`0 ≤ q - k < l`, and columns :math:`k ≤ q, k \equiv q \pmod l`, of stride l.

    A row and a column together reach every earlier token in two steps. Rows have
    :math:`L l - l (l - 1) / 2` pairs, with l at most L, and columns
    :math:`n l (n + 1) / 2 + r (n + 1)`, with n full strides and a rest r.

    With p factors there are p rules, and p steps reach every earlier token: rule m, from 0, sees
    the last l keys of every :math:`l^m`-th, the token itself included, and the last rule all of
    every :math:`l^{p-1}`-th. They are the digits of the distance to base l, so that with
    :math:`l = \lceil L^{1/p} \rceil` no head sees more than l keys.

    Args:
        stride: The stride l.
        part: ``"turns"``, where even heads see rows and odd heads columns, or each of p heads one
            rule; ``"merged"``, where every head sees all; ``"rows"`` or ``"columns"`` for one of
            two. (default: ``"turns"``)
        factors: The number of rules p. (default: 2)

    Raises:
        ValueError: If a number is too low, the last step is too large, or the part none of these.

    Reference:
        Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 4.2. A row
        has l keys, the token itself included, as in the released code; in the paper it has l + 1.
        The paper gives the rules for p = 2, and for any p what they have to be.
    """

    name: ClassVar[str] = "strided"
    stride: int
    part: str = "turns"
    factors: int = 2

    @property
    def rules(self) -> tuple[Pattern, ...]:
        """Rows, lines of tokens ever further apart, and columns."""
        steps = [self.stride**power for power in range(1, self.factors)]
        lines = [DilatedWindow(self.stride, step) & Causal() for step in steps[:-1]]
        return (Strided(self.stride, "rows"), *lines, Strided(steps[-1], "columns"))

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        back = q - k
        if self.part == "rows":
            return (back >= 0) & (back < self.stride)
        if self.part == "columns":
            return (back >= 0) & (back % self.stride == 0)
        return super().mask_mod(b, h, q, k)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        if self.part == "rows":
            return [KeyRange(first - self.stride + 1, last + 1)]
        if self.part == "columns":
            gap = self.stride if step % self.stride == 0 else 1
            return [KeyRange(first % gap, last + 1, gap)]
        return super().key_ranges(first, last, step, length)

    @property
    def spacing(self) -> int:
        return self.stride if self.part == "columns" else 1


@dataclass(frozen=True)
class Fixed(Factorised):
    r"""Rows: earlier keys of the query's own block of l; columns: the last c keys of every block.

    Both end at the query. The last keys sum a block up: through them, a column and a row reach
    every earlier token in two steps. With n full blocks and a rest r, rows have
    :math:`n l (l + 1) / 2 + r (r + 1) / 2` pairs, and columns
    :math:`n c (c + 1) / 2 + c l n (n - 1) / 2 + n c r + s (s + 1) / 2`, s = max(0, r - l + c).

    With p factors there are p rules, and p steps reach every earlier token: rule m, from 1, sees
    the last c keys of every block of :math:`l^m` within the query's block of :math:`l^{m+1}`, and
    the last rule those of every block of :math:`l^{p-1}`. With :math:`l = \lceil L^{1/p} \rceil` no
    head sees more than l c keys.

    Args:
        stride: Tokens in a block, l.
        summary: How many of them sum it up, c. (default: 1)
        part: As of :class:`Strided`. (default: ``"turns"``)
        factors: The number of rules p. (default: 2)

    Raises:
        ValueError: If a number is too low, the summary is longer than a block, the largest block
            too large, or the part none of these.

    Reference:
        Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 4.2. The
        released code merges both, and moves the summary from head to head (``num_verts``). The
        paper gives the rules for p = 2, and for any p what they have to be.
    """

    name: ClassVar[str] = "fixed"
    stride: int
    summary: int = 1
    part: str = "turns"
    factors: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("summary of fixed attention", self.summary, most=self.stride)

    @property
    def rules(self) -> tuple[Pattern, ...]:
        """The own block, summaries within ever larger blocks, and those of all blocks."""
        sizes = [self.stride**power for power in range(1, self.factors)]
        columns = [Fixed(size, self.summary, "columns") for size in sizes]
        within = [near & LocalBlocks(size) for near, size in zip(columns, sizes[1:], strict=False)]
        return (Fixed(self.stride, self.summary, "rows"), *within, columns[-1])

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if self.part == "rows":
            return (k <= q) & (k // self.stride == q // self.stride)
        if self.part == "columns":
            return (k <= q) & (k % self.stride >= self.stride - self.summary)
        return super().mask_mod(b, h, q, k)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        if self.part == "rows":
            return [KeyRange(first // self.stride * self.stride, last + 1)]
        if self.part == "columns":
            return [
                KeyRange(first.new_full(first.shape, start), last + 1, self.stride)
                for start in range(self.stride - self.summary, self.stride)
            ]
        return super().key_ranges(first, last, step, length)

    @property
    def grain(self) -> int:
        return self.stride


def reaches_all(pattern: Pattern, length: int, steps: int) -> bool:
    """Tell whether every token reaches all that it may in so many steps along the pattern.

    A step goes from a query to a key that one of the heads allows, or stays, as a residual
    connection does. In a pattern that never looks ahead it may reach the earlier ones, else all.

    Args:
        pattern: The pattern; its heads share the work.
        length: Number of tokens.
        steps: Number of steps.

    Returns:
        Whether no pair is left out.

    Raises:
        ValueError: If a number is below 1.

    Reference:
        The criterion of Child et al. 2019, section 4.2, for factorised attention.
    """
    import torch

    check_count("length", length)
    check_count("steps", steps)
    with torch.device("cpu"):  # wherever new tensors go by default
        batch = torch.arange(max(1, pattern.num_sequences))[:, None, None, None]
        head, index = torch.arange(pattern.period)[:, None, None], torch.arange(length)
        rows = pattern.mask_mod(batch, head, index[:, None], index)
        edges = rows.expand(len(batch), len(head), length, length).flatten(0, 1).any(0)
        wanted = torch.ones(length, length, dtype=torch.bool)
        wanted = wanted if bool(edges.triu(1).any()) else wanted.tril()
        step = (edges | torch.eye(length, dtype=torch.bool)).float()
        reached = step
        for _ in range(steps - 1):
            reached = (reached @ step).clamp(max=1)
        return bool((reached.bool() | ~wanted).all())
