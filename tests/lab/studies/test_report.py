"""The page is made from the files, and from nothing else."""

import runpy
import sys
from pathlib import Path

import pytest

from jat_graph.lab.page import NO_RESULTS
from jat_graph.lab.studies import write_results
from jat_graph.lab.studies.report import (
    read_findings,
    read_folder,
    render_page,
    write_page,
)
from jat_graph.lab.studies.rows import experiment_rows
from tests.lab.studies import made_up
from tests.lab.studies.test_verdicts import results as answered

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a page's results, still empty."""
    (tmp_path / "pictures").mkdir()
    (tmp_path / "experiments").mkdir()
    return tmp_path / "experiments"


def page_of(folder: Path) -> str:
    found = read_folder(folder)
    rows = {results.grid.name: experiment_rows(results) for results in found}
    return render_page(found, read_findings(folder), "pictures/experiments", rows)


def test_the_committed_page_is_made_from_the_committed_files() -> None:
    folder = ROOT / "docs" / "experiments"
    if not folder.is_dir():
        pytest.skip("no results are committed")
    made = page_of(folder)
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert page == made, "run python -m jat_graph.lab.studies.report docs/experiments"


def test_sections_stand_in_the_papers_order(folder: Path) -> None:
    for name in ("own", "layers", "glue"):
        results = made_up.results(made_up.grid(name=name, title=f"About {name}"))
        write_results(folder / f"{name}.jsonl", results)
    (folder / "findings.md").write_text("## What holds\n\nLittle.\n", encoding="utf-8")
    page = write_page(folder)
    text = page.read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        *("## What holds", "## glue: About glue", "## layers: About layers", "## own: About own")
    ]
    assert page == folder.with_suffix(".md")
    assert "](pictures/experiments-glue.png)" in text
    picture = folder.parent / "pictures" / "experiments-glue.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert text == page_of(folder)
    assert "experiments-answers" not in text


def test_what_questions_say_of_stones_is_one_picture(folder: Path) -> None:
    write_results(folder / "mine.jsonl", answered([0.5, 0.6], [0.8, 0.9]))
    text = write_page(folder).read_text(encoding="utf-8")
    assert text.index("](pictures/experiments-answers.png)") < text.index("## mine: ")
    picture = folder.parent / "pictures" / "experiments-answers.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_experiment_that_has_just_begun_has_no_picture(folder: Path) -> None:
    write_results(folder / "glue.jsonl", made_up.results(records=()))
    text = write_page(folder).read_text(encoding="utf-8")
    assert "No cell is finished yet." in text
    assert "![" not in text


def test_an_empty_folder_gives_a_page_without_results(folder: Path) -> None:
    assert write_page(folder).read_text(encoding="utf-8").endswith(NO_RESULTS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, "", "needs a folder of results, got"),
        ("glue", "{", "must be JSON"),
        ("heads", None, r"heads.jsonl must be named glue.jsonl, as its grid"),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    content: str | None,
    message: str,
) -> None:
    if name is None:
        folder.rmdir()
    elif content is None:
        write_results(folder / f"{name}.jsonl", made_up.results())
    else:
        (folder / f"{name}.jsonl").write_text(content, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["report", str(folder)])
    monkeypatch.delitem(sys.modules, "jat_graph.lab.studies.report")
    with pytest.raises(SystemExit, match=f"^error: .*{message}"):
        runpy.run_module("jat_graph.lab.studies.report", run_name="__main__")
    assert not folder.with_suffix(".md").exists()
