"""All benchmarks by name."""

from __future__ import annotations

from jat_graph.benchmarks.decoding import DECODING
from jat_graph.benchmarks.growth import GROWTH
from jat_graph.benchmarks.heads import HEADS
from jat_graph.benchmarks.kernels import KERNELS
from jat_graph.benchmarks.long import LONG
from jat_graph.benchmarks.memory import MEMORY
from jat_graph.benchmarks.model import MODEL
from jat_graph.benchmarks.series import Benchmark

BENCHMARKS = {
    entry.name: entry for entry in (KERNELS, HEADS, MODEL, MEMORY, GROWTH, DECODING, LONG)
}


def find_benchmark(name: str) -> Benchmark:
    """Return a benchmark.

    Args:
        name: Its name.

    Returns:
        The benchmark.

    Raises:
        ValueError: If there is none of that name.
    """
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark must be one of {', '.join(BENCHMARKS)}, got {name!r}")
    return BENCHMARKS[name]
