"""The table of what points took before."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from jat_graph.lab.speed.known import IMPORTS, PATH, known_points, write_known
from jat_graph.lab.speed.results import Row, read_results
from jat_graph.lab.speed.scaling import Growth, Known
from jat_graph.lab.speed.series import Outcome
from jat_graph.lab.speed.spread import Spread
from tests.lab.speed.support import outcome, results

FILES = sorted((Path(__file__).resolve().parents[3] / "docs" / "benchmarks").glob("*.json"))


def _place(point: Known) -> tuple[str, str, int]:
    return point.what, point.against, point.length


def _points_of(benchmark: str) -> Iterator[Known]:
    """All points of a benchmark, in the order of the files."""
    for found in map(read_results, FILES):
        if found.benchmark == benchmark:
            yield from known_points(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_table_is_that_of_the_results(path: Path) -> None:
    found = read_results(path)
    table = json.loads(PATH.read_text(encoding="utf-8"))
    entries = table[found.settings["device"]][found.benchmark]
    places = {(entry["what"], entry["against"], entry["length"]): entry for entry in entries}
    for point in known_points(found):
        first = next(p for p in _points_of(found.benchmark) if _place(p) == _place(point))
        entry = places[_place(point)]
        assert entry | {"memory": first.memory} == asdict(first)  # other runs may know the memory
        assert first.memory in (None, entry["memory"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_a_file_says_foresees_how_long_it_took(path: Path) -> None:
    found = read_results(path)
    growth: dict[tuple[str, str], list[Known]] = {}
    for point in known_points(found):
        growth.setdefault((point.what, point.against), []).append(point)
    repeats = int(found.settings["repeats"])
    told = sum(
        Growth(growth[row.key[:2]]).expect(row.length, repeats).seconds for row in found.rows
    )
    assert told == pytest.approx(sum(row.seconds for row in found.rows), rel=0.2)


def test_results_bring_the_table_up_to_date(tmp_path: Path) -> None:
    folder, target = tmp_path / "results", tmp_path / "known.json"
    folder.mkdir()
    for name, seconds, memory in (("b", 60.0, 7), ("a", 30.0, None)):  # the first by name counts
        rows = [Row("ours", "theirs", n, outcome(), seconds, memory) for n in (64, 128)]
        results("growth", *rows).save(folder / f"{name}.json")
    for _ in range(2):
        write_known(folder, target)
        (entry, other) = json.loads(target.read_text(encoding="utf-8"))["cpu"]["growth"]
        assert (entry["length"], entry["memory"], entry["most"]) == (64, 7, None)
        assert (entry["once"], entry["ours"], entry["theirs"]) == (3.0, 1.0, 2.0)
        for path in folder.iterdir():
            path.unlink()  # what is known stays
    assert other == entry | {"length": 128}


def test_what_is_measured_elsewhere_takes_another_process() -> None:
    spread = Spread(5e6, 5e6, 5e6, 3)
    row = Row("ours", "theirs", 64, Outcome(spread, spread, spread), 30.0, 1000)
    (point,) = known_points(results("memory", row))
    assert (point.once, point.ours, point.theirs, point.most) == (0.0, 10.0, 0.0, 3)
    assert point.memory == IMPORTS + 5_000_000
    steps = Row("ours", "theirs", 64, outcome(our_bytes=3e6, their_bytes=7e6), 30.0)
    (point,) = known_points(results("long", steps))
    assert point.memory == IMPORTS + 7_000_000
