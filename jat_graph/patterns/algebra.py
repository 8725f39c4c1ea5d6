"""Patterns made of patterns: what one of them allows, and what all of them allow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from jat_graph.patterns.base import KeyRanges, Pattern


@dataclass(frozen=True, init=False)
class _Several(Pattern):
    """What unions and intersections share.

    Args:
        members: The patterns; members of the same kind are taken apart into theirs.

    Raises:
        ValueError: If a member is no pattern, or there are fewer than two.
    """

    members: tuple[Pattern, ...]

    def __init__(self, *members: Pattern) -> None:
        for member in members:
            if not isinstance(member, Pattern):
                raise ValueError(f"members must be patterns, got {type(member).__name__}")
        if len(members) < 2:
            raise ValueError(f"members must be two patterns or more, got {len(members)}")
        flat = [part for m in members for part in (m.members if type(m) is type(self) else (m,))]
        object.__setattr__(self, "members", tuple(flat))

    @property
    def period(self) -> int:
        """The least number after which all members come back."""
        return math.lcm(*(member.period for member in self.members))

    @property
    def grain(self) -> int:
        """The least common block."""
        return math.lcm(*(member.grain for member in self.members))

    @property
    def by_sequence(self) -> bool:
        """Whether a member differs between sequences."""
        return any(member.by_sequence for member in self.members)

    def of_head(self, head: int) -> Pattern:
        """Take each member's rule of the head."""
        return type(self)(*(member.of_head(head) for member in self.members))

    def breaks(self, length: int) -> tuple[int, ...]:
        """Break where a member does."""
        return tuple(sorted({place for m in self.members for place in m.breaks(length)}))

    def at(self, order: Tensor) -> Pattern:
        """Move every member."""
        return type(self)(*(member.at(order) for member in self.members))

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count pair by pair, in blocks of queries and only where a pair is possible."""
        from jat_graph.patterns.layout import count_edges

        return count_edges(self.of_head(head), length)


@dataclass(frozen=True, init=False)
class Union(_Several):
    """What at least one of the members allows.

    Args:
        members: Two patterns or more.

    Raises:
        ValueError: If a member is no pattern, or there are fewer than two.

    Reference:
        Longformer and BigBird are unions; see :func:`longformer` and :func:`bigbird`.
    """

    @property
    def spec(self) -> str:
        """The members' specs, joined by ``+``."""
        return "+".join(member.spec for member in self.members)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow what one member allows."""
        return reduce(torch.logical_or, (member.mask_mod(b, h, q, k) for member in self.members))

    def key_ranges(self, first: Tensor, last: Tensor, length: int) -> KeyRanges:
        """Give the ranges of all members."""
        return [part for member in self.members for part in member.key_ranges(first, last, length)]


@dataclass(frozen=True, init=False)
class Intersection(_Several):
    """What all members allow.

    Args:
        members: Two patterns or more.

    Raises:
        ValueError: If a member is no pattern, or there are fewer than two.

    Reference:
        ``and_masks`` of ``torch.nn.attention.flex_attention``.
    """

    @property
    def spec(self) -> str:
        """The members' specs, joined by ``&``.

        Raises:
            ValueError: If a member is a union, for which the text has no brackets.
        """
        for member in self.members:
            if isinstance(member, Union):
                raise ValueError(f"a union inside an intersection has no spec: {member.spec!r}")
        return "&".join(member.spec for member in self.members)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow what every member allows."""
        return reduce(torch.logical_and, (member.mask_mod(b, h, q, k) for member in self.members))

    def key_ranges(self, first: Tensor, last: Tensor, length: int) -> KeyRanges:
        """Cut the members' ranges with each other."""
        ranges = self.members[0].key_ranges(first, last, length)
        for member in self.members[1:]:
            others = member.key_ranges(first, last, length)
            ranges = [
                (torch.maximum(start, other_start), torch.minimum(stop, other_stop))
                for start, stop in ranges
                for other_start, other_stop in others
            ]
        return ranges
