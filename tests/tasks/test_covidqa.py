import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from jat_graph.tasks import FarCovidQATask, Task, get_task

TASK = get_task("covidqa")
FAR = FarCovidQATask(characters=40, distance=12)
CONTEXT = "A virus is small. A cell is large. A virus needs a cell."


def question(name: int, *answers: tuple[str, int], text: Any = "What?") -> dict[str, Any]:
    right = [{"text": answer, "answer_start": start} for answer, start in answers]
    return {"id": name, "question": text, "answers": right, "is_impossible": False}


def write_file(folder: Path, *articles: list[dict[str, Any]]) -> Path:
    data = [{"paragraphs": [{"context": CONTEXT, "qas": questions}]} for questions in articles]
    path = folder / "COVID-QA.json"
    path.write_text(json.dumps({"data": data}))
    return path


def load_all(folder: Path, task: Task = TASK) -> list[dict[str, Any]]:
    return [row for loaded in task.load(folder).values() for row in loaded.to_list()]


def test_counts_are_the_files(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        splits = TASK.load(data_dir)
    (record,) = caplog.records
    assert "left out 7 questions" in record.getMessage()
    contexts = {split: set(loaded["context"]) for split, loaded in splits.items()}
    assert {split: len(found) for split, found in contexts.items()} == {
        "train": 68,
        "validation": 15,
        "test": 15,
    }
    assert len(set.union(*contexts.values())) == 98  # so that no article is in two splits
    rows = [row for loaded in splits.values() for row in loaded.to_list()]
    assert len(rows) == len({row["id"] for row in rows}) == 1380 - 7
    for row in rows:
        answers = row["answers"]
        assert answers["text"]
        for text, start in zip(answers["text"], answers["answer_start"], strict=True):
            assert row["context"][start : start + len(text)] == text
    original = json.loads(
        gzip.decompress((data_dir / "covidqa/200423_covidQA.json.gz").read_bytes())
    )
    places = {
        str(entry["id"]): entry["answers"][0]["answer_start"]
        for article in original["data"]
        for entry in article["paragraphs"][0]["qas"]
    }
    mended = [row for row in rows if row["answers"]["answer_start"][0] != places[row["id"]]]
    assert len(mended) == 227


def test_the_own_folder_reads_the_same(data_dir: Path) -> None:
    inner = TASK.load(data_dir / "covidqa", ["test"])
    assert list(inner) == ["test"]
    assert inner["test"]["id"] == TASK.load(data_dir)["test"]["id"]


def test_a_wrong_place_is_mended_where_only_one_can_be_meant(tmp_path: Path) -> None:
    write_file(
        tmp_path,
        [
            question(1, ("small", 11)),
            question(2, ("large", 3)),
            question(3, ("A virus", 2)),  # there twice
            question(4, ("A virus", 35)),
            question(5, ("medium", 0)),
            question(6, ("cell", -1), ("A cell", 18)),  # the second one will do
        ],
    )
    found = {row["id"]: row["answers"] for row in load_all(tmp_path)}
    assert found == {
        "1": {"text": ["small"], "answer_start": [11]},
        "2": {"text": ["large"], "answer_start": [28]},
        "4": {"text": ["A virus"], "answer_start": [35]},
        "6": {"text": ["A cell"], "answer_start": [18]},
    }


def test_a_file_without_wrong_places_gives_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(tmp_path, [question(1, ("small", 11))])
    assert len(load_all(tmp_path)) == 1
    assert not caplog.records


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": []}, " must hold questions, got none"),
        ({"version": 1}, " must have the layout of SQuAD, got no 'data'"),
        (
            {"data": [{"title": "x"}]},
            " must have the layout of SQuAD, got no 'paragraphs'",
        ),
        ([1, 2], " must have the layout of SQuAD, got something else"),
        (
            {"data": [{"paragraphs": [{"context": "x", "qas": [question(1, text=None)]}]}]},
            ": question 1 must have text, got None",
        ),
        (
            {"data": [{"paragraphs": [{"qas": [question(1, ("x", 0))]}]}]},
            ": question 1 must have a context, got None",
        ),
    ],
)
def test_files_of_another_layout(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "200423_covidQA.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}{message}')}"):
        TASK.load(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (question(7), "must have an answer, got []"),
        (question(7, ("small", 11), text=" "), "must have text, got ' '"),
        (question(7, (" ", 1)), "must have answers with text and answer_start, got {'text': ' ', "),
    ],
)
def test_questions_without_text_or_answer(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    path = write_file(tmp_path, [wrong])
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}: question 7 {message}')}"):
        TASK.load(tmp_path)


