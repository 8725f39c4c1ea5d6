"""train and eval, thin over jat_graph.training."""

import json
import logging
from pathlib import Path
from typing import Any, NoReturn

import pytest
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import TripletConfig, attach
from jat_graph.inspection import calibration
from jat_graph.tasks import Task
from jat_graph.training.trainer import TaskTrainer
from tests.cli.conftest import Run

QUICK = ("--epochs", "1", "--batch-size", "16", "--max-length", "16", "--device", "cpu")


def test_without_a_terminal_a_message_is_one_line(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="nosuch"):
        run("bench", "nosuch")
    said = "step 1 of 3, " * 20
    logging.getLogger("jat_graph").warning(said)
    assert capsys.readouterr().err == f"{said}\n"


def test_train_then_eval(run: Run, tiny_model: str, cola_dir: str, tmp_path: Path) -> None:
    task = ("--task", "cola", "--data-dir", cola_dir)
    output = tmp_path / "run"
    shown = run(
        "train", "--model", tiny_model, *task, "--output", output, *QUICK, "--seed", "3",
        "--heads", "2", "--threshold", "4", "--trainer", "lr_scheduler_type=cosine",
        "--trainer", "max_grad_norm=0.5",
    ).output  # fmt: skip
    assert shown.index("3 steps and scores, by one timed step") < shown.index("matthews")
    result = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert result["options"]["seed"] == 3
    assert result["options"]["trainer"] == {"lr_scheduler_type": "cosine", "max_grad_norm": 0.5}
    assert JatConfig.from_dict(result["config"]) == JatConfig(PairGraph(threshold=4.0), heads=2)
    score = result["metrics"]["validation"]["matthews"]
    assert f"{score:.4f}" in shown
    scores = tmp_path / "scores.json"
    words = ("eval", "--model", output / "model", *task, "--device", "cpu", "--json", scores)
    assert "max_length=16, as in training" in run(*words).stderr
    assert json.loads(scores.read_text())["metrics"] == result["metrics"]
    assert "as in training" not in run(*words, "--max-length", "32").stderr


def test_train_with_stones_then_eval_and_inspect(
    run: Run, tiny_model: str, cola_dir: str, tmp_path: Path
) -> None:
    task, output, text = (
        ("--task", "cola", "--data-dir", cola_dir),
        tmp_path / "run",
        tmp_path / "t",
    )
    run(
        "train", "--model", tiny_model, *task, "--output", output, *QUICK, "--preset", "stones",
        "--heads", "1,3", "--strength", "learned,0.5,learned", "--strength-lr", "0.1",
        "--trainer", "optim=adafactor",
    )  # fmt: skip
    result = json.loads((output / "results.json").read_text(encoding="utf-8"))
    config = JatConfig.from_dict(result["config"])
    assert config == JatConfig.stones(heads=(1, 3), strength=("learned", 0.5, "learned"))
    assert result["options"]["strength_lr"] == 0.1
    model, scores, report = output / "model", tmp_path / "scores.json", tmp_path / "report.json"
    run(
        "eval", "--model", model, *task, "--max-length", "16", "--device", "cpu", "--json", scores
    )  # fmt: skip
    assert json.loads(scores.read_text())["metrics"] == result["metrics"]
    text.write_text("the book costs more than the pencil")
    run("inspect", "--model", model, "--text", text, "--json", report)
    found = json.loads(report.read_text(encoding="utf-8"))["heads"]
    assert len(found) == 4
    for head in found:
        query, key, value = head["strengths"][0]
        assert abs(query) > 1e-3 and key == 0.5 and abs(value) > 1e-3


def test_train_without_jump_heads(run: Run, tiny_model: str, cola_dir: str, tmp_path: Path) -> None:
    run(
        "train", "--model", tiny_model, "--task", "cola", "--data-dir", cola_dir,
        "--output", tmp_path / "run", *QUICK, "--base",
    )  # fmt: skip
    assert json.loads((tmp_path / "run" / "results.json").read_text())["config"] is None


