"""Strided attention of Sparse Transformers: the last tokens, and every so many-th before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from jat_graph.patterns.base import KeyRange, Pattern, check_count, check_part


@dataclass(frozen=True)
class Strided(Pattern):
    r"""Rows :math:`0 ≤ q - k < l`, and columns :math:`k ≤ q, k \equiv q \pmod l`, of stride l.

    A row and a column together reach every earlier token in two steps. Rows have
    :math:`L l - l (l - 1) / 2` pairs, with l at most L, and columns
    :math:`n l (n + 1) / 2 + r (n + 1)`, with n full strides and a rest r.

    Args:
        stride: The stride l.
        part: ``"turns"``, where even heads see rows and odd heads columns; ``"merged"``, where
            every head sees both; ``"rows"`` or ``"columns"`` for one of them. (default:
            ``"turns"``)

    Raises:
        ValueError: If the stride is below 1, or the part is none of the four.

    Reference:
        Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 4.2. A row
        has l keys, the token itself included, as in the released code; in the paper it has l + 1.
    """

    name: ClassVar[str] = "strided"
    stride: int
    part: str = "turns"

    def __post_init__(self) -> None:
        check_count("stride of strided attention", self.stride)
        check_part("strided", self.part)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow rows or columns."""
        back = q - k
        row = (back >= 0) & (back < self.stride)
        column = (back >= 0) & (back % self.stride == 0)
        if self.part == "turns":
            return torch.where(h % 2 == 0, row, column)
        return {"rows": row, "columns": column, "merged": row | column}[self.part]

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Give the end of the sequence so far, and the columns if the queries are in one."""
        row = KeyRange(first - self.stride + 1, last + 1)
        if step % self.stride == 0:
            column = KeyRange(first % self.stride, last + 1, self.stride)
        else:
            column = KeyRange(torch.zeros_like(first), last + 1)
        return {"rows": [row], "columns": [column]}.get(self.part, [row, column])

    @property
    def period(self) -> int:
        """Heads come in pairs if they take turns."""
        return 2 if self.part == "turns" else 1

    @property
    def spacing(self) -> int:
        """Queries of a column share their keys."""
        return self.stride if self.part == "columns" else 1

    def of_head(self, head: int) -> Pattern:
        """Return rows or columns."""
        if self.part != "turns":
            return self
        return Strided(self.stride, ("rows", "columns")[head % 2])

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count rows and columns; merged heads share the diagonal."""
        if self.part == "turns":
            return self.of_head(head).num_edges(length)
        width, (full, rest) = min(self.stride, length), divmod(length, self.stride)
        rows = length * width - width * (width - 1) // 2
        columns = self.stride * full * (full + 1) // 2 + rest * (full + 1)
        return {"rows": rows, "columns": columns}.get(self.part, rows + columns - length)