def test_wrong_folders_and_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task covidqa cannot be loaded by name"):
        TASK.load(None)
    with pytest.raises(FileNotFoundError, match=r"task covidqa needs 200423_covidQA.json or"):
        TASK.load(tmp_path)
    content = gzip.compress(json.dumps({"data": []}).encode())
    (tmp_path / "200423_covidQA.json.gz").write_bytes(content[:-8])
    with pytest.raises(ValueError, match=r"covidQA.json.gz is cut off or damaged"):
        TASK.load(tmp_path)


# --- answers that are far away -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "window", "most", "counts"),
    [
        ("covidqa-far", 64, 2048, (708, 183, 180)),
        ("covidqa-far-half", 32, 1024, (828, 204, 207)),
    ],
)
def test_no_window_of_six_layers_reaches_from_a_question_to_its_answer(
    name: str, window: int, most: int, counts: tuple[int, ...], data_dir: Path, minilm_path: str
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    splits = get_task(name).load(data_dir)
    assert tuple(map(len, splits.values())) == counts
    rows = [row for loaded in splits.values() for row in loaded.to_list()]
    questions, contexts = ([row[name] for row in rows] for name in ("question", "context"))
    found = tokenizer(questions, contexts, verbose=False)
    for number, row in enumerate(rows):
        (text,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        assert row["context"][start : start + len(text)] == text
        context = found.sequence_ids(number).index(1)
        assert len(found["input_ids"][number]) <= most
        first = start + len(text) - len(text.lstrip())  # no token stands for blanks
        assert found.char_to_token(number, first, 1) - context > 6 * (window - 1)


def test_articles_stay_in_their_splits(data_dir: Path) -> None:
    splits = get_task("covidqafar").load(data_dir)
    articles = {split: set(loaded["article"]) for split, loaded in splits.items()}
    assert len(set.union(*articles.values())) == sum(map(len, articles.values()))
    whole = {row["id"]: row for row in TASK.load(data_dir, ["test"])["test"].to_list()}
    for row in splits["test"].to_list():
        assert row["context"] in whole[row["id"]]["context"]
        assert row["answers"]["text"] == whole[row["id"]]["answers"]["text"][:1]


def test_answers_that_are_near_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_file(
        tmp_path,
        [
            question(1, ("small", 11)),  # too little in front of it
            question(2, ("large", 28)),
            question(3, ("needs", 43), ("cell", 20)),  # the first answer is asked for
            question(4, ("is large. A virus needs a cell.", 25)),  # does not fit behind
        ],
    )
    rows = {row["id"]: row for row in load_all(tmp_path, FAR)}
    (record,) = caplog.records
    assert "left out 2 of 4 questions whose answers are not far" in record.getMessage()
    assert {name: row["answers"]["text"] for name, row in rows.items()} == {
        "2": ["large"],
        "3": ["needs"],
    }
    for row in rows.values():
        (text,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        assert len(row["context"]) <= 40 and start >= 12
        assert row["context"].startswith(text, start) and row["context"] in CONTEXT
    assert rows == {row["id"]: row for row in load_all(tmp_path, FAR)}


def test_an_answer_that_is_near_as_well_is_left_out(tmp_path: Path) -> None:
    far = FarCovidQATask(characters=len(CONTEXT), distance=12)
    write_file(tmp_path, [question(1, ("A virus", 35)), question(2, ("A cell", 18))])
    # of the first, passages begin with the article or behind its first words, as is drawn
    found = load_all(tmp_path, far)
    assert "2" in {row["id"] for row in found}
    assert all(row["context"].find(row["answers"]["text"][0]) >= 12 for row in found)


def test_files_whose_answers_are_all_near(tmp_path: Path) -> None:
    path = write_file(tmp_path, [question(1, ("small", 11))])
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} must have answers that begin"):
        FAR.load(tmp_path)
