import gzip
import json
import re
from collections import Counter
from pathlib import Path

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks.sources import (
    file_lines,
    find_file,
    load_from_hub,
    plain_or_gzipped,
    read_bytes,
    read_json,
    read_text,
    stratified_split,
)


def test_a_file_is_found_in_the_folder_or_in_its_home(tmp_path: Path) -> None:
    home = tmp_path / "lm" / "verse"
    home.mkdir(parents=True)
    (home / "b.txt").touch()
    found = [
        find_file(folder, "verse", ("verse", "lm/verse"), ("a.txt", "b.txt"))
        for folder in (tmp_path, tmp_path / "lm", home)
    ]
    assert found == [home / "b.txt"] * 3
    (home / "a.txt").touch()  # the first name wins
    assert find_file(home, "verse", (), ("a.txt", "b.txt")) == home / "a.txt"


def test_a_missing_file_is_named_with_its_places(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        find_file(tmp_path, "verse", ("verse",), ("a.txt", "a.txt.gz"))
    assert str(caught.value) == (
        f"task verse needs a.txt or a.txt.gz in {tmp_path} (it or its verse): no such file"
    )
    with pytest.raises(FileNotFoundError, match=r"^data folder .*nowhere does not exist or is not"):
        find_file(tmp_path / "nowhere", "verse", (), ("a.txt",))


def test_a_task_that_the_hub_lacks_needs_a_folder() -> None:
    with pytest.raises(
        ValueError, match=r"^task verse cannot be loaded by name; give .*--data-dir"
    ):
        find_file(None, "verse", ("verse",), ("a.txt",))


def test_a_file_may_be_packed() -> None:
    assert plain_or_gzipped("a.txt", "b.txt") == ["a.txt", "a.txt.gz", "b.txt", "b.txt.gz"]


@pytest.mark.parametrize("name", ["plain.txt", "packed.txt.gz"])
@given(text=st.text(min_size=1).filter(str.strip))
def test_text_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, name: str, text: str
) -> None:
    path = tmp_path_factory.mktemp("text") / name
    content = text.encode("utf-8")
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_bytes(path) == content
    assert read_text(path) == text.removeprefix("\ufeff")


@given(kept=st.integers(1, 200))
def test_a_packed_file_cut_off_anywhere_is_refused(
    tmp_path_factory: pytest.TempPathFactory, kept: int
) -> None:
    content = gzip.compress(bytes(range(256)) * 4)
    path = tmp_path_factory.mktemp("cut") / "data.gz"
    path.write_bytes(content[: min(kept, len(content) - 1)])
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} is cut off or damaged: "):
        read_bytes(path)


def test_text_of_another_encoding_or_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("naïve".encode("latin-1"))
    with pytest.raises(ValueError, match=r"text.txt must be UTF-8, got a bad byte at 2$"):
        read_text(path)
    path.write_text(" \n")
    with pytest.raises(ValueError, match=r"text.txt must hold text, got none$"):
        read_text(path)


def test_json_cut_off_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"a": [1, 2]})[:-2])
    with pytest.raises(ValueError, match=r"data.json must be JSON, got .* at line 1, column \d+$"):
        read_json(path)
    path.write_text('{"a": [1, 2]}')
    assert read_json(path) == {"a": [1, 2]}


def test_json_too_deep_to_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"data.json must be JSON, got too many brackets inside "):
        read_json(path)


def test_data_that_is_a_program_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: object, **__: object) -> None:
        raise RuntimeError("Dataset scripts are no longer supported, but found x.py\nmore")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    words = (
        "task verse cannot be loaded from the Hub; give .* The Hub says: Dataset scripts .* x.py"
    )
    with pytest.raises(ValueError, match=f"^{words}$"):
        load_from_hub("verse", "x", splits=["train"], columns=["text"])


# --- splits of data that have none ---------------------------------------------------------------

CLASSES = st.lists(st.sampled_from("abc"), max_size=60)
SHARES = {"validation": 0.2, "test": 0.1}


@given(CLASSES)
def test_every_row_is_in_one_split_and_every_class_has_its_share(classes: list[str]) -> None:
    splits = stratified_split(classes, SHARES)
    assert list(splits) == ["train", "validation", "test"]
    assert sorted(row for rows in splits.values() for row in rows) == list(range(len(classes)))
    sizes = Counter(classes)
    for split, share in SHARES.items():
        counts = Counter(classes[row] for row in splits[split])
        assert all(abs(counts[name] - share * size) <= 0.5 for name, size in sizes.items())
    assert all(rows == sorted(rows) for rows in splits.values())


@given(CLASSES, CLASSES)
def test_rows_of_a_class_do_not_depend_on_the_other_classes(
    first: list[str], more: list[str]
) -> None:
    alone = stratified_split(first, SHARES)
    with_others = stratified_split([*first, *(name.upper() for name in more)], SHARES)
    for split, rows in alone.items():
        assert [row for row in with_others[split] if row < len(first)] == rows


def test_rows_are_drawn_and_not_just_the_first() -> None:
    splits = stratified_split([0] * 100, {"test": 0.5})
    assert splits == stratified_split([0] * 100, {"test": 0.5})
    assert 10 < sum(row < 50 for row in splits["test"]) < 40


def test_a_line_ends_with_a_line_feed_only(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl.gz"
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in ("a\u2028b", "c\x85", "d")]
    path.write_bytes(gzip.compress("\r\n".join([lines[0], "", *lines[1:]]).encode()))
    found = list(file_lines(path))
    assert [line["text"] for _, line in found] == ["a\u2028b", "c\x85", "d"]
    assert [place for place, _ in found] == [f"{path}, line {number}" for number in (1, 3, 4)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a', "must be JSON, got Unterminated string starting at"),
        ("plain", "must be JSON, got Expecting value"),
        ("[1, 2]", "must be a JSON object, got [1, 2]"),
        ("[" * 100_000, "must be JSON, got "),
    ],
)
def test_lines_that_are_no_objects(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "val.jsonl"
    path.write_text(f'{{"text": "a"}}\n{line}')
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}, line 2: the row {message}')}"):
        list(file_lines(path))