def test_triplet_heads_against_the_base(
    run: Run, tiny_model: str, cola_dir: str, tmp_path: Path
) -> None:
    run(
        "train", "--model", tiny_model, "--task", "cola", "--data-dir", cola_dir,
        "--output", tmp_path / "runs", *QUICK, "--compare", "--seeds", "1",
        "--triplet", "partner", "--triplet-layers", "1", "--held-out", "0.25", "--depth", "3",
    )  # fmt: skip
    arms = json.loads((tmp_path / "runs" / "results.json").read_text())["arms"]
    assert list(arms) == ["base", "triplet"]
    assert arms["triplet"]["config"] == TripletConfig(layers=(1,)).to_dict()
    run_of_it = arms["triplet"]["runs"][0]
    assert run_of_it["options"]["depth"] == 3 and list(run_of_it["metrics"]) == ["held_out"]


def test_heads_of_both_kinds(run: Run, tiny_model: str, cola_dir: str, tmp_path: Path) -> None:
    task, folder = ("--task", "cola", "--data-dir", cola_dir), tmp_path / "run"
    words = ("--heads", "1", "--triplet", "sum")
    run(
        "train", "--model", tiny_model, *task, "--output", folder, *QUICK, *words,
        "--density", "0.2",
    )  # fmt: skip
    result = json.loads((folder / "results.json").read_text())
    jump = JatConfig.from_dict(result["config"]["jat"])
    assert jump.heads == 1 and isinstance(jump.graph.threshold, tuple)
    assert result["config"]["triplet"] == TripletConfig(pairs="sum").to_dict()
    saved, scores = json.loads((folder / "model" / "config.json").read_text()), tmp_path / "s.json"
    assert {name: saved[name] for name in ("jat", "triplet")} == result["config"]
    run("eval", "--model", folder / "model", *task, *QUICK[-4:], "--json", scores)
    assert json.loads(scores.read_text())["metrics"] == result["metrics"]
    run(
        "train", "--model", tiny_model, *task, "--output", tmp_path / "runs", *QUICK, *words,
        "--compare", "--seeds", "1",
    )  # fmt: skip
    arms = json.loads((tmp_path / "runs" / "results.json").read_text())["arms"]
    assert list(arms) == ["base", "both"]
    assert arms["both"]["config"]["jat"] == JatConfig(heads=1).to_dict()


