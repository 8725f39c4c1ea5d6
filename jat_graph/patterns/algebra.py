"""Patterns made of patterns: what one of them allows, and what all of them allow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from itertools import product

import torch
from torch import Tensor

from jat_graph.patterns.base import KeyRange, Pattern


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
    def spacing(self) -> int:
        """What suits all members."""
        return math.gcd(*(member.spacing for member in self.members))

    @property
    def num_sequences(self) -> int:
        """As many as the member that has most."""
        return max(member.num_sequences for member in self.members)

    def of_head(self, head: int) -> Pattern:
        """Take each member's rule of the head."""
        return type(self)(*(member.of_head(head) for member in self.members))

    def of_sequence(self, place: int) -> Pattern:
        """Take each member's rule of the sequence."""
        return type(self)(*(member.of_sequence(place) for member in self.members))

    def at(self, order: Tensor) -> Pattern:
        """Pick the tokens of every member."""
        return type(self)(*(member.at(order) for member in self.members))

    def breaks(self, length: int) -> tuple[int, ...]:
        """Break where a member does."""
        return tuple(sorted({place for m in self.members for place in m.breaks(length)}))

    def check_size(self, batch: int, length: int) -> None:
        """Check every member."""
        for member in self.members:
            member.check_size(batch, length)

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

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Give the runs of all members."""
        return [run for m in self.members for run in m.key_ranges(first, last, step, length)]


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
        """The members' specs, joined by ``&``, unions in brackets."""
        specs = [f"({m.spec})" if isinstance(m, Union) else m.spec for m in self.members]
        return "&".join(specs)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Allow what every member allows."""
        return reduce(torch.logical_and, (member.mask_mod(b, h, q, k) for member in self.members))

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Cut each member's runs with the others'."""
        runs = [member.key_ranges(first, last, step, length) for member in self.members]
        return [reduce(_cut, chosen) for chosen in product(*runs)]


def _cut(one: KeyRange, other: KeyRange) -> KeyRange:
    """Return a run that holds what both runs hold: the coarser one, cut at the other's ends."""
    coarse, fine = (one, other) if one.step >= other.step else (other, one)
    missing = (fine.start - coarse.start).clamp(min=0)
    start = coarse.start + -(-missing // coarse.step) * coarse.step
    return KeyRange(start, torch.minimum(one.stop, other.stop), coarse.step)
