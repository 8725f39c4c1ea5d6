import gzip
import json
import logging
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset

from jat_graph.tasks import SuperGlueTask, get_task
from jat_graph.tasks.superglue import HUB_NAME, SUPERGLUE_TASKS

COUNTS = {
    "cb": (250, 56),
    "copa": (400, 100),
    "multirc": (27_243, 4848),
    "wic": (5428, 638),
    "wsc": (401, 104),  # of 554 to train on
    "superrte": (2490, 277),
}
COLUMNS = {
    "cb": ["premise", "hypothesis", "label"],
    "boolq": ["passage", "question", "label"],
    "copa": ["prompt", "choices", "label"],
    "multirc": ["paragraph", "answer", "question", "label"],
    "wic": ["sentence1", "sentence2", "label"],
    "wsc": ["text", "label"],
    "superrte": ["premise", "hypothesis", "label"],
}
SHARES = {  # of the validation sets; known as what a constant answer scores
    "cb": {0: 23, 1: 28, 2: 5},
    "copa": {0: 55, 1: 45},
    "multirc": {0: 2773, 1: 2075},
    "wic": {0: 319, 1: 319},
    "wsc": {0: 66, 1: 38},
    "superrte": {0: 146, 1: 131},
}

# --- the original files --------------------------------------------------------------------------


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_the_published_ones(data_dir: Path, name: str) -> None:
    splits = get_task(name).load(data_dir / "superglue")
    assert (len(splits["train"]), len(splits["validation"])) == COUNTS[name]
    assert Counter(splits["validation"]["label"]) == SHARES[name]
    assert all(split.column_names == COLUMNS[name] for split in splits.values())


@pytest.mark.parametrize("task", SUPERGLUE_TASKS, ids=lambda task: task.name)
def test_every_folder_reads_the_same(data_dir: Path, task: SuperGlueTask) -> None:
    homes = (data_dir / "superglue" / task.folder, data_dir / "superglue", data_dir)
    own, *others = (task.load(home, ["validation"])["validation"].to_list() for home in homes)
    assert others == [own, own]


def test_every_word_of_wic_and_wsc_is_marked(data_dir: Path) -> None:
    for name, patterns in (("wic", [r"\* \w.*? \*"]), ("wsc", [r"\* \S.*? \*", r"# \w+ #"])):
        for split in get_task(name).load(data_dir / "superglue").values():
            columns = [column for column in split.column_names if column != "label"]
            texts = [text for column in columns for text in split[column]]
            assert all(re.search(pattern, text) for pattern in patterns for text in texts)
    # sentences of mathematics in WiC have asterisks of their own, texts of WSC none
    assert {text.count("*") for text in texts} == {text.count("#") for text in texts} == {2}


def test_some_examples_with_their_labels(data_dir: Path) -> None:
    rows = {
        name: get_task(name).load(data_dir / "superglue", ["validation"])["validation"]
        for name in COUNTS
    }
    assert rows["cb"][0]["hypothesis"] == "Valence was helping"
    assert rows["cb"][0]["label"] == 1  # contradiction
    assert rows["copa"][0] == {
        "prompt": "The man turned on the faucet. What happened as a result?",
        "choices": ["The toilet filled with water.", "Water flowed from the spout."],
        "label": 1,
    }
    assert rows["wic"][0]["sentence1"] == "An emerging professional * class *."
    texts = [row["text"] for row in rows["wsc"].to_list()]
    assert any("want to use # it # , but" in text for text in texts)  # a word late in the file
    assert any("* # their # mothers * are very worried" in text for text in texts)
    assert texts[1].startswith("* Mr. Moncrieff * visited Chester 's")
    answers = [row["answer"] for row in rows["multirc"].to_list()[:4]]
    question = "Would the mass of a baseball affect how much force you have to use to pick it up?"
    assert answers[:2] == [f"{question} No", f"{question} Yes"]
    assert rows["multirc"]["question"][:5] == ["0-0"] * 4 + ["0-1"]


