"""The Trainer's parts: order, arguments, and what is switched off."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PrinterCallback

from jat_graph.tasks import get_task
from jat_graph.training import TrainingOptions, arguments
from jat_graph.training.arguments import training_arguments
from jat_graph.training.data import load_splits
from jat_graph.training.loading import load_for_training
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Answers
from jat_graph.training.processes import Processes
from jat_graph.training.trainer import SeededLengthSampler, build_trainer, remark_on
from tests.training.support import Options


def test_order_depends_on_seed_and_epoch_only() -> None:
    lengths = [n % 7 + 1 for n in range(64)]
    sampler = SeededLengthSampler(8, lengths, seed=3)
    sampler.set_epoch(1)
    torch.manual_seed(0)
    first = list(sampler)
    torch.manual_seed(1)
    assert list(sampler) == first
    sampler.set_epoch(2)
    assert list(sampler) != first
    assert sorted(first) == list(range(64))


def test_an_option_settles_each_argument_but_those_that_may_be_given(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "TrainingArguments", dict)
    chosen = options(trainer={"max_grad_norm": 0.5, "logging_steps": 7})
    found: Any = training_arguments(chosen, get_task("cola"), tmp_path, progress=False)
    assert found["max_grad_norm"] == 0.5 and found["logging_steps"] == 7
    settled = {name for f in fields(TrainingOptions) for name in f.metadata.get("trainers", ())}
    assert set(found) - settled == {
        *("dataloader_pin_memory", "disable_tqdm", "logging_nan_inf_filter", "logging_steps"),
        *("max_grad_norm", "report_to", "save_total_limit"),
    }


def test_the_trainer_is_given_what_it_is_told(options: Options, tmp_path: Path) -> None:
    said = {"lr_scheduler_type": "cosine", "optim": "adafactor", "adam_beta2": 0.98}
    chosen = options(trainer=said)
    args = training_arguments(chosen, get_task("cola"), tmp_path, progress=False)
    assert (args.lr_scheduler_type, args.optim, args.adam_beta2) == ("cosine", "adafactor", 0.98)


def test_the_trainer_counts_accumulated_batches_once_and_prints_nothing(
    options: Options, tmp_path: Path
) -> None:
    chosen, task = options(), get_task("cola")
    objective = objective_for(task, chosen)
    splits = load_splits(objective, ("train", "validation"))
    args = training_arguments(chosen, task, tmp_path, progress=False)
    trainer = build_trainer(
        load_for_training(objective), objective, Processes(), args, splits, None
    )
    assert trainer.model_accepts_loss_kwargs is False
    assert trainer.pop_callback(PrinterCallback) is None
    batches = [batch["input_ids"].shape[1] for batch in trainer.get_train_dataloader()]
    assert max(batches) <= 16 and len(set(batches)) >= 1


def test_one_answer_to_all_is_remarked_on(caplog: pytest.LogCaptureFixture) -> None:
    for said, right in (([0, 1], [0, 1]), ([1, 1], [1, 1]), ([[1], [2]], [[1], [1]])):
        remark_on("validation", Answers(said, right))
    assert not caplog.messages
    remark_on("validation", Answers([1, 1, 1], [0, 1, 0]))
    (line,) = caplog.messages
    assert line.startswith("validation: the model answers 1 to all 3 examples")
