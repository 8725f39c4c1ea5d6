"""What the library set out to reach, so that a table shows how far it came."""

from __future__ import annotations

from typing import NamedTuple

from jat_graph.lab.speed.case import SDPA
from jat_graph.lab.speed.counting import ADJACENCY, COUNT, RELEASED, WRITTEN
from jat_graph.lab.speed.growth import GROWTH
from jat_graph.lab.speed.heads import HEADS, PROPAGATION
from jat_graph.lab.speed.kernels import KERNELS
from jat_graph.lab.speed.long import ATTENTION_LENGTH, LONG, LONGEST, SLOPE_FROM
from jat_graph.lab.speed.long_attention import ALL_PAIRS, ATTENTION
from jat_graph.lab.speed.long_models import BIGBIRD, JUMPS, LONGFORMER
from jat_graph.lab.speed.memory import MEMORY
from jat_graph.lab.speed.model import EFFICIENT, JAT, MODEL, step_name
from jat_graph.lab.speed.products import PRODUCT
from jat_graph.lab.speed.results import Results, Row

MANY = 2**31  # longer than any input


class Bar(NamedTuple):
    """The most that a number may be.

    Args:
        benchmark: Name of the benchmark.
        device: Where: two CPU cores, or a GPU of the H200 class.
        what: Our side.
        against: The other side; empty for any.
        shortest: Shortest input that it holds for.
        longest: Longest input.
        most: The bar.
        number: What must not be larger: ``"ratio"``, or the name of a fact.
    """

    benchmark: str
    device: str
    what: str
    against: str
    shortest: int
    longest: int
    most: float
    number: str = "ratio"


BARS = (
    Bar(KERNELS.name, "cpu", COUNT, SDPA, 512, 512, 5.0),
    Bar(KERNELS.name, "cpu", COUNT, WRITTEN, 512, 512, 1 / 8),
    Bar(KERNELS.name, "cpu", ADJACENCY, RELEASED, 384, 384, 1 / 300),
    Bar(KERNELS.name, "cpu", PRODUCT, SDPA, 2048, 2048, 0.4),
    Bar(KERNELS.name, "cpu", PRODUCT, SDPA, 8192, 8192, 0.18),
    Bar(KERNELS.name, "cpu", PRODUCT, SDPA, 32768, 32768, 0.08),
    Bar(MODEL.name, "cpu", step_name(JAT), "", 128, 128, 1.08),
    Bar(MODEL.name, "cpu", step_name(JAT), "", 512, 512, 1.15),
    Bar(MODEL.name, "cpu", step_name(EFFICIENT), "", 512, 512, 1.06),
    Bar(MODEL.name, "cpu", step_name(EFFICIENT), "", 4096, 4096, 1.08),
    Bar(MODEL.name, "cuda", step_name(JAT), "", 512, 512, 1.30),
    Bar(MODEL.name, "cuda", step_name(EFFICIENT), "", 512, 512, 1.10),
    Bar(MODEL.name, "cuda", step_name(EFFICIENT), "", 4096, 65536, 1.08),
    Bar(HEADS.name, "cuda", PROPAGATION, "", 2**20, 2**20, 0.1),
    Bar(MEMORY.name, "cpu", "", "", 0, MANY, 3.0, "multiple"),
    Bar(LONG.name, "cpu", ATTENTION, ALL_PAIRS, ATTENTION_LENGTH, ATTENTION_LENGTH, 1 / 4),
    *(
        Bar(LONG.name, device, JUMPS, other, SLOPE_FROM, LONGEST["cuda"], 1.0, number)
        for device in ("cpu", "cuda")
        for other in (LONGFORMER, BIGBIRD)
        for number in ("ratio", "memory_ratio")
    ),
)
SLOPE_BARS = {(GROWTH.name, "ours"): 1.15, (LONG.name, "ours"): 1.15}


def find_bars(results: Results, row: Row) -> tuple[Bar, ...]:
    """Return the bars of a row."""
    here = results.benchmark, results.settings["device"]
    return tuple(
        bar
        for bar in BARS
        if (bar.benchmark, bar.device) == here
        and bar.what in ("", row.what)
        and bar.against in ("", row.against)
        and bar.shortest <= row.length <= bar.longest
    )
