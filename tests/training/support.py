"""What several test files here share."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from jat_graph.config import JatConfig, PairGraph
from jat_graph.training import Arm, Comparison, RunResult, TrainingOptions
from jat_graph.training.results import versions

Options = Callable[..., TrainingOptions]

# Joins 10 to 90 % of the pairs in both of these heads of the tiny model: tested with the runner.
JUMP = JatConfig(PairGraph(threshold=4.0), heads=2, layers=(0,))

# The same on longer texts, where each head reads a window and the first token.
LONG = JatConfig(
    PairGraph(threshold=8.0, key_selection="significance", num_keys=6),
    heads=2,
    layers=(0,),
    pattern="window:16+global:1",
)


def result() -> RunResult:
    return RunResult(
        task="mnli",
        primary_metric="accuracy",
        metrics={"matched": {"accuracy": 0.5}, "mismatched": {"accuracy": None}},
        history=({"step": 3.0, "matched_accuracy": 0.5},),
        steps=3,
        best_step=None,
        seconds=1.5,
        started="2025-01-01T00:00:00+00:00",
        device="cpu",
        options={"seed": 1},
        config=None,
        fingerprint="f",
        versions=versions(),
    )


def made_up(**scores: list[float | None]) -> Comparison:
    """Return a comparison whose runs scored this."""
    runs = {
        arm: tuple(
            replace(result(), metrics={"dev": {"f1": 0.5, "accuracy": value}}) for value in values
        )
        for arm, values in scores.items()
    }
    seeds = tuple(range(len(scores["base"])))
    return Comparison("mrpc", "accuracy", seeds, dict.fromkeys(scores, Arm()), runs)


def without_dropout(model: str, tmp_path: Path) -> str:
    """Return the folder of a copy of a model that drops nothing."""
    folder = tmp_path / "no-dropout"
    plain = AutoModel.from_pretrained(
        model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return str(folder)


def weights(folder: str) -> dict[str, torch.Tensor]:
    return load_file(Path(folder, "model", "model.safetensors"))


def same_weights(one: str, other: str) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
