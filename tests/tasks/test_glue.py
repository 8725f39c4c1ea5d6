import re
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import ClassLabel, Dataset

from jat_graph.tasks import get_task
from jat_graph.tasks.glue import GLUE_TASKS, HUB_NAME

COUNTS = {
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "stsb": (5749, 1500),
    "rte": (2490, 277),
    "wnli": (635, 71),
}
FOLDERS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "rte": "RTE",
    "wnli": "WNLI",
    "qnli": "QNLI",
}

# --- the original files --------------------------------------------------------------------------


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_the_published_ones(data_dir: Path, name: str) -> None:
    task = get_task(name)
    splits = task.load(data_dir / "glue")
    assert (len(splits["train"]), len(splits["validation"])) == COUNTS[name]
    for split in splits.values():
        assert split.column_names == [*task.text_columns, "label"]
        assert all(text.strip() for column in task.text_columns for text in split[column])


@pytest.mark.parametrize("name", FOLDERS)
def test_the_tasks_own_folder_reads_the_same(data_dir: Path, name: str) -> None:
    task = get_task(name)
    inner = task.load(data_dir / "glue" / FOLDERS[name], ["validation"])
    for outer in (data_dir / "glue", data_dir):
        assert (
            inner["validation"].to_list()
            == task.load(outer, ["validation"])["validation"].to_list()
        )


def test_a_dev_set_can_be_read_without_its_training_file(data_dir: Path) -> None:
    task = get_task("qnli")
    assert len(task.load(data_dir / "glue", ["validation"])["validation"]) == 5463
    with pytest.raises(FileNotFoundError, match=r"task qnli needs train.tsv or train.tsv.gz in"):
        task.load(data_dir / "glue", ["train", "validation"])


@pytest.mark.parametrize(
    ("name", "shares"),  # of the dev sets; known for years as what a constant answer scores
    [
        ("cola", {0: 322, 1: 721}),
        ("sst2", {0: 428, 1: 444}),
        ("mrpc", {0: 129, 1: 279}),
        ("qnli", {0: 2702, 1: 2761}),
        ("rte", {0: 146, 1: 131}),
        ("wnli", {0: 40, 1: 31}),
    ],
)
def test_labels_are_the_hubs(data_dir: Path, name: str, shares: dict[int, int]) -> None:
    labels = get_task(name).load(data_dir / "glue", ["validation"])["validation"]["label"]
    assert Counter(labels) == shares


def test_some_examples_with_their_labels(data_dir: Path) -> None:
    rte = get_task("rte").load(data_dir / "glue", ["validation"])["validation"][1]
    assert rte["sentence2"] == "Bacteria is winning the war against antibiotics."
    assert rte["label"] == 0  # entailment
    mrpc = get_task("mrpc").load(data_dir / "glue", ["validation"])["validation"][0]
    assert mrpc["sentence2"].startswith('" The foodservice pie business')
    assert mrpc["label"] == 1
    stsb = get_task("stsb").load(data_dir / "glue", ["validation"])["validation"]
    assert stsb[1] == {
        "sentence1": "A young child is riding a horse.",
        "sentence2": "A child is riding a horse.",
        "label": 4.75,
    }
    assert min(stsb["label"]) == 0
    assert max(stsb["label"]) == 5


def test_another_tasks_file_is_refused(data_dir: Path) -> None:
    for name in ("mrpc", "stsb", "qnli", "cola"):
        with pytest.raises(ValueError, match="line 1: the"):
            get_task(name).load(data_dir / "glue" / "RTE", ["validation"])
    with pytest.raises(ValueError, match="line 2: the row must have a label of 0, 1, got 'not_"):
        get_task("wnli").load(data_dir / "glue" / "RTE", ["validation"])


