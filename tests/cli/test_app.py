"""The command line as a whole: help, version, and one line for what went wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from transformers import AutoConfig, AutoTokenizer, BertForSequenceClassification

from jat_graph import __version__, cli
from jat_graph.looking.cli import app as commands
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("demo", "inspect", "calibrate", "plot", "view", "probe")


def start(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "jat_graph", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_every_command(run: Run) -> None:
    shown = run("--help").output
    for command in COMMANDS:
        assert command in shown
    assert "..." not in shown.partition("Commands:")[2]  # each in one line of 80 columns
    assert run("--version").output.strip() == f"jat-graph {__version__}"


def test_help_is_there_before_torch(tmp_path: Path) -> None:
    code = "import sys, jat_graph.looking.cli.app; sys.exit('torch' in sys.modules)"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("heads must be 1, got 2\nmore"), 2, "heads must be 1, got 2"),
        (ImportError("pictures need matplotlib"), 2, "pictures need matplotlib"),
        (FileNotFoundError(2, "No such file", "a.txt"), 2, "a.txt: No such file"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (RuntimeError("CUDA out of memory. Tried"), 1, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("a shape is wrong"), None, ""),  # a bug is not hidden
    ],
)
def test_errors_are_one_line(
    error: BaseException,
    code: int | None,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(fail)
    monkeypatch.setattr(commands, "app", app)
    monkeypatch.setattr(sys, "argv", ["jat-graph"])
    with pytest.raises(RuntimeError if code is None else SystemExit) as caught:
        cli.main()
    assert getattr(caught.value, "code", None) == code
    shown = capsys.readouterr().err.strip()
    assert line in shown
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("trian", "No such command 'trian'"),
        ("inspect --modle x", "No such option: --modle"),
        ("inspect", "Missing option '--model'"),
        ("inspect --model x --layer two", "got 'two'"),
        ("inspect --model x --tokens 5", "must be FIRST:END"),
        ("inspect --model x", "text must be given"),
        ("inspect --model x --file missing.txt", "missing.txt: No such file"),
        ("inspect --model x --file latin.txt", "latin.txt must be UTF-8"),
        ("inspect --model x --file empty.txt", "got empty ones"),
        ("inspect --model x --file rows.csv", "got a table, .csv: rows.csv"),
        ("inspect --model x --text a\udc80", "must be Unicode text, got a lone surrogate at 1"),
        (
            "inspect --model x --text book --json none/x.json",
            "none/x.json must be a file in an exist",
        ),
        ("inspect --model a/b/c --text book", "model must be a folder or a Hub name"),
        ("inspect --model MODEL --text book --config newer.json", "version must be at most"),
        ("inspect --model MODEL --text book --set heads", "--set must be NAME=VALUE"),
        ("inspect --model MODEL --text book --set nonsense=1", "unknown config field 'nonsense'"),
        ("inspect --model MODEL --text book --set heads=[9]", "head 9"),
        ("inspect --model MODEL --text book --layer 7", "layer 7"),
        ("inspect --model MODEL --text book --tokens 1:90", "tokens must lie in a text of 3"),
        (
            "inspect --model MODEL --text book --fidelity --config stones",
            "graph must be 'clusters'",
        ),
        ("inspect --model MODEL --text book --fidelity --layer 7", "layer 7"),
        ("inspect --model MODEL --text book --fidelity --tokens 1:2", "leave out --tokens"),
        (
            "inspect --model MODEL --text book --fidelity --picture x.gif",
            "--picture must be a file",
        ),
        ("inspect --model MODEL --text book --picture x.png", "--picture needs --fidelity"),
        ("calibrate --model MODEL --text book --tolerance 0", "tolerance must be above 0"),
        ("calibrate --model MODEL --text book --tolerance 1 --density 0.1", "density needs graph"),
        (
            "calibrate --model MODEL --text book --tolerance 1 --config paper",
            "tolerance needs graph",
        ),
        ("calibrate --model MODEL --text book --density 3", "density must be in (0, 1)"),
        ("calibrate --model MODEL --text book --config stones", "to calibrate, got 'stones'"),
        ("plot -o x.png", "plot needs --model or --pattern"),
        ("plot -o x.gif --pattern causal", "--output must be a file name ending in"),
        ("plot -o x.png --pattern nonsense:3", "pattern must be one of"),
        ("plot -o x.png --pattern causal --length 99999", "--length must be"),
        ("plot -o none/x.png --model MODEL --text book", "none/x.png must be a file in an exist"),
        ("plot -o x.png --model MODEL --text book --text more", "plot draws one text, got 2"),
        (
            "plot -o x.png --model MODEL --text book --config clustered --layer 1",
            "plot needs one --layer and one --head that read by clusters",
        ),
        (
            "calibrate --model MODEL --text book --config clustered --density 0.1",
            "give a tolerance",
        ),
        ("inspect --model MODEL --text book --config clustered --layer 7", "layer 7"),
        ("view --model x", "text must be given"),
        ("view --model x --treebank missing.conllu", "missing.conllu: No such file"),
        ("view --model x --treebank tree.conllu --sentences 1:9", "--sentences must be of 1 to 1"),
        ("view --model x --text book -o none/x.html", "none/x.html must be a file in an exist"),
        ("demo --output latin.txt", "'latin.txt' is a file"),
        ("demo --steps 0", "got '0'"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(
    words: str,
    line: str,
    tiny_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "newer.json").write_text('{"version": 99}')
    (tmp_path / "tree.conllu").write_text("1\tbook\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n")
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    given = [tiny_model if word == "MODEL" else word for word in words.split()]
    monkeypatch.setattr(sys, "argv", ["jat-graph", *given])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    shown = capsys.readouterr()
    assert caught.value.code == 2
    assert not shown.out
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("jat-graph: error: ")
    assert line in shown.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("broken", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_broken_model_is_one_line(broken: str, tiny_model: str, tmp_path: Path, run: Run) -> None:
    for file in Path(tiny_model).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / broken).write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"^model ") as caught:
        run("inspect", "--model", tmp_path, "--text", "book")
    assert "\n" not in str(caught.value)


def test_no_traceback_from_a_real_process(tmp_path: Path, tiny_model: str) -> None:
    wrong = start("inspect", "--model", tiny_model, "--file", "missing.txt", folder=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr == "jat-graph: error: missing.txt: No such file or directory\n"
    assert "pencil? ?" in " ".join(start("inspect", "--help", folder=tmp_path).stdout.split())
    right = start("inspect", "--model", tiny_model, "--text", "the book", folder=tmp_path)
    assert right.returncode == 0
    assert "density" in right.stdout
    first, second = right.stderr.splitlines()
    assert first.startswith("Threshold 6 does not fit")
    assert second == "The model is shown with the paper's heads; --config names others."


def test_weights_that_a_folder_lacks_are_named_and_a_classifier_is_no_news(
    tiny_model: str, tmp_path: Path
) -> None:
    config = AutoConfig.from_pretrained(tiny_model)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "model")
    call = ("inspect", "--model", "model", "--text", "the book", "--config", "stones")
    call += ("--set", "strength=0.5")
    assert start(*call, folder=tmp_path).stderr == ""
    config.num_hidden_layers += 1
    config.save_pretrained(tmp_path / "model")
    lost = start(*call, folder=tmp_path).stderr
    assert lost.startswith("model lacks weights, which are random now: encoder.layer.")
    assert lost.count("\n") == 1
