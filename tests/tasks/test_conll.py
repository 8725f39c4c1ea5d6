import gzip
import re
from collections import Counter
from pathlib import Path

import pytest

from jat_graph.tasks import ConllTask, get_task

TASK = get_task("conll2003")
OLD = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
Ann NNP I-NP B-PER
\tUN  NNP I-NP I-ORG \r

-DOCSTART- -X- O O
Paris NNP I-NP B-LOC
"""
ROWS = [
    {"tokens": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
    {
        "tokens": ["Peter", "Blackburn", "Ann", "UN"],
        "tags": ["B-PER", "I-PER", "B-PER", "B-ORG"],
    },
    {"tokens": ["Paris"], "tags": ["B-LOC"]},
]


# --- the original files --------------------------------------------------------------------------


def test_counts_are_the_files(data_dir: Path) -> None:
    splits = get_task("wnut17").load(data_dir)
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 3394, "validation": 1009}
    words = {name: sum(map(len, rows["tokens"])) for name, rows in splits.items()}
    assert words == {"train": 62730, "validation": 15733}
    begun = {
        name: Counter(tag[2:] for tags in rows["tags"] for tag in tags if tag[0] == "B")
        for name, rows in splits.items()
    }
    assert begun["train"] == {
        "person": 660,
        "location": 548,
        "group": 264,
        "corporation": 221,
        "product": 142,
        "creative-work": 140,
    }
    assert begun["validation"].total() == 836
    own = get_task("wnut17").load(data_dir / "wnut17", ["validation"])
    assert list(own) == ["validation"]
    assert own["validation"].to_list() == splits["validation"].to_list()


@pytest.mark.parametrize(
    ("name", "packed"), [("eng.train", False), ("train.txt", False), ("eng.train.gz", True)]
)
def test_the_old_tags_are_read_as_the_new_ones(tmp_path: Path, name: str, packed: bool) -> None:
    (tmp_path / "conll2003").mkdir()
    content = OLD.encode()
    (tmp_path / "conll2003" / name).write_bytes(gzip.compress(content) if packed else content)
    assert TASK.load(tmp_path, ["train"])["train"].to_list() == ROWS


def test_rare_signs_in_words_end_neither_word_nor_line(tmp_path: Path) -> None:
    signs = ["a\u2028b", "c\x85", "d\u00a0e"]
    text = "".join(f"{sign}\tO\n" for sign in signs) + "\t\nx\tB-PER"
    (tmp_path / "valid.txt").write_text(text, encoding="utf-8", newline="")
    rows = TASK.load(tmp_path, ["validation"])["validation"].to_list()
    assert [row["tokens"] for row in rows] == [signs, ["x"]]


def test_files_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Bach I-composer\nplays O\n")
    own = ConllTask(
        name="own", types=("composer",), train_files=("a.conll",), validation_files=("b.conll",)
    )
    assert own.load(tmp_path, ["train"])["train"]["tags"][0] == ["B-composer", "O"]
    with pytest.raises(FileNotFoundError, match=r"task own needs b.conll or b.conll.gz in .*: no"):
        own.load(tmp_path)


# --- wrong inputs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Ann B-PER\n\nBob S-PER\n",
            ", line 3: the tag must be one of B-LOC, B-MISC, B-ORG, B-PER",
        ),
        ("Ann B-person\n", ", line 1: the tag must be one of B-LOC, "),
        ("Ann NNP B-PER\nran O\n", ", line 2: the row must have 3 columns, got 2"),
        ("Ann\n", ", line 1: the row must have 2 columns, got 1"),
        ("Ann O\n\tO\n", ", line 2: the row must have 2 columns, got 1"),
        ("-DOCSTART- -X- O O\n\n", " must hold sentences, got none"),
        (" \n", " must hold text, got none"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "eng.train"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}{message}')}") as caught:
        TASK.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_wrong_folders_and_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task wnut17 cannot be loaded by name"):
        get_task("wnut17").load(None)
    with pytest.raises(FileNotFoundError, match=r"task conll2003 needs eng.train or eng.train.gz"):
        TASK.load(tmp_path)
    (tmp_path / "eng.train.gz").write_bytes(gzip.compress(OLD.encode())[:-8])
    with pytest.raises(ValueError, match=r"eng.train.gz is cut off or damaged"):
        TASK.load(tmp_path)
    (tmp_path / "eng.train").write_bytes("Müller O\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"eng.train must be UTF-8, got a bad byte at 1"):
        TASK.load(tmp_path)
