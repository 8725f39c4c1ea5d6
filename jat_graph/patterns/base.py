"""What every pattern is: a rule that says which query may attend to which key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from jat_graph.patterns.algebra import Intersection, Union


# Of a pattern's numbers: sums and products of two of them fit into 64 bits.
LARGEST_COUNT = 2**31 - 1


class KeyRange(NamedTuple):
    """One run of keys for each of n blocks of queries: start, start + step … below stop.

    Args:
        start: The first keys, ``[n]``; may lie outside of the sequence.
        stop: Where each run ends, ``[n]``; at or below the start if it is empty.
        step: From key to key. (default: 1)
    """

    start: Tensor
    stop: Tensor
    step: int = 1


@dataclass(frozen=True)
class Pattern(ABC):
    """A rule for pairs of tokens; positions count a sequence's valid tokens from 0.

    Patterns are frozen dataclasses: hashable, and equal by value. ``a | b`` allows what one of them
    allows, ``a & b`` what both do. A pattern of one's own says its pairs (:meth:`mask_mod`), a
    superset of them in runs (:meth:`key_ranges`) and their number (:meth:`num_edges`).

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
    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        """Give runs of keys that hold all that blocks of queries may see.

        They may hold others too, reach out of the sequence, overlap, or be empty.

        Args:
            first: The first query of each block, ``[n]``.
            last: The last query of each block, ``[n]``.
            step: From query to query in a block.
            length: Number of tokens.

        Returns:
            The runs; a block needs one of each.
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
    def spacing(self) -> int:
        """From query to query in the blocks that need the fewest keys; 0 if any will do."""
        return 0

    @property
    def num_sequences(self) -> int:
        """For how many sequences of a batch there is a rule each; 0 if all share one."""
        return 0

    def of_head(self, head: int) -> Pattern:
        """Return the rule of one head, the same for whatever ``h``.

        Args:
            head: From 0.

        Returns:
            A pattern whose period is 1.
        """
        return self

    def of_sequence(self, place: int) -> Pattern:
        """Return the rule of one sequence, the same for whatever ``b``.

        Args:
            place: Of the sequence in the batch.

        Returns:
            A pattern for one sequence.
        """
        return self

    def at(self, order: Tensor) -> Pattern:
        """Return the pattern of tokens that were picked, as padding is left out.

        Args:
            order: Where each token was before, ``[B|1, n]``.

        Returns:
            The pattern; what was given token by token moved along.
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

    def check_size(self, batch: int, length: int) -> None:
        """Check that the pattern fits a batch.

        Args:
            batch: Number of sequences.
            length: Number of tokens, padding counted.

        Raises:
            ValueError: If it does not.
        """
        if self.num_sequences not in (0, batch):
            raise ValueError(f"pattern must be for {batch} sequences, got {self.num_sequences}")

    def __or__(self, other: Pattern) -> Union:
        from jat_graph.patterns.algebra import Union

        return Union(self, other)

    def __and__(self, other: Pattern) -> Intersection:
        from jat_graph.patterns.algebra import Intersection

        return Intersection(self, other)


def check_count(name: str, value: object, least: int = 1, most: float = LARGEST_COUNT) -> None:
    """Check a pattern's number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")


def check_part(name: str, part: object) -> None:
    """Check which part of a factorised pattern is wanted."""
    if part not in ("turns", "merged", "rows", "columns"):
        raise ValueError(
            f"part of {name} attention must be turns, merged, rows or columns, got {part!r}"
        )
