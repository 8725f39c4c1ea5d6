"""What a benchmark consists of: series of points, each measured on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch

from jat_graph.lab.speed.spread import Spread
from jat_graph.lab.speed.timing import Step, Timing, time_in_turns

Fact = float | int | str


@dataclass(frozen=True)
class Settings:
    """How a benchmark runs."""

    device: str  # "cpu" or "cuda"
    repeats: int  # how often each point is measured

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'cpu' or 'cuda', got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device 'cuda' needs a GPU that torch can use, got none")
        if self.repeats < 1:
            raise ValueError(f"repeats must be at least 1, got {self.repeats}")

    @property
    def torch_device(self) -> torch.device:
        """The device as torch names it."""
        return torch.device(self.device)

    @property
    def dtype(self) -> torch.dtype:
        """What queries, keys and values are: float32 on the CPU, bfloat16 on the GPU."""
        return torch.bfloat16 if self.device == "cuda" else torch.float32

    def time(self, ours: Sequence[Step], theirs: Sequence[Step], *, heavy: bool = False) -> Timing:
        """Time two sides in turns."""
        return time_in_turns(
            ours, theirs, device=self.torch_device, repeats=self.repeats, heavy=heavy
        )

    def to_dict(self) -> dict[str, Fact]:
        """The settings as JSON types."""
        return asdict(self) | {"dtype": str(self.dtype).removeprefix("torch.")}


@dataclass(frozen=True)
class Outcome:
    """What came of one point.

    Args:
        ours: Our side; None where nothing could be measured.
        theirs: The other side.
        ratio: Ours over theirs, pair by pair.
        facts: Further numbers and words by name.
        note: What a reader must know; empty if nothing.
    """

    ours: Spread | None = None
    theirs: Spread | None = None
    ratio: Spread | None = None
    facts: dict[str, Fact] = field(default_factory=dict)
    note: str = ""

    @classmethod
    def of(cls, timing: Timing, facts: dict[str, Fact], note: str = "") -> Outcome:
        """Return the outcome of a timing.

        Args:
            timing: Two sides, timed in turns.
            facts: Further numbers and words.
            note: What a reader must know. (default: nothing)

        Returns:
            The outcome.
        """
        return cls(timing.ours, timing.theirs, timing.ratio, facts, note)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Outcome:
        """Return the outcome that ``dataclasses.asdict`` described.

        Args:
            content: Fields by name.

        Returns:
            The outcome.

        Raises:
            TypeError: If the fields are not an outcome's.
        """
        spreads = {name: Spread.from_dict(content[name]) for name in ("ours", "theirs", "ratio")}
        return cls(**(content | spreads))


Measure = Callable[[int, Settings], Outcome]


@dataclass(frozen=True)
class Series:
    """One comparison over several lengths: our side against another."""

    what: str
    against: str
    lengths: tuple[int, ...]  # tokens L of its points
    largest: int  # the longest input that the comparison is fit for
    measure: Measure  # checks the results of a point first


class Bar(NamedTuple):
    """The most that a number may be: what the library set out to reach."""

    device: str  # of the CPU two cores, of the GPU one of the H200 class
    what: str  # our side, or any if empty
    against: str  # likewise
    shortest: int  # inputs that it holds for, both ends included
    longest: int
    most: float
    number: str = "ratio"  # or the name of a fact

    def holds_for(self, what: str, against: str, length: int) -> bool:
        """Tell whether it is that of a point."""
        same = self.what in ("", what) and self.against in ("", against)
        return same and self.shortest <= length <= self.longest


@dataclass(frozen=True)
class Benchmark:
    """A claim and how it is measured."""

    name: str  # what the command calls it
    claim: str  # one sentence: what is compared with what
    series: Callable[[Settings], tuple[Series, ...]]
    unit: str = "seconds"  # or "bytes"
    # Seconds that one point may take, by the growth of those before it; None for no end.
    patience: float | None = None
    # Numbers whose log-log slope is part of the claim: "ours", "theirs", or a fact.
    growing: tuple[str, ...] = ()
    growing_from: int = 0  # the shortest input that counts for these slopes
    bars: tuple[Bar, ...] = ()  # what its points set out to reach
    slope_bar: float | None = None  # the most that the slope of our side may be
    # What its panels of a picture show, each our number and the other side's.
    drawn: tuple[tuple[str, str], ...] = (("ours", "theirs"),)

    def unit_of(self, number: str) -> str:
        """What a number is measured in."""
        if number in ("ours", "theirs"):
            return self.unit
        return next((unit for unit in ("seconds", "bytes") if number.endswith(f"_{unit}")), "")
