"""Results come back from their file as they were, and no other file passes for one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.lab.speed.results import Results, Row, read_results
from jat_graph.lab.speed.series import Outcome
from jat_graph.lab.speed.spread import Spread
from tests.lab.speed.support import outcome, results

numbers = st.floats(allow_nan=False, allow_infinity=False)
spreads = st.none() | st.builds(Spread, numbers, numbers, numbers, st.integers(1, 99))
facts = st.dictionaries(st.text(), st.integers() | numbers | st.text())
outcomes = st.builds(Outcome, spreads, spreads, spreads, facts, st.text())
rows = st.builds(Row, st.text(), st.text(), st.integers(1, 10**7), outcomes, numbers)


@given(st.lists(rows, max_size=4))
def test_results_survive_the_file(tmp_path_factory, found: list[Row]) -> None:
    path = tmp_path_factory.mktemp("results") / "bench.json"
    original = results("kernels", *found)
    original.save(path)
    assert read_results(path) == original


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "must be JSON"),
        ("[]", "must be a JSON object, got list"),
        ('{"task": "rte"}', "must be those of jat-graph bench, version 1, got version None"),
        ('{"version": 2}', "version 1, got version 2"),
        ('{"version": 1}', "must be those of jat-graph bench: KeyError"),
        ('{"version": 1, "rows": [3]}', "must be those of jat-graph bench: TypeError"),
        ('{"version": 1, "rows": [], "nonsense": 1}', "must be those of jat-graph bench: Type"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        read_results(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_but_numbers_is_written(tmp_path: Path) -> None:
    bad = results("kernels", Row("a", "b", 8, outcome(joined=float("nan")), 1.0))
    with pytest.raises(ValueError, match="Out of range float"):
        bad.save(tmp_path / "bench.json")
    assert not list(tmp_path.iterdir())


def test_numbers_and_slopes() -> None:
    found = [
        Row("a", "b", length, outcome(ours=length**2, extra_bytes=length**1.5), 1.0)
        for length in (16, 64, 256)
    ]
    found.append(Row("lonely", "b", 16, outcome(), 1.0))
    all_rows = results("kernels", *found)
    assert found[0].number("theirs") == 2.0
    assert found[0].number("extra_bytes") == 64.0
    assert found[0].number("nothing") is None
    assert list(all_rows.slopes("ours")) == [("a", "b", pytest.approx(2.0))]
    assert list(all_rows.slopes("extra_bytes")) == [("a", "b", pytest.approx(1.5))]
    assert list(all_rows.slopes("nothing")) == []


def test_a_row_is_found_by_its_key() -> None:
    row = Row("a", "b", 16, outcome(), 1.0)
    found: Results = results("kernels", row, replace(row, length=32))
    assert found.row("a", "b", 16) is row
    assert found.row("a", "c", 16) is None


def test_the_file_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    results("heads", Row("JAT†", "b", 16, outcome(), 1.0)).save(path)
    assert "JAT†" in path.read_text(encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8"))["rows"][0]["outcome"]["facts"]
