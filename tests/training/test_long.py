"""Long texts: stretched positions, patterns with jump heads, memory savers, kills."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer, LlamaConfig

from jat_graph.config import JatConfig
from jat_graph.hf import attach
from jat_graph.inspection.calibration import graph_statistics
from jat_graph.tasks import get_task
from jat_graph.training import TrainingOptions, evaluate, train
from jat_graph.training.arguments import training_arguments
from jat_graph.training.data import load_splits
from jat_graph.training.loading import load_for_training, load_trained
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Objective
from jat_graph.training.processes import Processes
from jat_graph.training.trainer import build_trainer
from tests.support import count_operations, sdpa_kernels
from tests.training.support import LONG, Options, same_weights, weights
from tests.training.test_runner import without_dropout
from tests.training.test_runner_resume import ROOT, same_result


@pytest.fixture
def long_run(options: Options, long_dir: str) -> Options:
    """Return options of a short run on texts longer than the model's 64 positions."""

    def build(**changes: Any) -> TrainingOptions:
        settings: dict[str, Any] = {
            "data_dir": long_dir,
            "max_length": 80,
            "batch_size": 4,
            "epochs": 1,
            "attention_dropout": 0.0,
        }
        return options(**(settings | changes))

    return build


def objective(options: TrainingOptions) -> Objective[Any]:
    return objective_for(get_task(options.task), options)


def test_the_long_heads_of_these_tests_jump(long_run: Options) -> None:
    chosen = objective(long_run())
    rows = load_splits(chosen, ("train",))["train"].features.remove_columns("labels")
    batch = chosen.collate(list(rows))
    assert batch["input_ids"].size(1) == 80
    model = load_for_training(chosen).eval()
    with torch.no_grad():
        base = model(**batch).logits
        jumping = attach(model, LONG)(**batch).logits
    assert all(0.1 < head.density < 0.9 for head in graph_statistics(model, [batch]))
    assert not torch.allclose(base, jumping, atol=1e-3)


def test_a_longer_model_is_saved_and_scores_the_same(long_run: Options) -> None:
    chosen = long_run()
    result = train(chosen, LONG, progress=False)
    model = str(Path(chosen.output_dir, "model"))
    assert AutoConfig.from_pretrained(model).max_position_embeddings == 80
    assert AutoTokenizer.from_pretrained(model).model_max_length == 80
    found = evaluate(model, "cola", chosen.data_dir, device="cpu", progress=False)
    assert found == result.metrics
    with pytest.raises(ValueError, match="max_length must be at most 80 for model"):
        load_trained(objective(long_run(model=model, max_length=81)))


def test_a_model_without_a_table_is_not_stretched(long_run: Options, tmp_path: Path) -> None:
    from transformers import LlamaForSequenceClassification

    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=64,
        vocab_size=15,
    )
    LlamaForSequenceClassification(config).save_pretrained(tmp_path / "llama")
    AutoTokenizer.from_pretrained(long_run().model).save_pretrained(tmp_path / "llama")
    with pytest.raises(ValueError, match=r"at most 64 .* no learned table of positions") as caught:
        load_for_training(objective(long_run(model=str(tmp_path / "llama"))))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("rate", "kernels"), [(0.0, {"flash"}), (None, {"math"})])
def test_attention_without_dropout_runs_on_the_fused_kernel(
    rate: float | None, kernels: set[str], long_run: Options
) -> None:
    chosen = objective(long_run(attention_dropout=rate))
    model = load_for_training(chosen).train()
    assert model.config.attention_probs_dropout_prob == (0.1 if rate is None else 0.0)
    with count_operations() as seen:
        model(input_ids=torch.ones(2, 16, dtype=torch.long))
    assert sdpa_kernels(seen) == kernels


def test_a_model_without_attention_dropout_is_refused(long_run: Options, tmp_path: Path) -> None:
    from transformers import FNetConfig

    FNetConfig().save_pretrained(tmp_path / "fnet")
    AutoTokenizer.from_pretrained(long_run().model).save_pretrained(tmp_path / "fnet")
    with pytest.raises(ValueError, match=r"attention_dropout must be None for model .* got 0\.0"):
        load_for_training(objective(long_run(model=str(tmp_path / "fnet"))))


