import gzip
import io
import re
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import ClassLabel, Dataset

from jat_graph.tasks import get_task

TASK = get_task("imdb")
REVIEWS = {
    f"{part}/{side}/{number}_{rating}.txt": f"{part} {side} {number} <br /> café"
    for part in ("train", "test")
    for side, rating in (("neg", 2), ("pos", 9))
    for number in range(10)
}


def write_folder(folder: Path, reviews: dict[str, str]) -> None:
    for name, text in reviews.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def write_archive(path: Path, reviews: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in reviews.items():
            entry = tarfile.TarInfo(f"aclImdb/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))


def rows(folder: Path | None) -> dict[str, list[dict[str, Any]]]:
    return {split: loaded.to_list() for split, loaded in TASK.load(folder).items()}


# --- the original files --------------------------------------------------------------------------


def test_counts_are_the_archives(data_dir: Path) -> None:
    splits = TASK.load(data_dir)
    counts = {split: Counter(loaded["label"]) for split, loaded in splits.items()}
    assert counts["train"] + counts["validation"] == {0: 857, 1: 922}
    assert counts["validation"] == {0: 86, 1: 92}  # a tenth of each side
    assert counts["test"] == {0: 580, 1: 630}
    texts = [text for loaded in splits.values() for text in loaded["text"]]
    assert all(text.strip() for text in texts)
    assert any("<br />" in text for text in texts)


def test_the_test_can_be_read_alone(data_dir: Path) -> None:
    assert list(TASK.load(data_dir / "imdb", ["test"])) == ["test"]


def test_folder_and_archive_read_the_same(tmp_path: Path) -> None:
    write_folder(tmp_path / "here" / "aclImdb", REVIEWS | {"train/unsup/0_0.txt": "no label"})
    packed = tmp_path / "packed"
    packed.mkdir()
    write_archive(packed / "aclImdb_v1.tar.gz", dict(reversed(REVIEWS.items())))
    unpacked = rows(tmp_path / "here")
    assert rows(packed) == unpacked == rows(tmp_path / "here" / "aclImdb")
    assert {split: len(found) for split, found in unpacked.items()} == {
        "train": 18,
        "validation": 2,
        "test": 20,
    }
    assert {"text": REVIEWS["test/pos/3_9.txt"], "label": 1} in unpacked["test"]
    both = unpacked["train"] + unpacked["validation"]
    assert {row["text"] for row in both} == {
        text for name, text in REVIEWS.items() if name.startswith("train")
    }


# --- wrong inputs --------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train/neg/11_8.txt": "x"}, ", train/neg/11_8.txt: the rating must be 1 to 4 for neg, "),
        ({"test/pos/11_5.txt": "x"}, ", test/pos/11_5.txt: the rating must be 7 to 10 for pos, "),
        ({"train/pos/3_9.txt": " \n"}, ", train/pos/3_9.txt must hold text, got none"),
    ],
)
def test_reviews_that_are_wrong(
    tmp_path: Path, packed: bool, changed: dict[str, str], message: str
) -> None:
    path = tmp_path / ("aclImdb_v1.tar.gz" if packed else "aclImdb")
    (write_archive if packed else write_folder)(path, REVIEWS | changed)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}{message}')}"):
        TASK.load(tmp_path)


@pytest.mark.parametrize("kept", ["train/", "train/neg", "test/"])
def test_parts_that_are_missing(tmp_path: Path, kept: str) -> None:
    some = {name: text for name, text in REVIEWS.items() if name.startswith(kept)}
    write_folder(tmp_path / "aclImdb", some)
    with pytest.raises(ValueError, match=r"aclImdb must hold (train|test)/neg and \1/pos, got not"):
        TASK.load(tmp_path)


def test_a_review_of_another_encoding_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, REVIEWS)
    (tmp_path / "test/neg/5_2.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(ValueError, match=r", test/neg/5_2.txt must be UTF-8, got a bad byte at 3$"):
        TASK.load(tmp_path)


def test_an_archive_cut_off_is_refused(data_dir: Path, tmp_path: Path) -> None:
    content = (data_dir / "imdb" / "aclImdb_subset.tar.gz").read_bytes()
    path = tmp_path / "aclImdb_subset.tar.gz"
    plain = gzip.decompress(content)[: 1 << 20]
    for broken in (content[: len(content) // 3], content[:-3000], b"", b"x", gzip.compress(plain)):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))} is cut off or damaged: "):
            TASK.load(tmp_path)


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "aclImdb_v1.tar.gz"
    write_archive(path, REVIEWS)
    wanted = rows(tmp_path)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in REVIEWS.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
        entry = tarfile.TarInfo("train/neg/99_1.txt")
        entry.type, entry.linkname = tarfile.SYMTYPE, "nowhere.txt"
        archive.addfile(entry)
    assert rows(tmp_path) == wanted


def test_a_folder_without_reviews(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"task imdb needs train or test or aclImdb_v1.tar"):
        TASK.load(tmp_path)


# --- the Hub -------------------------------------------------------------------------------------


def test_the_hub_is_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str]]] = []

    def load_dataset(path: str, *, split: list[str]) -> list[Dataset]:
        asked.append((path, split))
        table = {"text": [f"{n}" for n in range(40)], "label": [n % 2 for n in range(40)]}
        made = Dataset.from_dict(table).cast_column("label", ClassLabel(names=["neg", "pos"]))
        return [made for _ in split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    splits = TASK.load(None)
    assert asked == [("stanfordnlp/imdb", ["test", "train"])]
    assert {split: len(loaded) for split, loaded in splits.items()} == {
        "train": 36,
        "validation": 4,
        "test": 40,
    }
    assert list(TASK.load(None, ["test"])) == ["test"]
    assert asked[1] == ("stanfordnlp/imdb", ["test"])


def test_without_the_hub_one_line_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"^task imdb cannot be loaded from the Hub; .*--data-dir"):
        TASK.load(None)