def test_a_model_with_triplet_heads_keeps_them(
    run: Run, tiny_model: str, cola_dir: str, tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    attach(AutoModel.from_pretrained(tiny_model), TripletConfig()).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    words = ("train", "--model", folder, "--task", "cola", "--data-dir", cola_dir, *QUICK)
    with pytest.raises(ValueError, match="has jump heads or triplet heads already"):
        run(*words, "--output", tmp_path / "run", "--triplet", "sum")
    run(*words, "--output", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert TripletConfig.from_dict(config["triplet"]) == TripletConfig()


def test_train_and_eval_on_long_texts(run: Run, tiny_model: str, tmp_path: Path) -> None:
    sentences = ["the book is a book " * 16, "not less than a pencil " * 16]
    rows = [f"a\t{row % 2}\t\t{sentences[row % 2]}\n" for row in range(8)]
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("".join(rows), encoding="utf-8")
    task = ("--task", "cola", "--data-dir", tmp_path, "--max-length", "80", "--device", "cpu")
    output = tmp_path / "run"
    run(
        "train", "--model", tiny_model, *task, "--output", output, "--epochs", "1",
        "--pattern", "window:16+global:1", "--key-selection", "significance",
        "--attention-dropout", "0", "--batch-size", "4",
    )  # fmt: skip
    result = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert result["config"]["pattern"] == "window:16+global:1"
    assert result["options"]["attention_dropout"] == 0.0
    scores = tmp_path / "scores.json"
    run("eval", "--model", output / "model", *task, "--json", scores)
    assert json.loads(scores.read_text())["metrics"] == result["metrics"]


def test_train_a_decoder_from_scratch(run: Run, tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    chorale = [[60, 64, 67]] * 6
    chorales = {"train": [chorale] * 4, "valid": [chorale], "test": [chorale]}
    (tmp_path / "jsb-chorales-16th.json").write_text(json.dumps(chorales))
    shown = run(
        "train", "--model", tmp_path, "--task", "chorales", "--data-dir", tmp_path,
        "--output", tmp_path / "run", *QUICK, "--from-scratch", "--base",
    ).output  # fmt: skip
    assert "perplexity" in shown and "bits_per_token" in shown


def test_compare_arms_from_files(run: Run, tiny_model: str, cola_dir: str, tmp_path: Path) -> None:
    JatConfig(PairGraph(threshold=4.0), heads=1).save(tmp_path / "one.json")
    JatConfig(PairGraph(threshold=4.0), heads=3).save(tmp_path / "three.json")
    shown = run(
        "train", "--model", tiny_model, "--task", "cola", "--data-dir", cola_dir,
        "--output", tmp_path / "runs", *QUICK, "--compare", "--seeds", "2", "--seed", "5",
        "--arm", f"one={tmp_path / 'one.json'}", "--arm", f"three={tmp_path / 'three.json'}",
    ).output  # fmt: skip
    result = json.loads((tmp_path / "runs" / "results.json").read_text())
    assert list(result["arms"]) == ["base", "one", "three"]
    assert result["seeds"] == [5, 6]
    assert result["arms"]["three"]["config"]["heads"] == 3
    assert "three" in shown
    assert " ".join(result["verdicts"][0].split()[:3]) in " ".join(shown.split())


def test_compare_with_a_calibrated_arm(
    run: Run, tiny_model: str, cola_dir: str, tmp_path: Path
) -> None:
    run(
        "train", "--model", tiny_model, "--task", "cola", "--data-dir", cola_dir,
        "--output", tmp_path / "runs", *QUICK, "--compare", "--seeds", "1", "--density", "0.2",
    )  # fmt: skip
    arms = json.loads((tmp_path / "runs" / "results.json").read_text())["arms"]
    assert list(arms) == ["base", "jump"]
    assert len(arms["jump"]["config"]["threshold"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "nothing"], "task must be one of cola, .* got 'nothing'"),
        (["--task", "cola", "--base", "--compare"], "exclude each other"),
        (
            ["--task", "cola", "--triplet", "sum", "--base"],
            "--triplet takes neither --base nor --arm",
        ),
        (
            ["--task", "cola", "--triplet", "sum", "--heads", "2"],
            "head 1 of layer 0 is a jump head",
        ),
        (["--task", "cola", "--triplet-heads", "3"], "--triplet-layers need --triplet"),
        (["--task", "cola", "--triplet", "mean"], "must be one of partner, sum, max, got 'mean'"),
        (["--task", "cola", "--held-out", "1"], "held_out must be a share below 1, got 1.0"),
        (["--task", "cola", "--depth", "0"], "depth must be a positive integer, got 0"),
        (["--task", "cola", "--fully-sharded"], "fully_sharded needs GPUs, got the CPU|start them"),
        (["--task", "cola", "--base", "--pattern", "window:4"], "--base takes neither --density"),
        (["--task", "cola", "--base", "--density", "0.1"], "--base takes neither --density"),
        (["--task", "cola", "--arm", "a=b.json"], "--arm needs --compare"),
        (
            ["--task", "cola", "--compare", "--arm", "a=b.json", "--heads", "2"],
            "--arm takes its settings from its file",
        ),
        (["--task", "cola", "--compare", "--arm", "a"], "--arm must be NAME=FILE.json, got 'a'"),
        (["--task", "cola", "--compare", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--task", "cola", "--pattern", "widow:3"], "widow"),
        (["--task", "cola", "--pattern", "window:0"], "must be .* got 0"),
        (["--task", "cola", "--attention-dropout", "2"], "attention_dropout must be a share below"),
        (["--task", "cola", "--trainer", "optim"], "--trainer must be NAME=VALUE, got 'optim'"),
        (["--task", "cola", "--trainer", "seed=1"], "trainer must leave seed to the option seed"),
        (["--task", "cola", "--strength-lr", "-1"], "strength_lr must be a finite number of at"),
        (
            ["--task", "cola", "--preset", "stones", "--nodes", "selected"],
            "nodes needs graph='pairs', got 'sel",
        ),
        (["--task", "cola", "--graph", "stones", "--density", "0.1"], "must be 'pairs' to calib"),
        (["--task", "cola", "--epochs", "0"], "epochs must be a positive integer, got 0"),
    ],
)
def test_wrong_use_is_named(
    run: Run, tiny_model: str, cola_dir: str, tmp_path: Path, arguments: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(
            "train", "--model", tiny_model, "--data-dir", cola_dir,
            "--output", tmp_path / "run", *arguments,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--density", "3"], r"density must be in \(0, 1\), got 3.0"),
        (["--heads", "13"], "needs head 12, but the model has 4 heads"),
        (["--heads", "13", "--density", "0.1"], "needs head 12, but the model has 4 heads"),
        (["--layers", "1", "--depth", "1"], "needs layer 1, but the model has 1 layers"),
        (["--heads", "13", "--compare"], "needs head 12, but the model has 4 heads"),
        (["--compare", "--seeds", "0", "--density", "0.1"], "--seeds must be at least 1, got 0"),
    ],
)
def test_refused_before_data_and_weights_are_read(
    run: Run,
    tiny_model: str,
    cola_dir: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    def work(*_: object, **__: object) -> NoReturn:
        raise AssertionError("work before it was refused")

    monkeypatch.setattr(Task, "load", work)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", work)
    with pytest.raises(ValueError, match=message):
        run(
            "train", "--model", tiny_model, "--task", "cola", "--data-dir", cola_dir,
            "--output", tmp_path / "new" / "run", *QUICK, *arguments,
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compare", [[], ["--compare", "--seeds", "1"]])
def test_a_run_without_data_leaves_no_empty_folder(
    run: Run, tiny_model: str, tmp_path: Path, compare: list[str]
) -> None:
    with pytest.raises(OSError, match="nowhere does not exist"):
        run(
            "train", "--model", tiny_model, "--task", "cola", "--data-dir", tmp_path / "nowhere",
            "--output", tmp_path / "new" / "run", *QUICK, *compare,
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_a_run_is_refused_before_thresholds_are_measured(
    run: Run, tiny_model: str, cola_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "train", "--model", tiny_model, "--task", "cola", "--data-dir", cola_dir,
        "--output", tmp_path / "run", *QUICK,
    )  # fmt: skip
    run(*words, "--density", "0.2")
    first = json.loads((tmp_path / "run" / "results.json").read_text())

    def measure(*_: object, **__: object) -> NoReturn:
        raise AssertionError("measured again")

    monkeypatch.setattr(calibration, "calibrate", measure)
    with pytest.raises(ValueError, match="holds a run already"):
        run(*words, "--density", "0.2")
    run(*words, "--density", "0.2", "--resume")
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == first
    with pytest.raises(ValueError, match=r"holds a run with --density 0.2, not 0.3"):
        run(*words, "--density", "0.3", "--resume")
    with pytest.raises(ValueError, match=r"holds a run with --learning-rate 2e-05, not 0.01"):
        run(*words, "--density", "0.2", "--resume", "--learning-rate", "0.01")
    with pytest.raises(ValueError, match=r"with --trainer max_grad_norm=None, not 0.5"):
        run(*words, "--density", "0.2", "--resume", "--trainer", "max_grad_norm=0.5")
    with pytest.raises(ValueError, match="holds a single run"):
        run(*words, "--density", "0.2", "--compare")


def test_a_file_for_scores_needs_a_folder(run: Run, tmp_path: Path) -> None:
    scores = tmp_path / "none" / "scores.json"
    with pytest.raises(OSError, match="must be a file in a folder that is there"):
        run("eval", "--model", "no-model", "--task", "cola", "--json", scores)


@pytest.mark.parametrize(
    ("options", "step", "words"),
    [
        ([], 2, "with --resume goes on where it was saved last"),
        ([], 1, "nothing was saved yet; the same command with --resume begins again"),
        (["--compare", "--seeds", "1"], 1, "interrupted; the same command goes on where it"),
    ],
)
def test_an_interrupt_says_how_to_go_on_in_one_line(
    run: Run,
    tiny_model: str,
    cola_dir: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    step: int,
    words: str,
) -> None:
    train_step = TaskTrainer.training_step

    def interrupted(self: TaskTrainer, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == step:
            raise KeyboardInterrupt
        return train_step(self, *args, **kwargs)

    line = (
        "train", "--model", tiny_model, "--task", "cola", "--data-dir", cola_dir,
        "--output", tmp_path / "run", *QUICK, "--save-steps", "2", "--base",
    )  # fmt: skip
    if options:
        line = *line[:-1], *options
    with monkeypatch.context() as patch:
        patch.setattr(TaskTrainer, "training_step", interrupted)
        done = run(*line)
    assert done.exit_code == 130
    lines = [text.strip() for text in done.stderr.splitlines()]
    told = ("seed 0, arm", "step ", "about ", "About ", "timing ")
    (said,) = [text for text in lines if not text.startswith(told)]
    assert words in said
    run(*line, *([] if options else ["--resume"]))
    assert (tmp_path / "run" / "results.json").exists()
