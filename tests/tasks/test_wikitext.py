import gzip
import logging
import re
from pathlib import Path

import datasets
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks import get_task
from jat_graph.tasks.language import cut_articles

TASK = get_task("wikitext2")
WORDS = st.text("ab =\n", max_size=20).map(lambda text: f" {text.strip(' =')} \n")
SECTION = " \n = = Section = = \n \n = = = Part = = = \n"


def article(title: str, body: str = "Some words . \n") -> str:
    return f" \n = {title} = \n{SECTION} {body}"


# --- articles ------------------------------------------------------------------------------------


@given(st.lists(st.text("ab,", min_size=1), min_size=1, max_size=5))
def test_articles_are_cut_at_their_titles(titles: list[str]) -> None:
    found = cut_articles("".join(map(article, titles)), "here")
    assert found == [article(title).strip() for title in titles]


@pytest.mark.parametrize("text", ["no title\n", SECTION, "before \n = Title = \n"])
def test_a_text_that_does_not_begin_with_a_title(text: str) -> None:
    with pytest.raises(ValueError, match=r"^here must begin with a title like ' = Title = '$"):
        cut_articles(text, "here")


# --- the original files --------------------------------------------------------------------------


def test_counts_are_the_files(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        splits = TASK.load(data_dir)
    (record,) = caplog.records
    assert "no file to train on beside it; its first 48 of 60 articles" in record.getMessage()
    assert {split: len(loaded) for split, loaded in splits.items()} == {
        "train": 48,
        "validation": 12,
        "test": 62,
    }
    words = {
        split: sum(len(text.split()) for text in loaded["text"]) for split, loaded in splits.items()
    }
    assert words["train"] + words["validation"] == 213_886
    assert words["test"] == 241_211
    assert splits["train"][0]["text"].startswith("= Homarus gammarus =")


def test_the_test_can_be_read_alone(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    for folder in ("lm", "lm/wikitext-2"):
        assert list(TASK.load(data_dir / folder, ["test"])) == ["test"]
    assert not caplog.records


def test_with_a_file_to_train_on_the_splits_are_the_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "wikitext-2"
    home.mkdir()
    for stem in ("train", "valid", "test"):
        (home / f"wiki.{stem}.tokens").write_text("".join(article(f"{stem} {n}") for n in "12"))
    splits = TASK.load(tmp_path)
    assert {split: loaded["text"][:] for split, loaded in splits.items()} == {
        split: [article(f"{stem} {n}").strip() for n in "12"]
        for split, stem in (("train", "train"), ("validation", "valid"), ("test", "test"))
    }
    assert not caplog.records


# --- wrong inputs --------------------------------------------------------------------------------


def test_wrong_folders_and_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"task wikitext2 needs wiki.test.tokens or test"):
        TASK.load(tmp_path)
    (tmp_path / "test.txt").write_text(article("Test"))
    with pytest.raises(FileNotFoundError, match=r"task wikitext2 needs wiki.valid.tokens or valid"):
        TASK.load(tmp_path)
    path = tmp_path / "valid.txt.gz"
    path.write_bytes(gzip.compress(article("Valid").encode())[:-5])
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} is cut off or damaged: "):
        TASK.load(tmp_path)
    path.write_bytes(gzip.compress(b"plain text"))
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))} must begin with a title like"):
        TASK.load(tmp_path)


# --- the Hub -------------------------------------------------------------------------------------


def test_the_hub_is_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, list[str]]] = []

    def load_dataset(path: str, name: str, *, split: list[str]) -> list[Dataset]:
        asked.append((path, name, split))
        lines = (article("One") + article("Two")).splitlines(keepends=True)
        return [Dataset.from_dict({"text": lines}) for _ in split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    splits = TASK.load(None)
    assert asked == [("Salesforce/wikitext", "wikitext-2-raw-v1", list(TASK.splits))]
    for split in TASK.splits:
        assert splits[split]["text"][:] == [article("One").strip(), article("Two").strip()]


def test_without_the_hub_one_line_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"^task wikitext2 cannot be loaded from the Hub; give .*"):
        TASK.load(None)
