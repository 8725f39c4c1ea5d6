"""Every claim about speed and memory as a command that anyone can repeat.

A benchmark is a module here, and is imported when it is asked for: its name costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jat_graph.lab.speed.series import Benchmark

# The longest input that a series of each is fit for.
LONGEST = {
    "kernels": 2**17,
    "heads": 2**20,
    "model": 2**16,
    "memory": 2**20,
    "graphs": 2**24,
    "growth": 2**20,
    "decoding": 2**14,
    "long": 2**16,
    "stones": 2**20,
}
NAMES = tuple(LONGEST)

# Inputs below have too few keys and pairs for the shares that are asked of them.
SHORTEST = 16


class _Benchmarks(Mapping[str, "Benchmark"]):
    def __getitem__(self, name: str) -> Benchmark:
        if name not in NAMES:
            raise KeyError(name)
        found: Benchmark = getattr(import_module(f"{__name__}.{name}"), name.upper())
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


BENCHMARKS: Mapping[str, Benchmark] = _Benchmarks()
"""All benchmarks by name."""


def find_benchmark(name: str) -> Benchmark:
    """A benchmark by its name; another name is answered with those that there are."""
    check_benchmark(name)
    return BENCHMARKS[name]


def check_benchmark(name: str) -> None:
    """Refuse a name that is not a benchmark's, with nothing imported."""
    if name not in NAMES:
        raise ValueError(f"benchmark must be one of {', '.join(NAMES)}, got {name!r}")


def check_lengths(name: str, lengths: Sequence[int], longest: int) -> None:
    """Refuse numbers of tokens that no series of a benchmark is fit for, with nothing imported."""
    bad = [length for length in lengths if not SHORTEST <= length <= longest]
    if bad or not lengths:
        wanted = f"whole numbers from {SHORTEST} to {longest} for {name!r}"
        raise ValueError(f"lengths must be {wanted}, got {bad[0] if bad else 'none'}")