def test_a_real_file_cut_off_is_refused(data_dir: Path, tmp_path: Path) -> None:
    content = (data_dir / "glue" / "RTE" / "dev.tsv").read_bytes()
    cut = tmp_path / "dev.tsv"
    for kept in (len(content) - 5, len(content) - 20, len(content) // 2):
        cut.write_bytes(content[:kept])
        last = content[:kept].count(b"\n") + 1
        with pytest.raises(ValueError, match=f"^{re.escape(str(cut))}, line {last}: the row must"):
            get_task("rte").load(tmp_path, ["validation"])


# --- files in the layout of those that are not at hand -------------------------------------------

QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
QQP_ROW = "201359\t303345\t303346\tWhy is it so?\tWhy is it not?\t0\n"
MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\t"
)


def mnli_row(labels: list[str]) -> str:
    texts = ["( Yes )", "( No )", "(ROOT Yes)", "(ROOT No)", "Yes", "No"]
    return "\t".join(["0", "31193", "31193n", "government", *texts, *labels]) + "\n"


def write_mnli(folder: Path) -> None:
    (folder / "train.tsv").write_text(f"{MNLI}gold_label\n" + mnli_row(["neutral", "neutral"]))
    header = MNLI + "label2\tlabel3\tlabel4\tlabel5\tgold_label\n"
    votes = ["neutral", "entailment", "neutral", "neutral"]
    for stem, gold in (("dev_matched", "entailment"), ("dev_mismatched", "contradiction")):
        (folder / f"{stem}.tsv").write_text(header + mnli_row([*votes, gold, gold]))


def test_mnli_has_two_dev_sets(tmp_path: Path) -> None:
    write_mnli(tmp_path)
    splits = get_task("mnli").load(tmp_path)
    rows = {split: dataset.to_list() for split, dataset in splits.items()}
    texts = {"premise": "Yes", "hypothesis": "No"}
    assert rows == {
        "train": [{**texts, "label": 1}],
        "validation_matched": [{**texts, "label": 0}],
        "validation_mismatched": [{**texts, "label": 2}],
    }


def test_mnli_without_a_gold_label_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(f"{MNLI}gold_label\n" + mnli_row(["neutral", "-"]))
    with pytest.raises(ValueError, match="line 2: the row must have a label of entailment, "):
        get_task("mnli").load(tmp_path, ["train"])


def test_qqp_leaves_out_the_lines_that_are_broken_as_published(tmp_path: Path) -> None:
    rows = [QQP_ROW] * 3000
    rows[1500:1502] = ["364011\t490273\t490274\tWho was he?\n", '"\tWas he real?\t0\n']
    (tmp_path / "train.tsv").write_text(QQP + "".join(rows))
    train = get_task("qqp").load(tmp_path, ["train"])["train"]
    assert len(train) == 2998
    assert train[0] == {"question1": "Why is it so?", "question2": "Why is it not?", "label": 0}


def test_qqp_with_more_broken_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text(QQP + QQP_ROW + "cut\n" + QQP_ROW)
    with pytest.raises(ValueError, match="line 3: the row must have 6 columns, got 1"):
        get_task("qqp").load(tmp_path, ["validation"])


# --- the Hub -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", GLUE_TASKS, ids=lambda task: task.name)
def test_the_hub_is_asked_by_name(monkeypatch: pytest.MonkeyPatch, task: Any) -> None:
    asked: list[tuple[str, str, list[str]]] = []

    def load_dataset(path: str, name: str, *, split: list[str]) -> list[Dataset]:
        asked.append((path, name, split))
        row = {column: f"{column} text" for column in task.text_columns}
        made = Dataset.from_list([{"idx": 3, "label": 1, **row}])
        if task.labels is not None:
            made = made.cast_column("label", ClassLabel(names=list(task.labels)))
        return [made for _ in split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    splits = task.load(None)
    assert asked == [(HUB_NAME, task.name, list(task.splits))]
    assert tuple(splits) == task.splits
    for split in splits.values():
        assert split.column_names == [*task.text_columns, "label"]
        assert split["label"][0] == 1


def test_without_the_hub_one_line_says_what_to_do() -> None:
    # tests/conftest.py switches the Hub off for all tests
    with pytest.raises(ValueError) as caught:
        get_task("cola").load(None)
    assert "\n" not in str(caught.value)
    assert "task cola cannot be loaded from the Hub" in str(caught.value)
    assert "--data-dir" in str(caught.value)
