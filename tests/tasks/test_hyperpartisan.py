import gzip
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from jat_graph.tasks import get_task
from jat_graph.tasks.hyperpartisan import article_text

TASK = get_task("hyperpartisan")
ARTICLES = "articles-training-byarticle-20181122.xml"
TRUTH = "ground-truth-training-byarticle-20181122.xml"


def write_files(folder: Path, articles: str, truth: str) -> None:
    (folder / ARTICLES).write_text(f"<articles>{articles}</articles>")
    (folder / TRUTH).write_text(f"<articles>{truth}</articles>")


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ("<p>One <a href='x'>two</a> three.</p> <p>Four.</p>", "One two three.\n\nFour."),
        ("Photo <p>One.</p>Between<p>Two.</p> ", "Photo\n\nOne.\n\nBetween\n\nTwo."),
        ("A\n line\n\n and another", "A line and another"),
        ("<p>Bread &amp;amp; &amp;quot;butter&amp;quot; &#233;&gt;</p>", 'Bread & "butter" é>'),
        ("<p> </p><p/>", ""),
    ],
)
def test_markup_goes_and_paragraphs_stay(inside: str, text: str) -> None:
    assert article_text(ElementTree.fromstring(f"<article>{inside}</article>")) == text


def test_counts_are_the_files(data_dir: Path) -> None:
    splits = TASK.load(data_dir)
    assert {split: Counter(loaded["label"]) for split, loaded in splits.items()} == {
        "train": {0: 325, 1: 190},
        "validation": {0: 41, 1: 24},
        "test": {0: 41, 1: 24},
    }
    texts = [text for loaded in splits.values() for text in loaded["text"]]
    words = [len(text.split()) for text in texts]
    assert round(sum(words) / 645) == 565
    assert [sum(count >= least for count in words) for least in (1000, 2000)] == [87, 11]
    assert not any(re.search(r"</?(p|a)\b|&amp;|&#\d", text) for text in texts)
    assert any("\n\n" in text for text in texts)


def test_the_own_folder_reads_the_same(data_dir: Path) -> None:
    inner = TASK.load(data_dir / "hyperpartisan", ["test"])
    assert list(inner) == ["test"]
    assert inner["test"].to_list() == TASK.load(data_dir)["test"].to_list()


ONE = '<article id="1"><p>Text</p></article>'
TRUE = '<article id="1" hyperpartisan="true"/>'


def test_labels_are_joined_by_id(tmp_path: Path) -> None:
    texts = "".join(f'<article id="{n}"><p>Text {n}</p></article>' for n in range(20))
    labels = "".join(
        f'<article id="{n}" hyperpartisan="{str(n % 3 == 0).lower()}"/>'
        for n in reversed(range(20))
    )
    write_files(tmp_path, texts, labels)
    rows = [row for loaded in TASK.load(tmp_path).values() for row in loaded.to_list()]
    assert sorted((row["text"], row["label"]) for row in rows) == sorted(
        (f"Text {n}", int(n % 3 == 0)) for n in range(20)
    )


@pytest.mark.parametrize(
    ("articles", "truth", "message"),
    [
        ("", TRUE, f"{ARTICLES} must hold articles, got none"),
        (ONE, "", f"{TRUTH} must hold articles, got none"),
        (ONE, TRUE.replace("1", "2"), f"{TRUTH} must have a label for article '1', got none"),
        (
            ONE,
            TRUE.replace("true", "maybe"),
            f"{TRUTH}, article '1': hyperpartisan must be false or true, got 'maybe'",
        ),
        (
            '<article id="1"><p> </p></article>',
            TRUE,
            f"{ARTICLES}, article '1' must hold text, got",
        ),
        (ONE[:-3], TRUE, f"{ARTICLES} must be XML, got "),
        ("&external;", TRUE, f"{ARTICLES} must be XML, got undefined entity"),
    ],
)
def test_files_that_are_wrong_inside(
    tmp_path: Path, articles: str, truth: str, message: str
) -> None:
    write_files(tmp_path, articles, truth)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{tmp_path}/{message}')}"):
        TASK.load(tmp_path)


@pytest.mark.parametrize(
    "declared",
    [
        '<!ENTITY secret SYSTEM "file:///etc/hostname">',
        '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">',
    ],
)
def test_entities_are_neither_fetched_nor_expanded(tmp_path: Path, declared: str) -> None:
    write_files(tmp_path, ONE, TRUE)
    article = '<article id="1">&secret;&b;</article>'
    text = f"<!DOCTYPE articles [{declared}]><articles>{article}</articles>"
    (tmp_path / ARTICLES).write_text(text)
    with pytest.raises(ValueError) as caught:
        TASK.load(tmp_path)
    where = tmp_path / ARTICLES
    assert str(caught.value) == f"{where} must declare no document type, got 'articles'"


def test_a_file_cut_off_is_refused(data_dir: Path, tmp_path: Path) -> None:
    for name in (ARTICLES, TRUTH):
        content = (data_dir / "hyperpartisan" / f"{name}.gz").read_bytes()
        (tmp_path / f"{name}.gz").write_bytes(content)
    cut = tmp_path / f"{TRUTH}.gz"
    content = cut.read_bytes()
    cut.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=f"^{re.escape(str(cut))} is cut off or damaged: "):
        TASK.load(tmp_path)
    cut.write_bytes(gzip.compress(gzip.decompress(content)[:999]))
    with pytest.raises(ValueError, match=f"^{re.escape(str(cut))} must be XML, got .*line"):
        TASK.load(tmp_path)


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task hyperpartisan cannot be loaded by name"):
        TASK.load(None)
    with pytest.raises(FileNotFoundError, match=rf"task hyperpartisan needs {ARTICLES} or"):
        TASK.load(tmp_path)
    write_files(tmp_path, ONE, TRUE)
    (tmp_path / TRUTH).unlink()
    with pytest.raises(FileNotFoundError, match=rf"task hyperpartisan needs {TRUTH} or"):
        TASK.load(tmp_path)
