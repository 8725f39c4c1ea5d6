"""What every pattern is: a rule that says which query may attend to which key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jat_graph.patterns.algebra import Intersection, Union

# Ranges of keys, each two tensors [n]: the first key, and the one after the last.
KeyRanges = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Pattern(ABC):
    """A rule for pairs of tokens; positions count a sequence's valid tokens from 0.

    Patterns are frozen dataclasses: hashable, and equal by value. ``a | b`` allows what one of them
    allows, ``a & b`` what both do. A pattern of one's own says its pairs (:meth:`mask_mod`), a
    superset of them in ranges (:meth:`key_ranges`) and their number (:meth:`num_edges`).

    Reference:
        The rule has the form of ``mask_mod`` of ``torch.nn.attention.flex_attention``.
    """

    name: ClassVar[str]  # how a spec calls it

    @property
    def spec(self) -> str:
        """The pattern as text, from which :func:`parse_pattern` makes it again."""
        values = [(getattr(self, field.name), field.default) for field in fields(self)]
        while values and values[-1][0] == values[-1][1]:
            values.pop()
        return ":".join([self.name, *(str(value) for value, _ in values)])

    @abstractmethod
    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Say which pairs are allowed.

        Args:
            b: Places in the batch.
            h: Heads.
            q: Positions of queries.
            k: Positions of keys; the four are integer tensors that broadcast.

        Returns:
            Bool, of the broadcast shape or one that broadcasts to it.
        """

    @abstractmethod
    def key_ranges(self, first: Tensor, last: Tensor, length: int) -> KeyRanges:
        """Give ranges that hold all keys that blocks of queries may see.

        They may hold others too, reach out of the sequence, overlap, or be empty.

        Args:
            first: The first query of each block, ``[n]``.
            last: The last query of each block, ``[n]``.
            length: Number of tokens.

        Returns:
            Ranges, each as the first keys and those after the last ones: pairs of ``[n]``.
        """

    @abstractmethod
    def num_edges(self, length: int, head: int = 0) -> int:
        """Count the allowed pairs of one head.

        Args:
            length: Number of tokens.
            head: Which head. (default: 0)

        Returns:
            The exact number.
        """

    @property
    def period(self) -> int:
        """After how many heads the rule comes back; 1 if all heads share it."""
        return 1

    @property
    def grain(self) -> int:
        """Size of the blocks that the rule is made of; 1 if it has none."""
        return 1

    @property
    def by_sequence(self) -> bool:
        """Whether the rule differs between the sequences of a batch."""
        return False

    def of_head(self, head: int) -> Pattern:
        """Return the rule of one head, the same for whatever ``h``.

        Args:
            head: From 0.

        Returns:
            A pattern whose period is 1.
        """
        return self

    def breaks(self, length: int) -> tuple[int, ...]:
        """Return the queries at which the rule changes, where blocks of queries had better end.

        Args:
            length: Number of tokens.

        Returns:
            Positions.
        """
        return ()

    def at(self, order: Tensor) -> Pattern:
        """Return the pattern for tokens that were put into another order.

        Only what was given token by token moves along.

        Args:
            order: Where each token comes from, ``[B|1, L]``.

        Returns:
            The pattern.
        """
        return self

    def __or__(self, other: Pattern) -> Union:
        from jat_graph.patterns.algebra import Union

        return Union(self, other)

    def __and__(self, other: Pattern) -> Intersection:
        from jat_graph.patterns.algebra import Intersection

        return Intersection(self, other)


def check_count(name: str, value: object, least: int = 1) -> None:
    """Check a pattern's number.

    Args:
        name: What to call it.
        value: The number.
        least: The smallest one allowed. (default: 1)

    Raises:
        ValueError: If it is no integer or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def positions(length: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Return the positions of queries and keys of a sequence, to be broadcast.

    Args:
        length: Number of tokens L.
        device: Where to put them.

    Returns:
        ``[L, 1]`` and ``[L]``.
    """
    tokens = torch.arange(length, device=device)
    return tokens.unsqueeze(-1), tokens