def test_saying_yes_scores_as_published(data_dir: Path) -> None:
    # SuperGLUE's table 3 has 61.1 and 0.3 on the test sets for the most frequent class
    task: Any = get_task("multirc")
    rows = task.load(data_dir / "superglue", ["validation"])["validation"]
    scores = task.measure(*task.gather([1] * len(rows), rows))
    assert scores == pytest.approx({"f1": 2 * 2075 / (2075 + 4848), "exact_match": 8 / 953})
    assert [round(100 * score, 1) for score in scores.values()] == [59.9, 0.8]  # the JAT paper's


def test_rte_is_glues(data_dir: Path) -> None:
    ours, glue = (
        get_task(name).load(data_dir / folder)
        for name, folder in (("superrte", "superglue"), ("rte", "glue"))
    )
    for split, others in (("train", 70), ("validation", 6)):
        pairs = list(zip(ours[split].to_list(), glue[split].to_list(), strict=True))
        plain = [[str(v).replace('"', "") for v in row.values()] for pair in pairs for row in pair]
        assert plain[::2] == plain[1::2]
        assert sum(list(one.values()) != list(other.values()) for one, other in pairs) == others


# --- files that are not all there ----------------------------------------------------------------


def test_without_a_file_to_train_on_validation_passages_serve(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        splits = get_task("boolq").load(data_dir / "superglue")
    (record,) = caplog.records
    message = "no file to train on beside it; 2602 of its 3270 rows serve as such, drawn by passage"
    assert record.getMessage().endswith(message)
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 2602,
        "validation": 668,
    }
    assert not set(splits["train"]["passage"]) & set(splits["validation"]["passage"])
    labels = [label for split in splits.values() for label in split["label"]]
    assert Counter(labels) == {1: 2033, 0: 1237}
    alone = get_task("boolq").load(data_dir / "superglue", ["validation"])["validation"]
    assert alone.to_list() == splits["validation"].to_list()


