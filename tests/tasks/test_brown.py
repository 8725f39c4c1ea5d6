import re
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks import get_task
from jat_graph.tasks.brown import GENRES, brown_text

TASK = get_task("brown")


def write_archive(folder: Path, members: dict[str, str]) -> Path:
    path = folder / "brown.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(f"brown/{name}", text)
    return path


# --- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("The jury said , `` No evidence '' .", 'The jury said, "No evidence".'),
        ("Why ? ? Stop ! !", "Why? Stop!"),
        ("One ; ; two : three", "One; two: three"),
        ("He ( the mayor ) went", "He (the mayor) went"),
        ("the ' pro ' letters", "the 'pro' letters"),
        ("`` They said ' no ' '' , he said", "\"They said 'no'\", he said"),
        ("a 1/2'' pipe -- and more", 'a 1/2" pipe -- and more'),
        ("and/or Atlanta's $1,000 3.5", "and/or Atlanta's $1,000 3.5"),
    ],
)
def test_words_are_joined_as_people_write_them(words: str, text: str) -> None:
    assert brown_text(" ".join(f"{word}/nn" for word in words.split())) == text


def test_paragraphs_are_kept_and_sentences_run_on() -> None:
    tagged = "\n\n\n\tThe/at end/nn ./.\nIt/pps was/bedz ./.\n\n\n\n\tYes/rb ./.\n"
    assert brown_text(tagged) == "The end. It was.\n\nYes."
    assert brown_text(" \n\n") == ""


@given(st.lists(st.text("ab1'-", min_size=1).filter(lambda word: word.strip("'")), min_size=1))
def test_plain_words_come_back(words: list[str]) -> None:
    text = brown_text(" ".join(f"{word}/x-y" for word in words))
    assert text == " ".join(words).replace("''", '"')


@pytest.mark.parametrize("pair", ["word", "/nn", "word/"])
def test_words_without_tags_are_refused(pair: str) -> None:
    with pytest.raises(ValueError, match=f"^each word must have a tag .*, got '{pair}'$"):
        brown_text(f"The/at {pair} ./.")


# --- the corpus ----------------------------------------------------------------------------------


def test_the_corpus_has_500_texts_of_15_genres(data_dir: Path) -> None:
    splits = TASK.load(data_dir)
    assert {name: len(rows) for name, rows in splits.items()} == {
        "train": 300,
        "validation": 100,
        "test": 100,
    }
    counts = Counter(label for rows in splits.values() for label in rows["label"])
    genres = {GENRES[label]: count for label, count in counts.items()}
    assert genres["learned"] == 80
    assert genres["science_fiction"] == 6
    assert len(genres) == 15
    texts = [text for rows in splits.values() for text in rows["text"]]
    assert len(set(texts)) == 500
    assert min(len(text.split()) for text in texts) > 1900  # 2,148 with punctuation apart
    assert not any(re.search(r"/(nn|at|jj)\b| ,|``|''|\? \?", text) for text in texts)
    for name in ("validation", "test"):  # every genre is tested, each in its share
        assert set(splits[name]["label"]) == set(range(15))


def test_the_own_folder_reads_the_same(data_dir: Path) -> None:
    inner = TASK.load(data_dir / "nltk", ["test"])
    assert list(inner) == ["test"]
    assert inner["test"].to_list() == TASK.load(data_dir)["test"].to_list()


# --- wrong inputs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"cats.txt": ""}, ", cats.txt must name texts, got none"),
        ({"cats.txt": "ca01 gossip\n"}, ", cats.txt, line 1: the genre must be one of adventure, "),
        ({"cats.txt": "ca01 news\n", "ca01": "\n"}, ", ca01 must have words, got none"),
        ({"cats.txt": "ca01 news\n", "ca01": "The/at end"}, ", ca01: each word must have a tag"),
    ],
)
def test_archives_that_are_wrong_inside(
    tmp_path: Path, members: dict[str, str], message: str
) -> None:
    path = write_archive(tmp_path, members)
    with pytest.raises(ValueError) as caught:
        TASK.load(tmp_path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("members", [{"README": "x"}, {"cats.txt": "ca01 news\n"}])
def test_a_member_that_is_missing_is_named(tmp_path: Path, members: dict[str, str]) -> None:
    write_archive(tmp_path, members)
    with pytest.raises(FileNotFoundError, match=r"brown.zip must hold brown/(cats.txt|ca01): no"):
        TASK.load(tmp_path)


def test_an_archive_cut_off_or_damaged_is_refused(data_dir: Path, tmp_path: Path) -> None:
    content = (data_dir / "nltk" / "brown.zip").read_bytes()
    path = tmp_path / "brown.zip"
    for broken in (content[: len(content) // 2], content[:-30], b"no archive"):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))} is cut off or damaged: "):
            TASK.load(tmp_path)
    small = write_archive(tmp_path, {"cats.txt": "ca01 news\n", "ca01": "The/at end/nn " * 99})
    content = small.read_bytes()
    middle = content.index(b"brown/ca01") + 20
    small.write_bytes(content[:middle] + b"\0\1\2\3" + content[middle + 4 :])
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} is cut off or damaged: "):
        TASK.load(tmp_path)


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task brown cannot be loaded by name; give the folder"):
        TASK.load(None)
    with pytest.raises(FileNotFoundError, match=r"task brown needs brown.zip in .* no such file$"):
        TASK.load(tmp_path)
