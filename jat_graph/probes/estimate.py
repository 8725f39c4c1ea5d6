"""How long a probe will take, by what it takes on a few sentences."""

from __future__ import annotations

import time
from collections.abc import Callable

FEW, MORE = 16, 64  # sentences


def foresee(probe: Callable[[int], object], whole: int) -> float:
    """Return the seconds that a probe of so many sentences will take, as a straight line goes.

    What is read and fitted the first time, and never again, is taken off by a run before.
    """
    few, more = min(FEW, whole), min(MORE, whole)
    probe(few)
    first = _seconds(probe, few)
    if more == few:
        return first
    second = _seconds(probe, more)
    slope = max(0.0, second - first) / (more - few)
    return second + slope * (whole - more)


def _seconds(probe: Callable[[int], object], sentences: int) -> float:
    start = time.perf_counter()
    probe(sentences)
    return time.perf_counter() - start
