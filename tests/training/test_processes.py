"""One run in several processes: what they share, what only one does, and what is refused."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from jat_graph.training import RunResult, TrainingOptions, compare, train
from jat_graph.training.processes import (
    Processes,
    ReplicaError,
    is_main,
    join,
    one_voice,
    own_environment,
)
from tests.training.support import JUMP, Options, weights, without_dropout

ROOT = Path(__file__).resolve().parents[2]
ACCELERATE = (
    "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
    "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
    "--main_process_port", "0",
)  # fmt: skip


def launch(*words: str) -> subprocess.CompletedProcess[str]:
    """Start tests.training.launched in two processes of one thread each."""
    alone = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *ACCELERATE, "-m", "tests.training.launched", *words],
        cwd=ROOT,
        env=os.environ | alone,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def losses(history: Any) -> list[float]:
    return [row["loss"] for row in history]


@dataclass(frozen=True)
class Launched:
    """What tests.training.launched found in two processes, and printed."""

    options: TrainingOptions
    found: dict[str, Any]
    printed: str
    errors: str

    def alone(self, name: str, **changes: Any) -> RunResult:
        """Run in one process what two did, with as many sequences a step."""
        chosen = replace(self.options, batch_size=2 * self.options.batch_size, **changes)
        return train(replace(chosen, output_dir=self.folder(name)), JUMP, progress=False)

    def folder(self, name: str) -> str:
        """Return the folder of a run."""
        return str(Path(self.options.output_dir).parent / name)


@pytest.fixture(scope="module")
def launched(
    tiny_model: str, cola_dir: str, conll_dir: str, tmp_path_factory: pytest.TempPathFactory
) -> Launched:
    """Start the launcher once for all: that takes longer than what is run."""
    folder = tmp_path_factory.mktemp("launched")
    # one save a step, so that the loss of every step is logged
    options = TrainingOptions(
        model=without_dropout(tiny_model, folder), task="cola", data_dir=cola_dir,
        output_dir=str(folder / "run"), epochs=2, batch_size=8, max_length=16,
        learning_rate=3e-3, save_steps=1, select_best=False, device="cpu",
    )  # fmt: skip
    file = folder / "found.json"
    done = launch(json.dumps(options.to_dict()), conll_dir, str(file))
    assert file.exists() and done.returncode == 1, done.stderr  # it ends with a wrong command
    return Launched(options, json.loads(file.read_text()), done.stdout, done.stderr)


def test_two_processes_train_the_model_that_one_does(launched: Launched) -> None:
    expected = launched.alone("alone")
    both, alone = launched.options.output_dir, launched.folder("alone")
    assert launched.printed.count("Model and results are in") == 1  # the main process alone speaks
    found = json.loads(Path(both, "results.json").read_text())
    assert found["processes"] == 2 and expected.processes == 1
    assert len(losses(found["history"])) == 6
    assert losses(found["history"]) == pytest.approx(losses(expected.history), rel=2e-5)
    assert found["metrics"] == expected.metrics
    one, other = weights(alone), weights(both)
    far = {name for name in one if not torch.allclose(one[name], other[name], atol=5e-5)}
    # their gradients are 0 but for rounding, which Adam makes as large as any other
    assert all(name.endswith(".key.bias") for name in far)
    answers = [Path(folder, "answers.json").read_text() for folder in (alone, both)]
    assert answers[0] == answers[1]
    assert sorted(os.listdir(both)) == sorted(os.listdir(alone))
    with pytest.raises(ValueError, match="holds a run with processes=2, not 1"):
        train(replace(launched.options, resume=True), JUMP, progress=False)


def test_words_weigh_the_same_in_all_processes(launched: Launched, conll_dir: str) -> None:
    expected = launched.alone(
        "tags", task="conll2003", data_dir=conll_dir, epochs=1, max_train_samples=64
    )
    for history in launched.found["tagged"]:
        assert losses(history) == pytest.approx(losses(expected.history), rel=2e-5)


def test_what_fails_in_one_process_fails_in_both(launched: Launched) -> None:
    main, other = launched.found["in_one_alone"]
    assert main.startswith("ValueError: in process 2 of 2: ") and "/nowhere" in main
    assert other.startswith("ReplicaError: ") and "/nowhere" in other
    assert not any(path.is_file() for path in Path(launched.folder("lacking")).rglob("*"))
    main, other = launched.found["diverging"]
    assert main.startswith("ValueError: the training loss became nan at step 1")
    assert other == main.replace("ValueError", "ReplicaError")
    for main, other in (launched.found[name] for name in ("no_scores", "no_task", "no_arms")):
        assert other == main.replace("ValueError: ", "ReplicaError: in process 1 of 2: ") != main


def test_two_processes_compare(launched: Launched) -> None:
    first, second = launched.found["compared"]
    same, verdicts, processes = first
    assert first == second and same and processes == 2
    folder = Path(launched.folder("compared"))
    assert json.loads((folder / "results.json").read_text())["verdicts"] == verdicts
    alone = replace(launched.options, output_dir=str(folder), epochs=1)
    with pytest.raises(ValueError, match="holds results with processes=2, not 1"):
        compare(alone, JUMP, [3], progress=False)


def test_a_run_of_two_processes_resumes(launched: Launched) -> None:
    assert launched.found["resumed"] == [True, True]


def test_a_model_may_be_split_over_processes(launched: Launched) -> None:
    curves = launched.found["sharded_curves"]
    for (whole, half), (_, other_half) in zip(*curves, strict=True):
        assert half != other_half  # each process has rows of its own
        means = [(one + other) / 2 for one, other in zip(half, other_half, strict=True)]
        assert means == pytest.approx(whole, rel=2e-5)
    expected = launched.alone("one", select_best=True)
    for sharded in launched.found["sharded_run"]:
        assert sharded["kinds"] == ["DTensor"] and sharded["same"]
        assert not sharded["left"]  # or the next run would be told to shard
        assert losses(sharded["history"]) == pytest.approx(losses(expected.history), rel=2e-5)


def test_the_main_process_says_why_a_command_failed(launched: Launched) -> None:
    assert launched.errors.count("jat-graph: error: task must be one of") == 1
    # the launcher ends all processes as soon as one fails: the others must not
    assert "<NO_OTHER_FAILURES>" in launched.errors
    assert re.search(r"rank +: 0 .*\n +exitcode +: 2 ", launched.errors)


def test_a_process_that_is_alone_does_everything_itself(options: Options) -> None:
    alone = join(options())
    assert alone == Processes(1, 0) and alone.is_main and is_main()
    assert alone.on_main(lambda: 3) == alone.agree(lambda: 3) == 3
    error = OSError("full")
    for do in (alone.on_main, alone.agree):
        with pytest.raises(OSError) as caught:
            do(raises(error))
        assert caught.value is error
    assert alone.shared(ValueError("x")).args == ("x",)


def raises(error: Exception) -> Any:
    def work() -> None:
        raise error

    return work


def test_only_the_main_process_speaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left: list[int] = []
    waited: list[float] = []
    monkeypatch.setattr("jat_graph.training.processes.leave", lambda code=0: left.append(code))
    monkeypatch.setattr("time.sleep", waited.append)
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        with one_voice():
            print(f"of {rank}")  # noqa: T201
    assert capsys.readouterr().out == "of 0\n"
    assert left == [0, 0]
    with pytest.raises(SystemExit) as caught, one_voice():
        raise ReplicaError("x")
    assert caught.value.code == 0  # the launcher would end the main process before it speaks
    assert not waited
    for number, error in enumerate((ValueError("x"), OSError("x"))):
        with pytest.raises(type(error)), one_voice():
            raise error
        assert len(waited) == number + 1 and waited[-1] > 5  # time for the main process to say it
    with pytest.raises(RuntimeError), one_voice():  # no other process says this
        raise RuntimeError("x")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError), one_voice():
        raise ValueError("x")
    assert len(waited) == 2


@pytest.mark.parametrize(
    ("changes", "environment", "words"),
    [
        ({"fully_sharded": True}, {}, "fully_sharded needs GPUs, got the CPU"),
        ({}, {"ACCELERATE_USE_FSDP": "true"}, "fully_sharded needs GPUs, got the CPU"),
        (
            {"mixed_precision": "no"},
            {"ACCELERATE_MIXED_PRECISION": "bf16"},
            "mixed_precision must be what accelerate launch is told, 'bf16', got 'no'",
        ),
    ],
)
def test_what_a_launcher_and_the_options_disagree_on_is_one_line(
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    environment: dict[str, str],
    words: str,
) -> None:
    chosen = options(**changes)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=words) as caught:
        train(chosen, progress=False)
    assert type(caught.value) is ValueError and "\n" not in str(caught.value)
    assert not Path(chosen.output_dir).exists()


def test_gpus_are_counted(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jat_graph.training.arguments.on_cpu", lambda _: False)
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 1)
    with pytest.raises(ValueError, match="fully_sharded needs several processes: start them with"):
        join(options(fully_sharded=True))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="at most 1 processes here, one for each GPU, got 4"):
        join(options())


def test_what_accelerate_tells_itself_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")  # by the launcher
    before = dict(os.environ)
    with pytest.raises(OSError), own_environment():
        os.environ["ACCELERATE_USE_FSDP"] = os.environ["FSDP_VERSION"] = "true"
        os.environ["ACCELERATE_MIXED_PRECISION"] = "no"
        raise OSError
    assert dict(os.environ) == before
