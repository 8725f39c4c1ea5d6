"""The file of results: what goes in comes out, and half a file is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.lab.studies import Record, Results, read_results, write_results
from tests.lab.studies.support import made_up, small_grid


def results(*records: Record) -> Results:
    return Results(
        grid=small_grid(),
        fingerprint="f",
        model="tiny",
        data="glue",
        versions={"torch": "2"},
        machine={"cores": 2},
        records=records,
    )


def test_results_come_back(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = made_up(heads={"threshold": "inf"}, threshold=4.0, tuning={"4": 0.5, "6": None})
    second = made_up(arm="JAT", seed=1, scores={"validation": {"matthews": None}})
    found = results(first, second)
    write_results(path, found)
    assert read_results(path) == found
    assert found.of("cola", "JAT") == (second,)
    assert first.score("validation", "matthews") == 0.5
    assert first.score("validation", "f1") is None and first.score("test", "f1") is None
    header = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert header["grid"]["name"] == "small" and str(tmp_path) not in path.read_text()


def test_records_come_back_in_the_grids_order(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    cells = [("JAT", 1), ("JAT", 0), ("base", 1), ("base", 0)]
    write_results(path, results(*(made_up(arm=arm, seed=seed) for arm, seed in cells)))
    found = [(record.arm, record.seed) for record in read_results(path).records]
    assert found == [("base", 0), ("base", 1), ("JAT", 0), ("JAT", 1)]


def test_answers_may_hold_any_line_break(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    said = ["a\u2028b", "c\u2029", "\x85", "\r\n", "\x0b"]
    found = results(made_up(answers={"validation": {"said": said, "right": said}}))
    write_results(path, found)
    assert read_results(path) == found


@given(st.lists(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers())))
def test_answers_keep_five_digits(said: list[float]) -> None:
    record = made_up(
        answers={"validation": {"said": said, "right": [["a", 1.23456789]] * len(said)}}
    )
    kept = record.to_dict()["answers"]["validation"]
    assert kept["right"] == [["a", 1.2346]] * len(said)
    assert kept["said"] == pytest.approx(said, rel=1e-4)
    again = Record.from_dict(json.loads(json.dumps(record.to_dict())))
    assert again.to_dict() == record.to_dict()


def test_what_is_not_finite_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_results(path, results(made_up(scores={"validation": {"matthews": float("nan")}})))
    assert not path.exists()


def lines(**changes: Any) -> list[str]:
    header = {**results().header(), **changes}
    return [json.dumps(header), json.dumps(made_up().to_dict())]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "line 1 must be JSON"),
        (["[]"], "line 1 must be a JSON object, got list"),
        (["{}"], "must be those of jat-graph experiment, version 1, got version None"),
        (lines(version=2), "version 1, got version 2"),
        (lines(grid=None), "line 1: grid must be an object, got None"),
        (lines(grid={"name": "x"}), "grid: title must be given, got nothing"),
        (lines(colour="red"), "line 1: unknown 'colour', wanted one of grid, fingerprint"),
        (lines(machine=None), "line 1: machine must be an object, got None"),
        (lines(versions=[]), r"line 1: versions must be an object, got \[\]"),
        (lines(data=3), "line 1: data must be a valid string, got 3"),
        *(
            (
                [lines()[0], json.dumps(made_up().to_dict() | {name: value})],
                rf"line 2: {name}.* must .*, got ",
            )
            for name, value in (
                ("arm", {}),
                ("seed", True),
                ("scores", None),
                ("scores", {"validation": {"matthews": "x"}}),
                ("answers", {"validation": {"said": [1]}}),
                ("answers", {"validation": {"said": [1], "right": []}}),
                ("seconds", "a"),
                ("examples", {"train": 0.5}),
                ("machine", None),
                ("strengths", {"layer.0": [0.1]}),
            )
        ),
        ([*lines(), '{"task": "co'], "line 3 must be JSON"),
        ([*lines(), "3"], "line 3 must be a JSON object, got int"),
        ([*lines(), '{"task": "cola"}'], "line 3: arm must be given, got nothing"),
        ([*lines(), '{"tusk": "cola"}'], "line 3: unknown 'tusk', wanted one of task, arm"),
        ([*lines(), lines()[1]], "cola, base, seed 0 is there twice"),
        (
            [lines()[0], json.dumps(made_up(arm="else").to_dict())],
            "cola, else, seed 0 is no cell of its grid",
        ),
        (
            [lines()[0], json.dumps(made_up(seed=2).to_dict())],
            "cola, base, seed 2 is no cell of its grid",
        ),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, content: list[str], words: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(content), encoding="utf-8")
    with pytest.raises(ValueError, match=words) as caught:
        read_results(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="must be text in UTF-8"):
        read_results(path)


def test_a_record_is_a_cell() -> None:
    record = replace(made_up(), seed=3)
    assert str(record.cell) == "cola, base, seed 3"
    with pytest.raises(ValueError, match="a finished cell: it must be an object, got 'x'"):
        Record.from_dict("x")
