"""Factorised attention: heads that connect all tokens together, and none of them alone."""

from __future__ import annotations

import operator
from abc import abstractmethod
from functools import reduce
from typing import TYPE_CHECKING

from jat_graph.patterns.base import LARGEST_COUNT, KeyRange, Pattern, check_count

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
        if self.part not in ("turns", "merged", *ONE_RULE):
            raise ValueError(
                f"part {what} must be turns, merged, rows or columns, got {self.part!r}"
            )
        check_count(f"factors {what}", self.factors, least=2, most=LARGEST_COUNT.bit_length())
        check_count(f"stride ** (factors - 1) {what}", self.stride ** (self.factors - 1))
        if self.part in ONE_RULE and self.factors > 2:
            raise ValueError(f"factors {what} must be 2 with {self.part}, got {self.factors}")

    @property
    @abstractmethod
    def rules(self) -> tuple[Pattern, ...]:
        """The rules, from the nearest keys to the farthest."""

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow what the head's rule does, or any of them."""
        masks = [rule.mask_mod(b, h, q, k) for rule in self.rules]
        if self.part == "merged":
            return reduce(operator.or_, masks)
        turn, mask = h % self.factors, masks[-1]
        for place, own in enumerate(masks[:-1]):
            mask = own.where(turn == place, mask)
        return mask

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Give the runs of all rules."""
        return [run for rule in self.rules for run in rule.key_ranges(first, last, step, length)]

    @property
    def period(self) -> int:
        """As many heads as there are rules, if they take turns."""
        return self.factors if self.part == "turns" else 1

    def of_head(self, head: int) -> Pattern:
        """Return the rule whose turn it is."""
        return self.rules[head % self.factors] if self.part == "turns" else self

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count the pairs of the rule whose turn it is, or those of all."""
        rule = self.of_head(head)
        return super().num_edges(length) if rule is self else rule.num_edges(length)
