"""Time two sides in turns, so that a busy minute of the machine hits both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from jat_graph.lab.speed.spread import Spread

Step = Callable[[], object]

# A sample of a fast side repeats it until it lasts this long: clocks and launches are coarse.
SAMPLE_SECONDS = 0.05


class Patience(NamedTuple):
    """When a measurement may stop early.

    Args:
        pairs: After so many pairs ...
        seconds: ... when it has taken this long.
    """

    pairs: int
    seconds: float


PATIENCE = Patience(3, 300.0)
# For steps of up to minutes, of which a table needs many.
HEAVY_PATIENCE = Patience(1, 15.0)


@dataclass(frozen=True)
class Timing:
    """Two sides, timed in turns.

    Args:
        ours: Seconds of our side.
        theirs: Seconds of the other side.
        ratio: Ours over theirs, pair by pair.
        steps: Seconds of each step of our side.
    """

    ours: Spread
    theirs: Spread
    ratio: Spread
    steps: tuple[Spread, ...]


def time_in_turns(
    ours: Sequence[Step],
    theirs: Sequence[Step],
    *,
    device: torch.device,
    repeats: int,
    heavy: bool = False,
) -> Timing:
    """Time two sides in turns: ours, theirs, ours, theirs.

    Each side is a few steps that run one after the other; its time is their sum. Both are warmed
    up first. Long sides stop after three pairs or more, when five minutes have passed.

    Reference:
        torch.utils.benchmark times one side after the other; here the sides must alternate.
    """
    patience = HEAVY_PATIENCE if heavy else PATIENCE
    calls = [1 if heavy else _calls_per_sample(side, device) for side in (ours, theirs)]
    start = time.perf_counter()
    own: list[list[float]] = []
    other: list[float] = []
    while len(own) < repeats and not _is_enough(len(own), start, patience):
        own.append(_sample(ours, calls[0], device))
        other.append(sum(_sample(theirs, calls[1], device)))
    totals = [sum(steps) for steps in own]
    return Timing(
        Spread.of(totals),
        Spread.of(other),
        Spread.of([total / base for total, base in zip(totals, other, strict=True)]),
        tuple(Spread.of(step) for step in zip(*own, strict=True)),
    )


def _is_enough(pairs: int, start: float, patience: Patience) -> bool:
    return pairs >= patience.pairs and time.perf_counter() - start > patience.seconds


def _calls_per_sample(side: Sequence[Step], device: torch.device) -> int:
    """Warm a side up, and return how often a sample calls it."""
    seconds = sum(_sample(side, 1, device))
    if seconds < 1:  # the first call may have compiled something, or touched new memory
        seconds = sum(_sample(side, 1, device))
    return max(1, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-6)))


def _sample(side: Sequence[Step], calls: int, device: torch.device) -> list[float]:
    """Return the mean seconds of each step over some calls of a side."""
    marks = []
    if calls > 1:  # the other side left its own data in the caches
        for step in side:
            step()
    _synchronize(device)
    for _ in range(calls):
        marks.append([_mark(device)])
        for step in side:
            step()
            marks[-1].append(_mark(device))
    _synchronize(device)
    return [
        sum(_seconds(call[step], call[step + 1]) for call in marks) / calls
        for step in range(len(side))
    ]


def _mark(device: torch.device) -> float | torch.cuda.Event:
    """Note the time: on the GPU as an event in its queue, so that nothing waits between steps."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _seconds(start: float | torch.cuda.Event, stop: float | torch.cuda.Event) -> float:
    if isinstance(start, float) and isinstance(stop, float):
        return stop - start
    return float(start.elapsed_time(stop)) / 1000  # type: ignore[union-attr, arg-type]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
