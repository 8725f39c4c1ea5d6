import gzip
import json
import logging
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset

from jat_graph.tasks import get_task

TASK, TASK2 = get_task("squad"), get_task("squad2")
CONTEXT = " A book costs more than a pencil. "


def question(name: str, *answers: tuple[str, int], **other: Any) -> dict[str, Any]:
    right = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": "What costs more?", "answers": right} | other


def write_file(path: Path, *questions: dict[str, Any], context: Any = CONTEXT) -> Path:
    content = {"data": [{"title": "x", "paragraphs": [{"context": context, "qas": questions}]}]}
    path.write_text(json.dumps(content))
    return path


# --- the original files --------------------------------------------------------------------------


def test_counts_are_the_files(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        splits = TASK.load(data_dir)
    [record] = caplog.records
    message = "train-v1.1.head.json.gz is only the beginning of the file to train on: 4370 questio"
    assert message in record.getMessage()
    counts = {name: (len(rows), len(set(rows["context"]))) for name, rows in splits.items()}
    assert counts == {"train": (4370, 678), "validation": (10570, 2067)}
    for row in splits["validation"].select(range(0, 10570, 100)):
        answers = row["answers"]
        for text, start in zip(answers["text"], answers["answer_start"], strict=True):
            assert row["context"][start : start + len(text)] == text


def test_the_whole_file_comes_before_its_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(tmp_path / "train-v1.1.head.json", question("head", ("book", 3)))
    assert TASK.load(tmp_path, ["train"])["train"]["id"] == ["head"]
    assert len(caplog.records) == 1
    path = write_file(tmp_path / "whole.json", question("whole", ("book", 3)))
    (tmp_path / "train-v1.1.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert TASK.load(tmp_path, ["train"])["train"]["id"] == ["whole"]
    assert len(caplog.records) == 1


def test_some_questions_of_the_second_version_have_no_answer(tmp_path: Path) -> None:
    plausible = [{"text": "pencil", "answer_start": 26}]
    write_file(
        tmp_path / "train-v2.0.json",
        question("a", is_impossible=True, plausible_answers=plausible),
        question("b", ("book", 3), is_impossible=False),
    )
    write_file(tmp_path / "dev-v2.0.json", question("c", is_impossible=True))
    splits = TASK2.load(tmp_path)
    assert [row["answers"] for row in splits["train"]] == [
        {"text": [], "answer_start": []},
        {"text": ["book"], "answer_start": [3]},
    ]
    assert splits["train"][1]["context"] == CONTEXT  # places count from its first blank
    assert splits["validation"].features == splits["train"].features


def test_the_hub_is_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def load_dataset(path: str, *, split: list[str]) -> list[Dataset]:
        asked.append((path, split))
        row = {"id": "a", "title": "x", "question": "?", "context": "x"}
        return [Dataset.from_list([row | {"answers": {"text": [], "answer_start": []}}])] * 2

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for task in (TASK, TASK2):
        assert task.load(None)["validation"].column_names == [
            "id",
            "question",
            "context",
            "answers",
        ]
    both = ["train", "validation"]
    assert asked == [("rajpurkar/squad", both), ("rajpurkar/squad_v2", both)]


def test_without_the_hub_one_line_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"^task squad2 cannot be loaded from the Hub; .*data-dir"):
        TASK2.load(None)


def test_wrong_folders_and_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"task squad2 needs train-v2.0.json or train-v2.0"):
        TASK2.load(tmp_path)
    (tmp_path / "train-v1.1.json").write_text('{"data": [')
    with pytest.raises(ValueError, match=r"train-v1.1.json must be JSON, got .* at line 1"):
        TASK.load(tmp_path)


# --- scores --------------------------------------------------------------------------------------

SAID = [["Paris", -2.0], ["Lyon", -1.0], ["Rome", 3.0], ["in old house", 1.0]]
RIGHT = [["Paris"], [], [], ["the old house"]]


def test_the_first_version_is_scored_as_all_questions_are() -> None:
    scores = TASK.measure(["Paris", "in old house"], [["paris."], ["the old house"]])
    assert list(scores) == ["f1", "exact_match"]
    assert scores == pytest.approx({"f1": 0.9, "exact_match": 0.5})


def test_hand_computed_scores_of_the_second_version() -> None:
    # At 0 the first and third are right. The best limit answers the first question only.
    scores = TASK2.measure(SAID, RIGHT)
    assert list(scores) == ["f1", "exact_match", "best_f1", "best_exact_match"]
    wanted = {"f1": 0.5, "exact_match": 0.5, "best_f1": 0.75, "best_exact_match": 0.75}
    assert scores == pytest.approx(wanted)
