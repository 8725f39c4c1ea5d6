"""What test_processes starts in two processes: what each part found goes to a file.

``accelerate launch … -m tests.training.launched OPTIONS TAGGED FILE``; the options are JSON, TAGGED
is a folder in the layout of CoNLL 2003.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from accelerate.utils import DistributedType, gather_object
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from jat_graph.cli import main as jat_graph
from jat_graph.cli.app import app
from jat_graph.hf import TripletConfig, attach
from jat_graph.training import TrainingOptions, compare, evaluate, train
from jat_graph.training.heads import Heads
from jat_graph.training.processes import Processes, is_main, join
from jat_graph.training.trainer import TaskTrainer
from tests.training.support import JUMP, same_weights

STEPS, ROWS = 5, 8


def beside(options: TrainingOptions, name: str, **changes: Any) -> TrainingOptions:
    """Return options of a run in a folder beside."""
    folder = Path(options.output_dir).parent / name
    return replace(options, output_dir=str(folder), **changes)


def message(work: Callable[[], object]) -> str:
    """Return what a piece of work raises."""
    try:
        work()
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def command(options: TrainingOptions) -> list[bool]:
    """Give the command, which would end the process when it is through."""
    words = [
        "train", "--model", options.model, "--task", options.task, "--output", options.output_dir,
        "--data-dir", str(options.data_dir), "--epochs", str(options.epochs), "--batch-size",
        str(options.batch_size), "--max-length", "16", "--learning-rate", "3e-3", "--device", "cpu",
        "--save-steps", "1", "--no-select-best", "--threshold", "4", "--heads", "2",
        "--layers", "0,",
    ]  # fmt: skip
    with patch("jat_graph.training.processes.leave"):
        app(words, standalone_mode=False)
    return [True]


def tagged(options: TrainingOptions) -> list[Any]:
    """Train on sentences of many lengths, batch by batch."""
    task = {"task": "conll2003", "data_dir": sys.argv[2], "max_train_samples": 64}
    run = beside(options, "tagged", **task, epochs=1)
    return [train(run, JUMP, progress=False).history]


def in_one_alone(options: TrainingOptions) -> list[str]:
    """Miss the data in the second process only; both must hear of it."""
    place = options.data_dir if is_main() else "/nowhere"
    run = beside(options, "lacking", data_dir=place)
    return [message(lambda: train(run, progress=False))]


def diverging(options: TrainingOptions) -> list[str]:
    """Let the loss of the second process alone be no number."""
    original = TaskTrainer.compute_loss

    def loss(self: TaskTrainer, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        return found if is_main() else found * float("nan")

    run = beside(options, "diverging")
    with patch.object(TaskTrainer, "compute_loss", loss):
        return [message(lambda: train(run, progress=False))]


def no_scores(options: TrainingOptions) -> list[str]:
    """Fail when the dev set is scored, as both processes do."""
    run = beside(options, "no-scores", select_best=True)
    with patch("jat_graph.tasks.base.score", side_effect=ValueError("no scores")):
        return [message(lambda: train(run, progress=False))]


def no_task(options: TrainingOptions) -> list[str]:
    """Ask for a task that is not there."""
    return [message(lambda: train(beside(options, "x", task="nothing"), progress=False))]


def no_arms(options: TrainingOptions) -> list[str]:
    """Compare nothing with the base."""
    return [message(lambda: compare(beside(options, "x"), {"base": None}, [0], progress=False))]


def compared(options: TrainingOptions) -> list[Any]:
    """Compare, and do it again, which trains nothing."""
    run = beside(options, "compared", epochs=1)
    found = compare(run, JUMP, [3], progress=False)
    with patch("jat_graph.training.runner._fit", side_effect=AssertionError):
        again = compare(run, JUMP, [3], progress=False)
    return [[found == again, found.to_dict()["verdicts"], found.runs["jump"][0].processes]]


def resumed(options: TrainingOptions) -> list[bool]:
    """Interrupt a run and go on with it."""
    settings = {"save_steps": 2, "group_by_length": True}
    whole, cut = (beside(options, name, resume=True, **settings) for name in ("whole", "cut"))
    expected = train(whole, JUMP, progress=False)
    original = TaskTrainer.training_step

    def stop(self: TaskTrainer, *args: Any) -> torch.Tensor:
        if self.state.global_step == 3:
            raise KeyboardInterrupt
        return original(self, *args)

    with patch.object(TaskTrainer, "training_step", stop):
        try:
            train(cut, JUMP, progress=False)
        except KeyboardInterrupt:
            pass
    assert not Path(cut.output_dir, "results.json").exists()
    found = train(cut, JUMP, progress=False)
    again = train(cut, JUMP, progress=False)
    same = found.metrics == expected.metrics and found.history == expected.history
    return [same and again == found and same_weights(whole.output_dir, cut.output_dir)]


def curve(model: PreTrainedModel, rows: slice) -> list[float]:
    """Return the losses of some steps on the rows that this process has."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 15, (STEPS, ROWS, 12), generator=generator)
    losses = []
    for step in ids:
        labels = (step == 14).any(-1).long()
        mask = torch.ones_like(step)
        mask[::3, 9:] = 0
        loss = model(input_ids=step[rows], attention_mask=mask[rows], labels=labels[rows]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sharded_curves(options: TrainingOptions) -> list[list[list[list[float]]]]:
    """Train unsharded on all rows, and with torch's own sharding; return both curves by heads."""
    heads: tuple[Heads, ...] = (JUMP, TripletConfig())
    return [[list(_curves(options.model, config)) for config in heads]]


def _curves(path: str, config: Heads) -> Iterator[list[float]]:
    for shards in (False, True):
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_pretrained(path)
        attach(model, config)
        if shards:
            for layer in model.bert.encoder.layer:
                fully_shard(layer)
            fully_shard(model)
        rows = slice(int(os.environ["RANK"]), None, 2) if shards else slice(None)
        yield curve(model, rows)


def sharded_run(options: TrainingOptions) -> list[dict[str, Any]]:
    """Run the whole of training with ``fully_sharded``, interrupted in the middle."""
    settings = {"fully_sharded": True, "resume": True, "select_best": True, "save_steps": 1}
    run = beside(options, "sharded", **settings)
    original = TaskTrainer.training_step
    kinds = set()

    def stop(self: TaskTrainer, *args: Any) -> torch.Tensor:
        kinds.add(type(next(self.model.parameters())).__name__)
        if self.state.global_step == 3 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return original(self, *args)

    interrupted: list[bool] = []
    with sharding_on_cpu(), patch.object(TaskTrainer, "training_step", stop):
        try:
            train(run, JUMP, progress=False)
        except KeyboardInterrupt:
            pass
        result = train(run, JUMP, progress=False)
        left = [name for name in os.environ if name.startswith(("ACCELERATE_USE_FSDP", "FSDP_"))]
    model = str(Path(run.output_dir, "model"))
    found = evaluate(model, "cola", options.data_dir, max_length=16, device="cpu", progress=False)
    same = found == result.metrics
    return [{"history": result.history, "kinds": sorted(kinds), "same": same, "left": left}]


@contextmanager
def sharding_on_cpu() -> Iterator[None]:
    """Let accelerate shard on the CPU, which it does on GPUs only."""
    from accelerate import PartialState
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    with (
        patch.dict(os.environ, {"ACCELERATE_TORCH_DEVICE": "cpu"}),
        patch("jat_graph.training.arguments.on_cpu", lambda _: False),
        patch("torch.accelerator.device_count", lambda: 2),
        patch.object(
            PartialState, "_prepare_backend", lambda *_: ("gloo", DistributedType.MULTI_GPU)
        ),
    ):
        yield
    AcceleratorState._reset_state(reset_partial_state=True)


def main() -> None:
    torch.set_num_threads(1)
    options = TrainingOptions(**json.loads(sys.argv[1]))
    processes: Processes = join(options)
    assert processes.count == 2
    found = {}
    failing = (in_one_alone, diverging, no_scores, no_task, no_arms)
    for part in (command, tagged, *failing, compared, resumed, sharded_curves, sharded_run):
        found[part.__name__] = gather_object(part(options))
    if processes.is_main:
        Path(sys.argv[3]).write_text(json.dumps(found), encoding="utf-8")
    sys.argv = ["jat-graph", "train", "--model", options.model, "--task", "nothing"]
    jat_graph()


if __name__ == "__main__":
    main()
