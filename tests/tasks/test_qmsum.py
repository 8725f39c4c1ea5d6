import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from jat_graph.tasks import QmsumTask, get_task
from jat_graph.tasks.qmsum import _homes

TASK = get_task("qmsum")
TINY = QmsumTask(num_choices=2, characters=20)


def meeting(*queries: tuple[str, list[list[str]]], turns: int = 6) -> dict[str, Any]:
    """Return a meeting of turns of ten characters, two in a passage."""
    return {
        "meeting_transcripts": [
            {"speaker": "A", "content": f"{{gap}} turn {turn:02}"} for turn in range(turns)
        ],
        "specific_query_list": [
            {"query": query, "answer": "No.", "relevant_text_span": spans}
            for query, spans in queries
        ],
    }


def write_file(folder: Path, *meetings: Any) -> Path:
    path = folder / "val.jsonl"
    path.write_text("\n".join(map(json.dumps, meetings)))
    return path


def load_all(folder: Path) -> list[dict[str, Any]]:
    return [row for loaded in TINY.load(folder).values() for row in loaded.to_list()]


def test_counts_are_the_files(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        splits = TASK.load(data_dir)
    (record,) = caplog.records
    assert "left out 24 of 237 questions" in record.getMessage()
    assert {split: len(rows) for split, rows in splits.items()} == {
        "train": 146,
        "validation": 28,
        "test": 39,
    }
    meetings = [set(rows["meeting"]) for rows in splits.values()]
    assert len(set.union(*meetings)) == sum(map(len, meetings))  # none is in two splits
    for rows in splits.values():
        assert set(rows["label"]) == {0, 1, 2, 3}
        for choices in rows["choices"]:
            assert len(set(choices)) == 4
            assert all(3000 < len(choice) < 9000 for choice in choices)
            assert not any(re.search(r"\{\w+\}", choice) for choice in choices)


def test_the_right_passage_has_what_is_marked(data_dir: Path) -> None:
    lines = gzip.decompress((data_dir / "qmsum/ALL/val.jsonl.gz").read_bytes()).splitlines()
    meetings = [json.loads(line) for line in lines]
    for row in TASK.load(data_dir, ["test"])["test"].to_list():
        found = meetings[row["meeting"]]
        turns = [
            re.sub(r"\{\w+\}\s*", "", turn["content"]).strip()
            for turn in found["meeting_transcripts"]
        ]
        (spans,) = (
            query["relevant_text_span"]
            for query in found["specific_query_list"]
            if query["query"].strip() == row["prompt"]
        )
        marked = {turns[turn] for a, b in spans for turn in range(int(a), int(b) + 1)}
        longest = max(marked, key=len)
        holding = [longest in choice for choice in row["choices"]]
        assert sum(holding) <= 1 and (sum(holding) == 0 or holding[row["label"]])


def test_the_own_folder_reads_the_same(data_dir: Path) -> None:
    inner = TASK.load(data_dir / "qmsum", ["test"])
    assert list(inner) == ["test"]
    assert inner["test"].to_list() == TASK.load(data_dir)["test"].to_list()


def test_others_have_nothing_of_what_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(
        tmp_path,
        meeting(
            ("Two?", [["2", "3"]]),
            ("Most?", [["0", "0"], ["3", "5"]]),  # in all passages: nothing to choose from
            ("Longest?", [["0", "0"], ["2", "3"]]),
        ),
    )
    rows = {row["prompt"]: row for row in load_all(tmp_path)}
    (record,) = caplog.records
    assert "left out 1 of 3 questions" in record.getMessage()
    assert set(rows) == {"Two?", "Longest?"}
    middle, last = "A: turn 02\nA: turn 03", "A: turn 04\nA: turn 05"
    assert all(row["choices"][row["label"]] == middle for row in rows.values())
    assert sorted(rows["Longest?"]["choices"]) == [middle, last]
    assert rows == {row["prompt"]: row for row in load_all(tmp_path)}  # the same each time


def test_passages_are_of_nearly_one_length() -> None:
    assert _homes(["x" * 10] * 7, 20) == [0, 0, 1, 1, 2, 2, 3]
    assert _homes(["x" * 10] * 6, 25) == [0, 0, 0, 1, 1, 1]
    assert _homes(["x" * 10], 25) == [0]
    assert _homes(["x" * 90, "x"], 20)[0] == 0  # a turn is never cut


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, ", line 1 must have the layout of QMSum, got no 'meeting_transcripts'"),
        (meeting(("A?", [["1"]])), ", line 1 must have the layout of QMSum, got something else"),
        (meeting(("A?", [["x", "2"]])), ", line 1 must have the layout of QMSum, got something"),
        (meeting((" ", [["0", "1"]])), ", line 1: a query must have text, got none"),
        (meeting(("A?", [])), ", line 1: query 'A?' must have relevant turns, got none"),
        (
            meeting(("A?", [["4", "6"]])),
            ", line 1: query 'A?' must have relevant turns among 6, got 4 to 6",
        ),
        (
            meeting(("A?", [["0", "1"]]), turns=2),
            " must hold questions about meetings of 2 passages and more, got none",
        ),
        ([1], ", line 1: the row must be a JSON object, got [1]"),
    ],
)
def test_files_that_are_wrong_inside(tmp_path: Path, content: Any, message: str) -> None:
    path = write_file(tmp_path, content)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}{message}')}"):
        TINY.load(tmp_path)


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task qmsum cannot be loaded by name"):
        TASK.load(None)
    with pytest.raises(FileNotFoundError, match=r"task qmsum needs val.jsonl or val.jsonl.gz in"):
        TASK.load(tmp_path)
