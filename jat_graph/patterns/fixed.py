"""Fixed attention of Sparse Transformers: the own block so far, and a summary of each block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from jat_graph.patterns.base import KeyRange, Pattern, check_count, check_part


@dataclass(frozen=True)
class Fixed(Pattern):
    """Rows: earlier keys of the query's own block of l; columns: the last c keys of every block.

    Both end at the query. The last keys sum a block up: through them, a column and a row reach
    every earlier token in two steps. With n full blocks and a rest r, rows have
    :math:`n l (l + 1) / 2 + r (r + 1) / 2` pairs, and columns
    :math:`n c (c + 1) / 2 + c l n (n - 1) / 2 + n c r + s (s + 1) / 2`, s = max(0, r - l + c).

    Args:
        stride: Tokens in a block, l.
        summary: How many of them sum it up, c. (default: 1)
        part: ``"turns"``, where even heads see rows and odd heads columns; ``"merged"``, where
            every head sees both; ``"rows"`` or ``"columns"`` for one of them. (default:
            ``"turns"``)

    Raises:
        ValueError: If a number is below 1, the summary is longer than a block, or the part is none
            of the four.

    Reference:
        Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 4.2. The
        released code merges both, and moves the summary from head to head (``num_verts``).
    """

    name: ClassVar[str] = "fixed"
    stride: int
    summary: int = 1
    part: str = "turns"

    def __post_init__(self) -> None:
        check_count("stride of fixed attention", self.stride)
        check_count("summary of fixed attention", self.summary)
        check_part("fixed", self.part)
        if self.summary > self.stride:
            raise ValueError(
                f"summary of fixed attention must be at most its stride {self.stride}, "
                f"got {self.summary}"
            )

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow rows or columns."""
        row = (k <= q) & (k // self.stride == q // self.stride)
        column = (k <= q) & (k % self.stride >= self.stride - self.summary)
        if self.part == "turns":
            return torch.where(h % 2 == 0, row, column)
        return {"rows": row, "columns": column, "merged": row | column}[self.part]

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Give the own block, and a column for each summary token."""
        rows = [KeyRange(first // self.stride * self.stride, last + 1)]
        columns = [
            KeyRange(torch.full_like(first, place), last + 1, self.stride)
            for place in range(self.stride - self.summary, self.stride)
        ]
        return {"rows": rows, "columns": columns}.get(self.part, rows + columns)

    @property
    def period(self) -> int:
        """Heads come in pairs if they take turns."""
        return 2 if self.part == "turns" else 1

    @property
    def grain(self) -> int:
        """The block."""
        return self.stride

    def of_head(self, head: int) -> Pattern:
        """Return rows or columns."""
        if self.part != "turns":
            return self
        return Fixed(self.stride, self.summary, ("rows", "columns")[head % 2])

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count rows and columns; merged heads share the triangles that columns begin with."""
        if self.part == "turns":
            return self.of_head(head).num_edges(length)
        full, rest = divmod(length, self.stride)
        begun = max(0, rest - self.stride + self.summary)
        both = full * _triangle(self.summary) + _triangle(begun)
        rows = full * _triangle(self.stride) + _triangle(rest)
        columns = both + self.summary * (self.stride * _triangle(full - 1) + full * rest)
        return {"rows": rows, "columns": columns}.get(self.part, rows + columns - both)


def _triangle(side: int) -> int:
    return max(0, side) * (side + 1) // 2