def test_everything_that_saves_memory_at_once(long_run: Options, tmp_path: Path) -> None:
    model = without_dropout(long_run().model, tmp_path)
    common = {"model": model, "group_by_length": True, "learning_rate": 1e-3, "epochs": 2}
    plain = long_run(batch_size=8, **common)
    frugal = long_run(
        batch_size=2,
        gradient_accumulation=4,
        gradient_checkpointing=True,
        mixed_precision="bf16",
        output_dir=str(tmp_path / "frugal"),
        **common,
    )
    expected, found = (train(chosen, LONG, progress=False) for chosen in (plain, frugal))
    assert found.steps == expected.steps == 6
    for want, got in zip(expected.history, found.history, strict=True):
        assert got["loss"] == pytest.approx(want["loss"], abs=0.02)
        assert got["validation_loss"] == pytest.approx(want["validation_loss"], abs=0.02)


def test_gradient_checkpointing_changes_nothing(long_run: Options, tmp_path: Path) -> None:
    plain = long_run()
    again = long_run(gradient_checkpointing=True, output_dir=str(tmp_path / "again"))
    train(plain, LONG, progress=False), train(again, LONG, progress=False)
    one, other = weights(plain.output_dir), weights(again.output_dir)
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


def test_the_pattern_alone_is_trained_too(long_run: Options, tmp_path: Path) -> None:
    ordinary = JatConfig(pattern=LONG.pattern, hop_weights=(1.0,))
    wide = JatConfig(pattern="window:80", hop_weights=(1.0,))
    base = long_run(output_dir=str(tmp_path / "base"))
    for name, config in (("ordinary", ordinary), ("wide", wide)):
        train(long_run(output_dir=str(tmp_path / name)), config, progress=False)
    train(base, progress=False)
    stock = weights(base.output_dir)
    narrow, all_pairs = (weights(str(tmp_path / name)) for name in ("ordinary", "wide"))
    assert all(torch.allclose(stock[name], all_pairs[name], atol=1e-4) for name in stock)
    assert not all(torch.allclose(stock[name], narrow[name], atol=1e-4) for name in stock)


KILLED = """
import json, os, signal, sys
import torch
from jat_graph.training import TrainingOptions, train
from jat_graph.training.trainer import TaskTrainer
from tests.training.support import LONG

torch.set_num_threads(1)
original = TaskTrainer.training_step

def step(self, *args):
    if self.state.global_step == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *args)

TaskTrainer.training_step = step
train(TrainingOptions(**json.loads(sys.argv[1])), LONG, progress=False)
"""


def test_a_killed_run_with_pattern_and_jump_heads_resumes_exactly(
    long_run: Options, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "epochs": 2,
        "batch_size": 2,
        "gradient_accumulation": 2,
        "gradient_checkpointing": True,
        "group_by_length": True,
        "mixed_precision": "bf16",
        "attention_dropout": None,  # the stream of random numbers goes on, too
        "save_steps": 2,
    }
    whole = long_run(output_dir=str(tmp_path / "whole"), **settings)
    cut = long_run(resume=True, **settings)
    code = [sys.executable, "-c", KILLED, json.dumps(cut.to_dict())]
    done = subprocess.run(code, check=False, capture_output=True, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert not Path(cut.output_dir, "results.json").exists()
    expected = train(whole, LONG, progress=False)
    assert same_result(train(cut, LONG, progress=False), expected)
    assert same_weights(whole.output_dir, cut.output_dir)


def test_predictions_keep_no_hidden_states(long_run: Options, tmp_path: Path) -> None:
    chosen = long_run()
    found = objective(chosen)
    splits = load_splits(found, ("train", "validation"))
    model = load_for_training(found)
    model.config.output_hidden_states = True
    args = training_arguments(chosen, found.task, tmp_path, progress=False)
    trainer = build_trainer(model, found, Processes(), args, splits, None)
    output = trainer.predict(splits["validation"].features)
    assert output.predictions.shape == (12, 2)
    assert trainer.evaluate()["eval_validation_matthews"] is not None
