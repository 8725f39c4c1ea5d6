"""What points of the benchmarks took before: a table that goes with the package.

``python -m jat_graph.lab.speed.known docs/benchmarks`` brings it up to date with the files that
``jat-graph bench`` wrote there. The first file that has a point counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from jat_graph.files import read_object, write_text
from jat_graph.lab.page import result_files
from jat_graph.lab.speed import find_benchmark
from jat_graph.lab.speed.results import Results, Row, read_results
from jat_graph.lab.speed.scaling import Growth, Known, with_warm_up

PATH = Path(__file__).with_name("known.json")

IMPORTS = 350 * 2**20  # bytes of a process of its own that has imported what it measures


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
            round(max(0.0, row.seconds - samples * with_warm_up(ours, theirs)), 3),
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


if __name__ == "__main__":
    write_known(sys.argv[1])
