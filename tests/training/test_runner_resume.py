"""Runs that were interrupted or killed go on exactly; finished ones are left alone."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from jat_graph.config import JatConfig
from jat_graph.training import RunResult, TrainingOptions, train
from jat_graph.training.storage import last_checkpoint
from jat_graph.training.trainer import TaskTrainer
from tests.training.support import JUMP, Options, same_weights

# Arguments of the Trainer that no option of ours is for.
OWN_WAY = {
    "lr_scheduler_type": "cosine",
    "optim": "adafactor",
    "max_grad_norm": 0.1,
    "label_smoothing_factor": 0.1,
}


def same_result(one: RunResult, other: RunResult) -> bool:
    names = ("metrics", "history", "steps", "best_step", "fingerprint", "config")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def interrupt_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    original = TaskTrainer.training_step

    def step(self: TaskTrainer, *args: Any) -> torch.Tensor:
        if self.state.global_step == steps:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(TaskTrainer, "training_step", step)


@pytest.mark.parametrize(
    ("config", "changes", "stop"),
    [
        (JUMP, {}, 4),
        (JUMP, {"save_steps": 2, "group_by_length": True}, 5),
        (JUMP, {"save_steps": 2, "gradient_accumulation": 2, "batch_size": 8}, 7),
        (JUMP, {"select_best": False}, 2),
        (JUMP, {"save_steps": 2, "trainer": OWN_WAY}, 5),
        (JatConfig.stones(), {"save_steps": 2, "strength_lr": 0.1}, 5),
    ],
    ids=[
        *("epochs", "mid-epoch, by length", "accumulated", "before the first save", "own way"),
        "strengths",
    ],
)
def test_an_interrupted_run_resumes_exactly(
    options: Options,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: JatConfig,
    changes: dict[str, Any],
    stop: int,
) -> None:
    monkeypatch.setattr("jat_graph.training.arguments._LOGGING_STEPS", 2)  # 3 steps an epoch
    whole = options(output_dir=str(tmp_path / "whole"), **changes)
    expected = train(whole, config, progress=False)
    cut = options(resume=True, **changes)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_after(patch, stop)
        train(cut, config, progress=False)
    assert not Path(cut.output_dir, "model").exists()
    assert same_result(train(cut, config, progress=False), expected)
    assert same_weights(whole.output_dir, cut.output_dir)


ROOT = Path(__file__).resolve().parents[2]

KILLED = """
import json, os, signal, sys
import torch
from jat_graph.training import TrainingOptions, train
from jat_graph.training.trainer import TaskTrainer
from tests.training.support import JUMP

torch.set_num_threads(1)
original = TaskTrainer.training_step

def step(self, *args):
    if self.state.global_step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *args)

TaskTrainer.training_step = step
train(TrainingOptions(**json.loads(sys.argv[1])), JUMP, progress=False)
"""


def test_a_killed_run_resumes_exactly(options: Options, tmp_path: Path) -> None:
    whole, cut = options(output_dir=str(tmp_path / "whole")), options(resume=True)
    code = [sys.executable, "-c", KILLED, json.dumps(cut.to_dict())]
    done = subprocess.run(code, check=False, capture_output=True, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    checkpoints = Path(cut.output_dir, "checkpoints")
    assert [path.name for path in checkpoints.iterdir()] == ["checkpoint-3"]
    (checkpoints / "checkpoint-5").mkdir()  # as if the kill had come in the middle of a save
    expected = train(whole, JUMP, progress=False)
    assert same_result(train(cut, JUMP, progress=False), expected)
    assert same_weights(whole.output_dir, cut.output_dir)


def state_when_interrupted(cut: TrainingOptions, steps: int) -> tuple[Path, dict[str, Any]]:
    """Interrupt a run; return its newest checkpoint's state file and the state of the Trainer."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_after(patch, steps)
        train(cut, progress=False)
    checkpoint = last_checkpoint(Path(cut.output_dir, "checkpoints"))
    assert checkpoint is not None
    path = checkpoint / "trainer_state.json"
    return path, json.loads(path.read_text())


def test_the_time_of_all_parts_of_a_run_is_counted(options: Options) -> None:
    cut = options(resume=True)
    path, state = state_when_interrupted(cut, 4)
    kept = state["stateful_callbacks"]["TrainingTime"]["attributes"]
    assert kept["seconds"] > 0
    kept["seconds"] = 10_000.0
    path.write_text(json.dumps(state))
    _, state = state_when_interrupted(cut, 7)
    assert state["global_step"] == 6
    assert 10_000 < state["stateful_callbacks"]["TrainingTime"]["attributes"]["seconds"] < 20_000
    assert 10_000 < train(cut, progress=False).seconds < 20_000


def test_a_checkpoint_that_kept_no_time_goes_on(options: Options) -> None:
    cut = options(resume=True)
    path, state = state_when_interrupted(cut, 4)
    del state["stateful_callbacks"]["TrainingTime"]
    path.write_text(json.dumps(state))
    result = train(cut, progress=False)
    assert result.steps == 9
    assert result.seconds > 0


def test_a_run_killed_before_its_results_are_written(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("jat_graph.training.runner._save", stop)
        train(options(), progress=False)
    assert not [p for p in Path(options().output_dir).iterdir() if p.name.startswith(".")]
    assert train(options(resume=True), progress=False).steps == 9


def test_a_finished_run_is_read_not_repeated(options: Options, losses: list[float]) -> None:
    first = train(options(epochs=1), progress=False)
    count = len(losses)
    assert train(options(epochs=1, resume=True), progress=False) == first
    assert len(losses) == count


def test_a_folder_with_a_run_is_not_overwritten(options: Options) -> None:
    train(options(epochs=1), progress=False)
    with pytest.raises(ValueError, match="holds a run already"):
        train(options(epochs=1), progress=False)


@pytest.mark.parametrize(
    ("changes", "config", "words"),
    [
        ({"learning_rate": 1e-3}, None, "learning_rate=0.003, not 0.001"),
        ({}, JUMP, "backend=None, not 'auto'"),
        ({"trainer": {"max_grad_norm": 0.5}}, None, r"trainer\.max_grad_norm=None, not 0\.5"),
    ],
)
def test_another_run_is_not_resumed(
    options: Options, changes: dict[str, Any], config: JatConfig | None, words: str
) -> None:
    train(options(epochs=1), progress=False)
    with pytest.raises(ValueError, match=words):
        train(options(epochs=1, resume=True, **changes), config, progress=False)