def test_with_a_file_to_train_on_the_splits_are_the_files(
    data_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = data_dir / "superglue"
    shutil.copy(source / "BoolQ" / "val.jsonl.gz", tmp_path)
    shutil.copy(source / "BoolQ" / "fewglue_train.jsonl", tmp_path / "train.jsonl")
    splits = get_task("boolq").load(tmp_path)
    assert (len(splits["train"]), len(splits["validation"])) == (32, 3270)
    shutil.copy(source / "WSC" / "train_partial401.jsonl", tmp_path)
    shutil.copy(source / "WSC" / "fewglue_train.jsonl", tmp_path / "train.jsonl")
    assert len(get_task("wsc").load(tmp_path, ["train"])["train"]) == 32
    assert not caplog.records


@pytest.mark.parametrize("packed", [True, False])
def test_a_part_of_the_rows_to_train_on_is_said_to_be_one(
    data_dir: Path, tmp_path: Path, packed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    name = "train_partial401.jsonl"
    content = (data_dir / "superglue" / "WSC" / name).read_bytes()
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(content) if packed else content)
    assert len(get_task("wsc").load(tmp_path, ["train"])["train"]) == 401
    (record,) = caplog.records
    wanted = f"{path}: a part of the rows to train on, with no file of all"
    assert record.getMessage() == wanted


# --- wrong inputs --------------------------------------------------------------------------------


def test_another_tasks_file_is_refused(data_dir: Path) -> None:
    for task in SUPERGLUE_TASKS:
        for other in {"CB", "COPA", "MultiRC", "WiC", "RTE"} - {task.folder}:
            path = data_dir / "superglue" / other
            if not (task.name == "superrte" and other == "CB"):  # the same columns
                with pytest.raises(ValueError, match=r"line 1: the row must have "):
                    task.load(path, ["validation"])
    with pytest.raises(ValueError, match="must have a label of entailment, not_entailment, got 'c"):
        get_task("superrte").load(data_dir / "superglue" / "CB", ["validation"])


def test_real_files_cut_off_are_refused(data_dir: Path, tmp_path: Path) -> None:
    content = (data_dir / "superglue" / "CB" / "val.jsonl").read_bytes()
    path = tmp_path / "val.jsonl"
    for kept in (len(content) - 5, len(content) // 2):
        path.write_bytes(content[:kept])
        line = content[:kept].count(b"\n") + 1
        words = f"{path}, line {line}: the row must be JSON, got "
        with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
            get_task("cb").load(tmp_path, ["validation"])
    path.write_text("\n")
    with pytest.raises(ValueError, match=r"val.jsonl must hold text, got none$"):
        get_task("cb").load(tmp_path, ["validation"])


def test_a_span_that_is_elsewhere_is_named_with_its_line(data_dir: Path, tmp_path: Path) -> None:
    text = (data_dir / "superglue" / "WSC" / "val.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    lines[4]["target"]["span2_index"] += 3
    path = tmp_path / "val.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    words = f"{path}, line 5: the row must have "
    with pytest.raises(ValueError, match=f"^{re.escape(words)}.* as word ") as caught:
        get_task("wsc").load(tmp_path, ["validation"])
    assert "\n" not in str(caught.value)


def test_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"^task copa needs train.jsonl or train.jsonl.gz"):
        get_task("copa").load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^task boolq needs val.jsonl or val.jsonl.gz in"):
        get_task("boolq").load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^data folder .* does not exist"):
        get_task("boolq").load(tmp_path / "nowhere")


# --- the Hub -------------------------------------------------------------------------------------

HUB_ROWS: dict[str, dict[str, Any]] = {
    "cb": {"premise": "It rains.", "hypothesis": "It is wet."},
    "boolq": {"question": "is it wet", "passage": "It rains."},
    "copa": {"premise": "It rained.", "choice1": "a", "choice2": "b", "question": "cause"},
    "multirc": {
        "paragraph": "It rains.",
        "question": "Is it wet?",
        "answer": "Yes",
        "idx": {"paragraph": 0, "question": 1, "answer": 2},
    },
    "wic": {
        "sentence1": "Room and board.",
        "sentence2": "A board",
        "start1": 9,
        "start2": 2,
        "end1": 14,
        "end2": 7,
    },
    "wsc": {
        "text": "Ann saw her",
        "span1_index": 0,
        "span2_index": 2,
        "span1_text": "Ann",
        "span2_text": "her",
    },
    "superrte": {"premise": "It rains.", "hypothesis": "It is wet."},
}
HUB_PARTS = {"superrte": "rte", "wsc": "wsc.fixed"}


@pytest.mark.parametrize("task", SUPERGLUE_TASKS, ids=lambda task: task.name)
def test_the_hub_is_asked_by_name(monkeypatch: pytest.MonkeyPatch, task: SuperGlueTask) -> None:
    asked: list[tuple[str, str, list[str]]] = []

    def load_dataset(path: str, name: str, *, split: list[str]) -> list[Dataset]:
        asked.append((path, name, split))
        row = {"idx": 3, "version": 1.1, "label": 1, **HUB_ROWS[task.name]}
        return [Dataset.from_list([row]) for _ in split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    splits = task.load(None)
    assert asked == [(HUB_NAME, HUB_PARTS.get(task.name, task.name), ["train", "validation"])]
    for split in splits.values():
        assert split.column_names == COLUMNS[task.name]
        assert split["label"][0] == 1


def test_rows_of_the_hub_that_are_wrong_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**HUB_ROWS["cb"], "label": label} for label in (0, -1)]
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *_, split: [Dataset.from_list(rows) for _ in split]
    )
    words = "the Hub's train split, row 1: the row must have a label of entailment, "
    with pytest.raises(ValueError, match=f"^{words}"):
        get_task("cb").load(None)


def test_without_the_hub_one_line_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"^task copa cannot be loaded from the Hub; .*--data-dir"):
        get_task("copa").load(None)
