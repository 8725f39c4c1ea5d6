"""Parts of a page, and the files that it is made from."""

import sys
from pathlib import Path

import pytest

from jat_graph.lab.page import page, picture, result_files, run_command, section


def test_a_page_is_its_heading_and_its_sections() -> None:
    first = section("One", "A claim.", picture("A line", "one.png"))
    assert first == "\n## One\n\nA claim.\n\n![A line](one.png)\n"
    assert page("# Page\n", [first, section("Two")]) == f"# Page\n{first}\n## Two\n"
    assert page("# Page\n", []) == "# Page\n\nNo results are here yet.\n"


def test_files_come_by_name(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "c.txt"):
        (tmp_path / name).touch()
    assert result_files(tmp_path, ".json") == [tmp_path / "a.json", tmp_path / "b.json"]
    with pytest.raises(ValueError, match="needs a folder of results, got nowhere"):
        result_files(Path("nowhere"), ".json")


@pytest.mark.parametrize(("arguments", "folder"), [([], "default"), (["mine"], "mine")])
def test_the_command_takes_a_folder_or_its_own(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], folder: str
) -> None:
    written = []
    monkeypatch.setattr(sys, "argv", ["report", *arguments])
    run_command(lambda name: written.append(name) or Path(name), "default")
    assert written == [folder]


def test_what_is_wrong_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: str) -> Path:
        raise ValueError("no good")

    monkeypatch.setattr(sys, "argv", ["report"])
    with pytest.raises(SystemExit, match=r"^error: no good$"):
        run_command(fail, "default")
