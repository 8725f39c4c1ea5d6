"""All benchmarks by name."""

from __future__ import annotations

from jat_graph.lab.speed.decoding import DECODING
from jat_graph.lab.speed.growth import GROWTH
from jat_graph.lab.speed.heads import HEADS
from jat_graph.lab.speed.kernels import KERNELS
from jat_graph.lab.speed.long import LONG
from jat_graph.lab.speed.memory import MEMORY
from jat_graph.lab.speed.model import MODEL
from jat_graph.lab.speed.series import Benchmark

BENCHMARKS = {
    entry.name: entry for entry in (KERNELS, HEADS, MODEL, MEMORY, GROWTH, DECODING, LONG)
}


def find_benchmark(name: str) -> Benchmark:
    """Return a benchmark."""
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark must be one of {', '.join(BENCHMARKS)}, got {name!r}")
    return BENCHMARKS[name]
