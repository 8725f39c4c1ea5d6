"""What points of the benchmarks took before: a table that goes with the package.

``python -m jat_graph.lab.speed.known docs/benchmarks`` brings it up to date with the files that
``jat-graph bench`` wrote there. The first file that has a point counts.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from jat_graph.files import read_object, write_text
from jat_graph.lab.page import result_files
from jat_graph.lab.speed import find_benchmark
from jat_graph.lab.speed.results import Results, Row, read_results
from jat_graph.lab.speed.timing import PATIENCE, SAMPLE_SECONDS

PATH = Path(__file__).with_name("known.json")

STEEPEST = 3.0  # where the keys of all tokens vote for all pairs: nothing grows faster
USUAL = 2.0  # where one length says nothing of growth; as attention grows
LEAST = 1e-6  # what is less has no logarithm of use

IMPORTS = 350 * 2**20  # bytes of a process of its own that has imported what it measures


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
        pair = max(_with_warm_up(*sides), LEAST)
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


@cache
def known_growth(benchmark: str, device: str) -> Mapping[tuple[str, str], Growth]:
    """What is known of the comparisons of a benchmark, by both their sides."""
    points: dict[tuple[str, str], list[Known]] = {}
    for (there, name, *sides, _), known in _read_table(PATH).items():
        if (there, name) == (device, benchmark):
            points.setdefault((str(sides[0]), str(sides[1])), []).append(known)
    return {both: Growth(found) for both, found in points.items()}


def write_known(folder: str | Path, path: Path = PATH) -> None:
    """Bring the table up to date with the results of a folder; what they do not say stays."""
    table = _read_table(path) if path.exists() else {}
    for results in map(read_results, reversed(result_files(Path(folder), ".json"))):
        for known in known_points(results):
            place = (str(results.settings["device"]), results.benchmark)
            key = (*place, known.what, known.against, known.length)
            if known.memory is None and key in table:
                known = replace(known, memory=table[key].memory)
            table[key] = known
    content: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for (device, name, *_), known in sorted(table.items()):
        content.setdefault(device, {}).setdefault(name, []).append(asdict(known))
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _read_table(path: Path) -> dict[tuple[str, str, str, str, int], Known]:
    """The points of a table by device, benchmark, both sides and length."""
    return {
        (device, name, entry["what"], entry["against"], entry["length"]): Known(**entry)
        for device, benchmarks in read_object(path, "table of known points").items()
        for name, entries in benchmarks.items()
        for entry in entries
    }


def known_points(results: Results) -> Iterator[Known]:
    """What the points of a file took."""
    in_bytes, repeats = (
        find_benchmark(results.benchmark).unit == "bytes",
        results.settings["repeats"],
    )
    for row in results.rows:
        samples = 0 if row.outcome.ours is None else row.outcome.ours.samples
        elsewhere = in_bytes or row.is_bytes
        ours, theirs = (row.seconds / max(1, samples), 0.0) if elsewhere else _sides(row)
        yield Known(
            row.what,
            row.against,
            row.length,
            round(max(0.0, row.seconds - samples * _with_warm_up(ours, theirs)), 3),
            float(f"{ours:.3g}"),
            float(f"{theirs:.3g}"),
            samples if 0 < samples < int(repeats) else None,
            _memory(row, elsewhere=elsewhere),
        )


def _memory(row: Row, *, elsewhere: bool) -> int | None:
    """Bytes at the peak; what was measured in another process stands beside its imports."""
    names = ("ours",) if elsewhere else ("our_bytes", "their_bytes")
    others = [IMPORTS + round(size) for name in names if (size := row.number(name)) is not None]
    return max([*others, *([] if row.memory is None else [row.memory])], default=None)


def _sides(row: Row) -> tuple[float, float]:
    return row.number("ours") or 0.0, row.number("theirs") or 0.0


def _with_warm_up(*sides: float) -> float:
    """What a sample of each side takes: brief ones are repeated, after one that warms up."""
    return sum(t if t >= SAMPLE_SECONDS else SAMPLE_SECONDS + t for t in sides if t > LEAST)


if __name__ == "__main__":
    write_known(sys.argv[1])
