"""Screens that lack letters: help, results, bars and errors come, and files are written."""

import json
import runpy
import sys
from collections.abc import Callable
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from pytest import MonkeyPatch as Monkey

from jat_graph.core.progress import track_progress
from jat_graph.looking import cli

COMMANDS = ("demo", "inspect", "calibrate", "plot", "view", "probe", "probe heads")
SCRIPTS = [
    f"examples.{path.stem}"
    for path in sorted(Path(__file__).resolve().parents[2].glob("examples/*.py"))
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
]


def run(screen: TextIOWrapper, *words: object, work: Callable[[], object] = cli.main) -> str:
    """Do some work with words on the command line; return its exit code and all that is shown."""
    with Monkey.context() as patch:  # in the test itself, as pytest has its own screen
        patch.setattr(sys, "stdout", screen)
        patch.setattr(sys, "stderr", screen)
        patch.setattr(sys, "argv", ["jat-graph", *map(str, words)])
        patch.setenv("TERM", "xterm")
        with pytest.raises(SystemExit) as caught:
            work()
            sys.exit()
    screen.flush()
    # Where a screen has ASCII alone, typer thinks that nobody meant it, and writes UTF-8.
    shown = screen.buffer.getvalue().decode("utf-8", errors="replace")
    return f"{caught.value.code or 0}: {shown}"


@pytest.fixture(params=["cp1252", "ascii"])
def screen(request: pytest.FixtureRequest) -> TextIOWrapper:
    return TextIOWrapper(BytesIO(), encoding=request.param)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # what other tests have imported
@pytest.mark.parametrize("name", [*COMMANDS, *SCRIPTS])
def test_all_have_their_help(name: str, screen: TextIOWrapper) -> None:
    script = partial(runpy.run_module, name, run_name="__main__", alter_sys=True)
    words, work = ([], script) if name in SCRIPTS else (name.split(), cli.main)
    shown = run(screen, *words, "--help", work=work)
    assert shown.startswith("0") and "--help" in shown


def test_results_are_there(screen: TextIOWrapper, tiny_model: str, tmp_path: Path) -> None:
    words, file = ["--model", tiny_model, "--text", "the ρ book 😀 costs"], tmp_path / "a.json"
    assert run(screen, "inspect", *words, "--json", file).startswith("0")
    assert "😀" in json.loads(file.read_text(encoding="utf-8"))["text"]
    assert "layer 0" in run(screen, "calibrate", *words, *words[2:], "--output", file)
    assert json.loads(file.read_text(encoding="utf-8"))["version"]


def test_errors_and_bars_are_there(screen: TextIOWrapper, monkeypatch: Monkey) -> None:
    said = run(screen, "inspect", "--model", "./θ₆", "--text", "book")
    assert said.startswith("2: jat-graph: error: model must be a") and said.count("\n") == 1
    monkeypatch.setattr(screen, "isatty", lambda: True)
    bar = track_progress("ab", "θ of heads", 2)
    assert "? of heads" in run(screen, work=lambda: list(bar))


def test_files_come_first(tiny_model: str, tmp_path: Path, monkeypatch: Monkey) -> None:
    file, screen = tmp_path / "a.json", TextIOWrapper(BytesIO())

    def write(text: str) -> int:
        if "layer" in text:  # a warning and the error itself find room
            raise OSError(28, "No space left on device")
        return len(text)

    monkeypatch.setattr(screen, "write", write)
    words = ("--model", tiny_model, "--text", "book", "--json", file)
    assert run(screen, "inspect", *words).startswith("1")
    assert json.loads(file.read_text(encoding="utf-8"))["text"] == "book"
