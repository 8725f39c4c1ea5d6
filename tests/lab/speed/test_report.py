"""The page is made from the files, and from nothing else."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from jat_graph.lab.page import NO_RESULTS
from jat_graph.lab.speed.report import render_page, write_page
from jat_graph.lab.speed.results import Results, Row, read_results
from tests.lab.speed.support import outcome, results

ROOT = Path(__file__).resolve().parents[3]


def made_up(benchmark: str, device: str = "cpu") -> Results:
    rows = (Row("ours", "theirs", n, outcome(n * 1e-3, n * 2e-3), 1.0) for n in (128, 256))
    return results(benchmark, *rows, device=device)


def test_the_committed_page_is_made_from_the_committed_files() -> None:
    folder = ROOT / "docs" / "benchmarks"
    found = [read_results(path) for path in sorted(folder.glob("*.json"))]
    picture = "pictures/benchmarks.png" if found else None
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page == render_page(found, picture), "run python -m jat_graph.lab.speed.report"


def test_sections_stand_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (tmp_path / "pictures").mkdir()
    plain = made_up("growth")
    kept = replace(plain, machine={**plain.machine, "malloc": "MALLOC_MMAP_MAX_=0"})
    for name, found in (
        ("a", plain),
        ("b", made_up("heads", "cuda")),
        ("c", made_up("heads")),
        ("d", kept),
    ):
        found.save(folder / f"{name}.json")
    page = write_page(folder)
    text = page.read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    kept_by = "## growth, CPU, memory kept by malloc"
    assert headings == ["## heads, CPU", "## heads, GPU", "## growth, CPU", kept_by]
    assert page == tmp_path / "benchmarks.md"
    assert "](pictures/benchmarks.png)" in text
    picture = (tmp_path / "pictures" / "benchmarks.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert write_page(folder).read_text(encoding="utf-8") == text


def test_numbers_on_the_page_follow_the_file() -> None:
    first = render_page([made_up("heads")], None)
    other = results("heads", Row("ours", "theirs", 128, outcome(0.777, 1.0), 1.0))
    assert "0.777" not in first
    assert "| 777 ms (" in render_page([other], None)


def test_an_empty_folder_gives_a_page_without_results(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    assert write_page(tmp_path / "benchmarks").read_text(encoding="utf-8").endswith(NO_RESULTS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "needs a folder of results, got"),
        ("{", "must be JSON"),
        ('{"version": 1, "benchmark": "speed", "settings": {"device": "cpu"}, "machine": {}, '
         '"source": "", "rows": []}', "benchmark must be one of"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, message: str
) -> None:
    folder = tmp_path / "benchmarks"
    if content is not None:
        folder.mkdir()
        (folder / "bad.json").write_text(content, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["report", str(folder)])
    monkeypatch.delitem(sys.modules, "jat_graph.lab.speed.report")
    with pytest.raises(SystemExit, match=f"^error: .*{message}"):
        runpy.run_module("jat_graph.lab.speed.report", run_name="__main__")
    assert not (tmp_path / "benchmarks.md").exists()
