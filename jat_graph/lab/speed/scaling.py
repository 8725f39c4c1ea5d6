"""What a comparison takes at any length, by those at which it was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from jat_graph.lab.speed.timing import PATIENCE, SAMPLE_SECONDS

STEEPEST = 3.0  # where the keys of all tokens vote for all pairs: nothing grows faster
USUAL = 2.0  # where one length says nothing of growth; as attention grows
LEAST = 1e-6  # what is less has no logarithm of use


@dataclass(frozen=True)
class Known:
    """What one point took."""

    what: str
    against: str
    length: int
    once: float  # seconds of making inputs, checking results and warming up
    ours: float  # seconds of a sample of our side; of bytes, of both
    theirs: float
    most: int | None  # samples that are taken at most, however many are asked for
    memory: int | None  # bytes at the peak, above what importing takes


class Expected(NamedTuple):
    """What a point takes where the table was measured."""

    seconds: float
    step: float  # seconds of both sides once
    memory: float | None  # bytes at the peak, above what importing takes


class Growth:
    """What a comparison takes at any length, by those at which it was measured."""

    def __init__(self, points: Sequence[Known]) -> None:
        self._points = sorted(points, key=lambda point: point.length)

    @property
    def shortest(self) -> int:
        """The shortest input that was measured."""
        return self._points[0].length

    def expect(self, length: int, repeats: int) -> Expected:
        """What a point takes; beyond what was measured as it grew at that end."""
        sides = self._at(length, lambda one: one.ours), self._at(length, lambda one: one.theirs)
        pair = max(with_warm_up(*sides), LEAST)
        nearest = min(self._points, key=lambda one: abs(math.log(one.length / length)))
        patient = max(PATIENCE.pairs, math.ceil(PATIENCE.seconds / pair))
        pairs = min(repeats, patient, repeats if nearest.most is None else nearest.most)
        once = self._at(max(length, self.shortest), lambda one: one.once)
        return Expected(once + pairs * pair, sum(sides), self._memory(length))

    def _memory(self, length: int) -> float | None:
        """Bytes at the peak; shorter inputs than were measured take as much, one stands for all."""
        told = Growth([one for one in self._points if one.memory is not None])
        if len(told._points) < 2:
            return next((one.memory for one in told._points), None)
        return told._at(max(length, told.shortest), lambda one: one.memory or 0)

    def _at(self, length: int, number: Callable[[Known], float]) -> float:
        """A number at a length, on lines through the logarithms."""
        found = [(math.log(one.length), math.log(max(number(one), LEAST))) for one in self._points]
        x, (low, high) = math.log(length), (found[0], found[-1])
        if low == high:
            return math.exp(low[1] + USUAL * (x - low[0]))
        spans = list(pairwise(found))
        low, high = next((span for span in spans if x <= span[1][0]), spans[-1])
        slope = (high[1] - low[1]) / (high[0] - low[0])
        if not low[0] <= x <= high[0]:
            slope = min(max(slope, 0.0), STEEPEST)
        near = low if x < low[0] else high
        return math.exp(near[1] + slope * (x - near[0]))


def with_warm_up(*sides: float) -> float:
    """What a sample of each side takes: brief ones are repeated, after one that warms up."""
    return sum(t if t >= SAMPLE_SECONDS else SAMPLE_SECONDS + t for t in sides if t > LEAST)
