"""Strided attention of Sparse Transformers: the last tokens, and every so many-th before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from jat_graph.patterns.base import KeyRange, Pattern
from jat_graph.patterns.causal import Causal
from jat_graph.patterns.dilated_window import DilatedWindow
from jat_graph.patterns.factorised import Factorised

if TYPE_CHECKING:
    from torch import Tensor


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
        ValueError: If the stride is below 1, there are fewer than 2 factors or so many that the
            last step is too large, or the part is none of the four.

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
        steps = [self.stride**place for place in range(1, self.factors)]
        lines = [DilatedWindow(self.stride, step) & Causal() for step in steps[:-1]]
        return (Strided(self.stride, "rows"), *lines, Strided(steps[-1], "columns"))

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow rows or columns."""
        back = q - k
        if self.part == "rows":
            return (back >= 0) & (back < self.stride)
        if self.part == "columns":
            return (back >= 0) & (back % self.stride == 0)
        return super().mask_mod(b, h, q, k)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Give the end of the sequence so far, and the columns if the queries are in one."""
        if self.part == "rows":
            return [KeyRange(first - self.stride + 1, last + 1)]
        if self.part == "columns":
            gap = self.stride if step % self.stride == 0 else 1
            return [KeyRange(first % gap, last + 1, gap)]
        return super().key_ranges(first, last, step, length)

    @property
    def spacing(self) -> int:
        """Queries of a column share their keys."""
        return self.stride if self.part == "columns" else 1

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count rows and columns; merged heads share the diagonal."""
        if self.part == "turns":
            return super().num_edges(length, head)
        if self.part == "merged":
            return sum(r.num_edges(length) for r in self.rules) - (self.factors - 1) * length
        if self.part == "rows":
            width = min(self.stride, length)
            return length * width - width * (width - 1) // 2
        full, rest = divmod(length, self.stride)
        return self.stride * full * (full + 1) // 2 + rest * (full + 1)
