"""The command line as a whole: help, version, and one line for what went wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from jat_graph import __version__, cli
from jat_graph.cli import app as commands
from tests.cli.conftest import run, tiny_model

__all__ = ["run", "tiny_model"]

COMMANDS = ("demo", "train", "eval", "inspect", "calibrate", "plot", "view")


def test_help_lists_every_command_without_its_python_arguments(run) -> None:
    shown = run("--help").output
    for command in COMMANDS:
        assert command in shown
        assert "Args" not in run(command, "--help").output


def test_version(run) -> None:
    assert run("--version").output.strip() == f"jat-graph {__version__}"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("heads must be 1, got 2\nmore"), 2, "heads must be 1, got 2"),
        (ImportError("pictures need matplotlib"), 2, "pictures need matplotlib"),
        (FileNotFoundError(2, "No such file or directory", "a.txt"), 1,
         "a.txt: No such file or directory"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (OSError("output_dir x must be a folder"), 1, "output_dir x must be a folder"),
        (RuntimeError("CUDA out of memory. Tried"), 1, "out of memory; use a smaller batch size"),
    ],
)  # fmt: skip
def test_errors_are_one_line(
    error: Exception,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    app = typer.Typer()
    app.command()(fail)
    monkeypatch.setattr(commands, "app", app)
    monkeypatch.setattr(sys, "argv", ["jat-graph"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == code
    shown = capsys.readouterr().err.strip()
    assert shown.startswith(f"jat-graph: error: {line}")
    assert "\n" not in shown


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a shape is wrong")

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(fail)
    monkeypatch.setattr(commands, "app", app)
    monkeypatch.setattr(sys, "argv", ["jat-graph"])
    with pytest.raises(RuntimeError, match="a shape is wrong"):
        cli.main()


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["inspect", "--model", "MODEL", "--text", "missing.txt"], 1,
         "missing.txt: No such file or directory"),
        (["inspect", "--model", "nothing", "--text", "good.txt"], 2, "model must be a folder"),
        (["inspect", "--model", "MODEL", "--text", "latin.txt"], 2,
         "text file latin.txt must be UTF-8"),
        (["inspect", "--model", "MODEL", "--text", "good.txt", "--config", "newer.json"], 2,
         "config version must be at most 2"),
        (["plot", "--model", "MODEL", "--sentence", "book", "--layer", "0", "--head", "0",
          "--output", "nowhere/x.png"], 1, "nowhere"),
        (["train", "--model", "MODEL", "--task", "cola", "--data-dir", "nowhere",
          "--max-length", "16"], 1, "nowhere"),
    ],
)  # fmt: skip
def test_no_traceback_from_a_real_process(
    tmp_path: Path, tiny_model: str, arguments: list[str], code: int, line: str
) -> None:
    (tmp_path / "good.txt").write_text("the book", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "newer.json").write_text('{"version": 99}', encoding="utf-8")
    words = [tiny_model if word == "MODEL" else word for word in arguments]
    result = subprocess.run(
        [sys.executable, "-m", "jat_graph.cli", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("jat-graph: error: ")
    assert line in last


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("trian", "No such command 'trian'. Did you mean 'train'?"),
        ("train --modle x", "No such option: --modle (Possible options: --model, --nodes)"),
        ("train", "Missing option '--model'"),
        ("probe distance", "Missing option '--treebank'"),
        ("train --model", "Option '--model' requires an argument"),
        ("eval --model x --task cola more", "Got unexpected extra argument(s) (more)"),
        ("plot -o x.png --pattern (window:4|global:1)&causal",
         "pattern must join patterns with +, not '|', got '(window:4|global:1)&causal'"),
    ],
)  # fmt: skip
def test_usage_errors_are_one_line(
    words: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _usage_error(words, monkeypatch, capsys) == line


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [("epochs", "many", "integer"), ("learning-rate", "1e-", "number")],
)
def test_a_value_of_the_wrong_type_is_shown(
    option: str,
    value: str,
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = f"train --model x --task cola --{option} {value}"
    line = _usage_error(words, monkeypatch, capsys)
    assert line == f"--{option} must be a valid {wanted}, got {value!r}"


def _usage_error(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What is said of words that the program does not take, after its name."""
    monkeypatch.setattr(sys, "argv", ["jat-graph", *words.split()])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    shown = capsys.readouterr()
    assert caught.value.code == 2
    assert not shown.out
    assert shown.err.count("\n") == 1
    start, _, line = shown.err.strip().partition("jat-graph: error: ")
    assert not start
    return line
