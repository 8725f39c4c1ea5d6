"""Lengths that change, in code that torch.compile traces: what would fix them, done otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def say(sentence: str, *parts: object) -> str:
    """Return a sentence with its parts; none while tracing, as a number in a text is fixed."""
    return "" if torch.compiler.is_compiling() else sentence.format(*parts)


def steps(stop: int, step: int) -> Iterator[slice]:
    """Yield slices of so many from 0 to ``stop``; ``range`` would fix both numbers."""
    end = 0
    while end < stop:
        start, end = end, end + step
        yield slice(start, end if end < stop else stop)
