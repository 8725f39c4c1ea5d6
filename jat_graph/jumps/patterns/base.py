"""What every pattern is: a rule that says which query may attend to which key."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import reduce
from itertools import pairwise, product
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:  # specs are read, and refused, without torch
    from torch import Tensor

# Of a pattern's numbers: sums and products of two of them fit into 64 bits.
LARGEST_COUNT = 2**31 - 1

# Queries in a block; the fastest of 64 to 512 for windows of 128 to 512 on a CPU.
BLOCK = 128

# Queries in a block of a pattern that is made of smaller ones, at least.
LEAST = 32

# Pairs looked at in one go.
PAIRS = 2**22


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
    allows, ``a & b`` what both do. A pattern of one's own says its pairs (:meth:`mask_mod`), and a
    superset of them in runs (:meth:`key_ranges`).

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
            b: Indices in the batch.
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

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count the allowed pairs of one head, over all sequences where each has its own rule."""
        import torch

        rules = [self.of_head(head)]
        if self.num_sequences:
            self.check_size(self.num_sequences, length)
            rules = [rules[0].of_sequence(index) for index in range(self.num_sequences)]
        with torch.device("cpu"):  # wherever new tensors go by default
            counts = [
                int(pairs_of(rule, queries[None], some[None]).sum())
                for rule in rules
                for queries, keys in key_blocks(rule, length)  # where a pair is possible
                for some in torch.split(keys, PAIRS // BLOCK)
            ]
        return sum(counts)

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
        return 1 if self.grain > 1 else 0  # tokens of a block share their keys

    @property
    def num_sequences(self) -> int:
        """For how many sequences of a batch there is a rule each; 0 if all share one."""
        return 0

    def of_head(self, head: int) -> Pattern:
        """Return the rule of one head, from 0: of period 1, the same for whatever ``h``."""
        return self

    def of_sequence(self, index: int) -> Pattern:
        """Return the rule of one sequence of the batch, the same for whatever ``b``."""
        return self

    def at(self, order: Tensor) -> Pattern:  # [B|1, n]
        """Return the pattern of picked tokens, as padding is left out, by where each was before."""
        return self

    @property
    def needs_global(self) -> bool:
        """Whether it names global tokens that it has still to be given."""
        return False

    def with_global(self, mask: Tensor) -> Pattern:  # bool [B, L]
        """Return the pattern with the global tokens of a batch, where it names such."""
        return self

    def breaks(self, length: int) -> tuple[int, ...]:
        """Return the queries at which the rule changes, where blocks of queries had better end."""
        return ()

    @property
    def num_global(self) -> int:
        """How many of the first tokens read every token, whatever the length."""
        return 0

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
        return Union(self, other)

    def __and__(self, other: Pattern) -> Intersection:
        return Intersection(self, other)


@dataclass(frozen=True, init=False)
class _Several(Pattern):
    """A pattern made of others; members of the same kind are taken apart into theirs."""

    members: tuple[Pattern, ...]

    def __init__(self, *members: Pattern) -> None:
        for member in members:
            if not isinstance(member, Pattern):
                raise ValueError(f"members must be patterns, got {type(member).__name__}")
        if len(members) < 2:
            raise ValueError(f"members must be two patterns or more, got {len(members)}")
        flat = [x for m in members for x in (m.members if type(m) is type(self) else (m,))]
        object.__setattr__(self, "members", tuple(flat))

    @property
    def period(self) -> int:
        return math.lcm(*(member.period for member in self.members))

    @property
    def grain(self) -> int:
        return math.lcm(*(member.grain for member in self.members))

    @property
    def spacing(self) -> int:
        return math.gcd(*(member.spacing for member in self.members))

    @property
    def num_sequences(self) -> int:
        return max(member.num_sequences for member in self.members)

    def of_head(self, head: int) -> Pattern:
        return type(self)(*(member.of_head(head) for member in self.members))

    def of_sequence(self, index: int) -> Pattern:
        return type(self)(*(member.of_sequence(index) for member in self.members))

    def at(self, order: Tensor) -> Pattern:
        return type(self)(*(member.at(order) for member in self.members))

    @property
    def needs_global(self) -> bool:
        return any(member.needs_global for member in self.members)

    def with_global(self, mask: Tensor) -> Pattern:
        return type(self)(*(member.with_global(mask) for member in self.members))

    def breaks(self, length: int) -> tuple[int, ...]:
        return tuple(sorted({query for m in self.members for query in m.breaks(length)}))

    def check_size(self, batch: int, length: int) -> None:
        for member in self.members:
            member.check_size(batch, length)


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
        return "+".join(member.spec for member in self.members)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return reduce(operator.or_, (member.mask_mod(b, h, q, k) for member in self.members))

    @property
    def num_global(self) -> int:
        return max(member.num_global for member in self.members)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        return [run for m in self.members for run in m.key_ranges(first, last, step, length)]


@dataclass(frozen=True, init=False)
class Intersection(_Several):
    """What all members allow.

    Args:
        members: Two patterns or more, as for :class:`Union`.

    Reference:
        ``and_masks`` of ``torch.nn.attention.flex_attention``.
    """

    @property
    def spec(self) -> str:
        return "&".join(f"({m.spec})" if isinstance(m, Union) else m.spec for m in self.members)

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return reduce(operator.and_, (member.mask_mod(b, h, q, k) for member in self.members))

    @property
    def num_global(self) -> int:
        return min(member.num_global for member in self.members)

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        runs = [member.key_ranges(first, last, step, length) for member in self.members]
        return [reduce(_cut, chosen) for chosen in product(*runs)]


def _cut(one: KeyRange, other: KeyRange) -> KeyRange:
    """Return a run that holds what both runs hold: the coarser one, cut at the other's ends."""
    coarse, fine = (one, other) if one.step >= other.step else (other, one)
    missing = (fine.start - coarse.start).clamp(min=0)
    start = coarse.start + -(-missing // coarse.step) * coarse.step
    return KeyRange(start, one.stop.minimum(other.stop), coarse.step)


def pairs_of(
    pattern: Pattern,
    queries: Tensor,  # positions [n, height]
    keys: Tensor,  # positions [n, width]
) -> Tensor:  # [n, height, width]
    """Return which queries of blocks attend to which keys."""
    none = queries.new_zeros(())
    mask = pattern.mask_mod(none, none, queries.unsqueeze(-1), keys.unsqueeze(-2))
    return mask.expand(*queries.shape, keys.size(-1))


def key_blocks(pattern: Pattern, length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of queries, and the keys among which theirs are."""
    import torch

    blocks = _query_blocks(pattern, length)
    step = max(1, pattern.spacing)
    first, last = torch.tensor([(block[0], block[-1]) for block in blocks]).unbind(-1)
    runs = pattern.key_ranges(first, last, step, length)
    for index, block in enumerate(blocks):
        keys: set[int] = set()
        for run in runs:
            start, stop = int(run.start[index]), min(int(run.stop[index]), length)
            keys.update(range(start if start >= 0 else start % run.step, stop, run.step))
        if keys:
            yield torch.arange(block.start, block.stop, step), torch.tensor(sorted(keys))


def _query_blocks(pattern: Pattern, length: int) -> list[range]:
    """Cut queries at the pattern's breaks, along its grain, and into lines of its spacing."""
    step, grain = max(1, pattern.spacing), pattern.grain
    cuts = {0, length, *(x for x in pattern.breaks(length) if 0 <= x < length)}
    if step == 1:
        height = BLOCK if grain == 1 else grain * -(-LEAST // grain)
        cuts.update(range(0, length, height))
    return [
        line[start : start + BLOCK]
        for low, high in pairwise(sorted(cuts))
        for line in (range(first, high, step) for first in range(low, min(low + step, high)))
        for start in range(0, len(line), BLOCK)
    ]


def check_count(name: str, value: object, least: int = 1, most: float = LARGEST_COUNT) -> None:
    """Check a pattern's number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}, got {value}")
