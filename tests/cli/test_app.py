"""The command line as a whole: help, version, and one line for what went wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from transformers import AutoConfig, AutoTokenizer, BertForSequenceClassification

from jat_graph import __version__
from jat_graph.looking import cli
from jat_graph.looking.cli import app as commands
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("demo", "inspect", "calibrate", "plot", "view", "probe")


def start(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python as a process of its own."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_every_command_before_torch_is_there(run: Run, tmp_path: Path) -> None:
    shown = run("--help").output
    for command in COMMANDS:
        assert command in shown
    assert "..." not in shown.partition("Commands:")[2]  # each in one line of 80 columns
    assert run("--version").output.strip() == f"jat-graph {__version__}"
    code = "import sys, jat_graph.looking.cli.app; sys.exit('torch' in sys.modules)"
    assert start("-c", code, folder=tmp_path).returncode == 0


def fails(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[object, str]:
    """Run the command line to its error, which is one line; return the exit code and the line."""
    monkeypatch.setattr(sys, "argv", ["jat-graph", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.count("\n") == 1
    return caught.value.code, shown.err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("heads must be 1, got 2\nmore"), 2, "heads must be 1, got 2"),
        (ImportError("pictures need matplotlib"), 2, "pictures need matplotlib"),
        (FileNotFoundError(2, "No such file", "a.txt"), 2, "a.txt: No such file"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (RuntimeError("CUDA out of memory. Tried"), 1, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_are_one_line(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(fail)
    monkeypatch.setattr(commands, "app", app)
    got, said = fails([], capsys, monkeypatch)
    assert got == code and line in said
    error = RuntimeError("a shape is wrong")  # a bug is not hidden
    with pytest.raises(RuntimeError, match="a shape is wrong"):
        cli.main()


INSPECT, CALIBRATE = "inspect --model M --text book", "calibrate --model M --text book"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("trian", "No such command 'trian'"),
        ("inspect --modle x", "No such option: --modle"),
        ("inspect", "Missing option '--model'"),
        ("inspect --model x --layer two", "got 'two'"),
        ("inspect --model x --tokens 5", "must be FIRST:END"),
        ("inspect --model x --rank", "text must be given"),
        ("inspect --model x --file missing.txt", "missing.txt: No such file"),
        ("inspect --model x --file latin.txt", "latin.txt must be UTF-8"),
        ("inspect --model x --file empty.txt", "got empty ones"),
        ("inspect --model x --file rows.csv", "got a table, .csv: rows.csv"),
        ("inspect --model x --text a\udc80", "must be Unicode text, got a lone surrogate at 1"),
        ("inspect --model x --text a --json none/x.json", "none/x.json must be a file in an exist"),
        ("inspect --model a/b/c --text book", "model must be a folder or a Hub name"),
        (f"{INSPECT} --config newer.json", "version must be at most"),
        (f"{INSPECT} --set heads", "--set must be NAME=VALUE"),
        (f"{INSPECT} --set nonsense=1", "unknown config field 'nonsense'"),
        (f"{INSPECT} --set heads=[9]", "head 9"),
        (f"{INSPECT} --layer 7", "layer 7"),
        (f"{INSPECT} --tokens 1:90", "tokens must lie in a text of 3"),
        (f"{INSPECT} --fidelity --config stones", "graph must be 'clusters'"),
        (f"{INSPECT} --fidelity --layer 7", "leave out --layer and --head"),
        (f"{INSPECT} --fidelity --tokens 1:2", "leave out --tokens"),
        (f"{INSPECT} --fidelity --picture x.gif", "--picture must be a file"),
        (f"{INSPECT} --picture x.png", "--picture needs --fidelity"),
        (f"{INSPECT} --max-length 200", "--max-length needs --fidelity"),
        (f"{INSPECT} --config clustered --layer 7", "layer 7"),
        (f"{CALIBRATE} --tolerance 0", "tolerance must be above 0"),
        (f"{CALIBRATE} --tolerance 1 --density 0.1", "density needs graph"),
        (f"{CALIBRATE} --tolerance 1 --config paper", "tolerance needs graph"),
        (f"{CALIBRATE} --density 3", "density must be in (0, 1)"),
        (f"{CALIBRATE} --config stones", "to calibrate, got 'stones'"),
        (f"{CALIBRATE} --config clustered --density 0.1", "give a tolerance"),
        ("plot -o x.png", "plot needs --model or --pattern"),
        ("plot -o x.gif --pattern causal", "--output must be a file name ending in"),
        ("plot -o x.png --pattern nonsense:3", "pattern must be one of"),
        ("plot -o x.png --pattern causal --length 99999", "--length must be"),
        ("plot -o none/x.png --model M --text a", "none/x.png must be a file in an exist"),
        ("plot -o x.png --model M --text a --text b", "plot draws one text, got 2"),
        ("plot -o x.png --model M --text a --config clustered", "one --layer and one --head that"),
        ("view --model x", "text must be given"),
        ("view --model x --treebank missing.conllu", "missing.conllu: No such file"),
        ("view --model x --treebank tree.conllu --sentences 1:9", "--sentences must be of 1 to 1"),
        ("view --model x --text book -o none/x.html", "none/x.html must be a file in an exist"),
        ("demo --output latin.txt", "'latin.txt' is a file"),
        ("demo --length 1", "got '1'"),
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
    given = [tiny_model if word == "M" else word for word in words.split()]
    code, said = fails(given, capsys, monkeypatch)
    assert code == 2
    assert said.startswith("jat-graph: error: ") and line in said
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("broken", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_broken_model_is_one_line(broken: str, tiny_model: str, tmp_path: Path, run: Run) -> None:
    for file in Path(tiny_model).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / broken).write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"^model ") as caught:
        run("inspect", "--model", tmp_path, "--text", "book")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_no_traceback_from_a_real_process(tmp_path: Path, tiny_model: str) -> None:
    call = ("-m", "jat_graph", "inspect")
    wrong = start(*call, "--model", tiny_model, "--file", "missing.txt", folder=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr == "jat-graph: error: missing.txt: No such file or directory\n"
    assert "pencil? ?" in " ".join(start(*call, "--help", folder=tmp_path).stdout.split())
    right = start(*call, "--model", tiny_model, "--text", "the book", folder=tmp_path)
    assert right.returncode == 0
    assert "density" in right.stdout
    first, second = right.stderr.splitlines()
    assert first.startswith("Threshold 6 does not fit")
    assert second == "The model is shown with the paper's heads; --config names others."


@pytest.mark.slow
def test_weights_that_a_folder_lacks_are_named_and_a_classifier_is_no_news(
    tiny_model: str, tmp_path: Path
) -> None:
    config = AutoConfig.from_pretrained(tiny_model)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "model")
    call = ("-m", "jat_graph", "inspect", "--model", "model", "--text", "the book")
    call += ("--config", "stones", "--set", "strength=0.5")
    assert start(*call, folder=tmp_path).stderr == ""
    config.num_hidden_layers += 1
    config.save_pretrained(tmp_path / "model")
    lost = start(*call, folder=tmp_path).stderr
    assert lost.startswith("model lacks weights, which are random now: encoder.layer.")
    assert lost.count("\n") == 1
