"""Fixed attention of Sparse Transformers: the own block so far, and a summary of each block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jat_graph.patterns.base import KeyRange, Pattern, check_count
from jat_graph.patterns.factorised import Factorised
from jat_graph.patterns.local_blocks import LocalBlocks

if TYPE_CHECKING:
    from torch import Tensor


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
        part: ``"turns"``, where even heads see rows and odd heads columns, or each of p heads one
            rule; ``"merged"``, where every head sees all; ``"rows"`` or ``"columns"`` for one of
            two. (default: ``"turns"``)
        factors: The number of rules p. (default: 2)

    Raises:
        ValueError: If a number is below 1, the summary is longer than a block, there are fewer than
            2 factors or so many that the largest block is too large, or the part is none of the
            four.

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
        check_count("summary of fixed attention", self.summary)
        if self.summary > self.stride:
            raise ValueError(
                f"summary of fixed attention must be at most its stride {self.stride}, "
                f"got {self.summary}"
            )

    @property
    def rules(self) -> tuple[Pattern, ...]:
        """The own block, summaries within ever larger blocks, and those of all blocks."""
        sizes = [self.stride**place for place in range(1, self.factors)]
        columns = [Fixed(size, self.summary, "columns") for size in sizes]
        within = [near & LocalBlocks(size) for near, size in zip(columns, sizes[1:], strict=False)]
        return (Fixed(self.stride, self.summary, "rows"), *within, columns[-1])

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow rows or columns."""
        if self.part == "rows":
            return (k <= q) & (k // self.stride == q // self.stride)
        if self.part == "columns":
            return (k <= q) & (k % self.stride >= self.stride - self.summary)
        return super().mask_mod(b, h, q, k)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Give the own block, or a column for each summary token."""
        if self.part == "rows":
            return [KeyRange(first // self.stride * self.stride, last + 1)]
        if self.part == "columns":
            return [
                KeyRange(first.new_full(first.shape, place), last + 1, self.stride)
                for place in range(self.stride - self.summary, self.stride)
            ]
        return super().key_ranges(first, last, step, length)

    @property
    def grain(self) -> int:
        """The block."""
        return self.stride

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count rows and columns; merged heads share the triangles that columns begin with."""
        if self.part == "turns" or self.factors > 2:  # more rules share more, which is counted
            return super().num_edges(length, head)
        full, rest = divmod(length, self.stride)
        begun = max(0, rest - self.stride + self.summary)
        both = full * _triangle(self.summary) + _triangle(begun)
        rows = full * _triangle(self.stride) + _triangle(rest)
        columns = both + self.summary * (self.stride * _triangle(full - 1) + full * rest)
        return {"rows": rows, "columns": columns}.get(self.part, rows + columns - both)


def _triangle(side: int) -> int:
    return max(0, side) * (side + 1) // 2
