"""Sweeps of the kind ``train``: a run script fine-tunes a model on a task, and scores it.

Where a variant asks for it, ρ is chosen first, on training data that the runs which try it do not
train on. Options are those of the run scripts; ``depth`` may be relative, as ``"-3"``, and ``bf16``
``"auto"``: on where the device multiplies in it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from transformers import AutoConfig

from examples.sweeps.definition import TUNING_SEED, Run
from examples.sweeps.heads import Config, build_heads, resolve_depth
from examples.sweeps.rows import SECONDS
from examples.sweeps.strengths import saved_strengths
from jat_graph import JatConfig
from jat_graph.files import write_text
from jat_graph.tasks import LanguageModelTask, QuestionTask, Task, WordTask, get_task

RESULTS, ANSWERS = "all_results.json", "answers.json"
TAKEN = ("model_name_or_path", "task_name", "data_dir", "output_dir", "seed", "held_out")


def check(run: Run) -> None:
    """Refuse a model that the variant does not fit, before anything is run."""
    script_of(get_task(run.task))
    for name in run.options.keys() & set(TAKEN):
        raise ValueError(f"{run}: options must leave {name} to the sweep, got it")
    chosen_heads(run)


def script_of(task: Task) -> str:
    """Return the run script that trains on a task."""
    if isinstance(task, QuestionTask):
        return "run_question_answering"
    if isinstance(task, LanguageModelTask):
        return "run_language_modelling"
    return "run_tagging" if isinstance(task, WordTask) else "run_classification"


def shape(model: str | None) -> tuple[int, int]:
    """Return layers and heads of a model, which has no heads of ours."""
    if model is None:
        raise ValueError("a sweep of this kind needs --model, a folder or a Hub name")
    config = AutoConfig.from_pretrained(model)
    if any(getattr(config, name, None) for name in ("jat", "triplet", "attention_filter")):
        raise ValueError(f"model {model!r} must have no jump heads to be the base")
    return config.num_hidden_layers, config.num_attention_heads


def chosen_heads(run: Run, threshold: float | None = None) -> list[Config]:
    """Return the settings of a run's heads, on its model at its depth."""
    layers, heads = shape(run.model)
    layers = resolve_depth(run.options.get("depth", layers), layers)
    return build_heads(run.variant, layers=layers, heads=heads, threshold=threshold)


def run(run: Run) -> dict[str, Any]:
    """Train and score a model; return its record. Its weights stay in the folder."""
    threshold, tuning = choose_threshold(run) if run.variant.tune else (None, None)
    heads = chosen_heads(run, threshold)
    if SECONDS in run.sweep.columns and not (run.folder / RESULTS).exists():
        shutil.rmtree(run.folder, ignore_errors=True)  # a run may go on where others run, too
        with (
            tempfile.TemporaryDirectory() as folder
        ):  # so that nothing is compiled in what is timed
            train(run, Path(folder), heads, max_steps=1)
    return make_record(run, train(run, run.folder, heads), threshold=threshold, tuning=tuning)


def train(
    run: Run, folder: Path, heads: Sequence[Config], model: str | None = None, **options: Any
) -> dict[str, Any]:
    """Call the run script, unless it has finished in this folder; return what it measured.

    Args:
        run: Whose task, seed and options it has.
        folder: Where it writes.
        heads: Settings of the heads.
        model: Folder of another model. (default: None, the run's)
        options: Those in place of the run's.

    Returns:
        The content of ``all_results.json``.
    """
    results = folder / RESULTS
    if not results.exists():
        folder.mkdir(parents=True, exist_ok=True)
        chosen = run.options | {"task_name": run.task, "seed": run.seed} | options
        if "depth" in chosen:
            chosen["depth"] = resolve_depth(chosen["depth"], shape(run.model)[0])
        if chosen.get("bf16") == "auto":
            chosen["bf16"] = multiplies_in_bf16()
        chosen |= {"model_name_or_path": model or run.model, "output_dir": str(folder)}
        chosen |= {} if run.data_dir is None else {"data_dir": str(run.data_dir)}
        if heads:
            settings = {_name(config): config.to_dict() for config in heads}
            one = next(iter(settings.values())) if len(settings) == 1 else settings
            write_text(folder / "heads.json", json.dumps(one))
            chosen["jat_config"] = str(folder / "heads.json")
        if heads and run.variant.density is not None:
            chosen["jat_density"] = run.variant.density
        script = import_module(f"examples.{script_of(get_task(chosen['task_name']))}")
        script.main(as_arguments(chosen))
    found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    return found


def _name(config: Config) -> str:
    return "jat" if isinstance(config, JatConfig) else "triplet"


def as_arguments(options: Mapping[str, Any]) -> list[str]:
    """Return options as a command line has them."""
    pairs = [(f"--{name}", value) for name, value in options.items() if value is not None]
    return [text for name, value in pairs for text in (name, str(value))]


def multiplies_in_bf16() -> bool:
    """Tell whether the device has instructions for bf16, such as avx512_bf16 and amx_bf16."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return any("bf16" in name and has for name, has in torch.cpu.get_capabilities().items())


def make_record(run: Run, measured: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return what a trained run says about itself, from its folder."""
    answers = read_answers(run.folder)
    return {
        "scores": scores_of(get_task(run.task), measured, answers),
        "answers": answers,
        "seconds": measured["train_runtime"],
        "examples": {name: measured.get(f"{name}_samples") for name in ("train", "eval")},
        "strengths": saved_strengths(run.folder),
        **more,
    }


def read_answers(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """Return what a model said of each example of its splits, beside what is right."""
    path = folder / ANSWERS
    found: dict[str, dict[str, list[Any]]] = {}
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else found


def scores_of(
    task: Task, measured: Mapping[str, Any], answers: Mapping[str, Any]
) -> dict[str, dict[str, float | None]]:
    """Return the scores by split and metric; None where one is undefined."""
    names = (task.primary_metric, *task.other_metrics)
    splits = list(answers) or [split for split in task.splits if split != "train"]
    found = {
        split: {
            name: measured.get(f"{split}_{name}", measured.get(f"eval_{name}")) for name in names
        }
        for split in splits
    }
    return {split: scores for split, scores in found.items() if set(scores.values()) != {None}}


def choose_threshold(run: Run) -> tuple[float, dict[str, float | None]]:
    """Try every ρ of the sweep, or read what was tried before, and choose the best.

    A part of the training data is held out, the model is trained on the rest, with a seed that no
    run has, and scored on that part. All seeds of a variant share the choice; several processes
    share the work.

    Returns:
        The best, of equal ones the first, and the score of each.
    """
    tuning, variant = run.sweep.tuning, run.variant
    assert tuning is not None  # checked when the sweep is read
    if isinstance(variant.tune, str):
        variant = run.sweep.variant(variant.tune)
    trial = Run(run.sweep, run.task, variant, TUNING_SEED, run.output, run.model, run.data_dir)
    task, scores = get_task(run.task), dict[float, float | None]()
    for threshold in tuning.thresholds:
        folder = trial.folder.parent / "tuning" / f"threshold-{threshold:g}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            heads = chosen_heads(trial, threshold)
            measured = train(trial, folder, heads, held_out=tuning.held_out)
            scored = scores_of(task, measured, read_answers(folder))
            for path in folder.glob("*.safetensors"):
                path.unlink()
        scores[threshold] = next(iter(scored.values()))[task.primary_metric]
    sign = 1 if task.greater_is_better else -1
    defined = {rho: sign * score for rho, score in scores.items() if score is not None}
    best = max(defined or {tuning.thresholds[0]: 0.0}, key=lambda rho: defined.get(rho, 0.0))
    return best, {f"{rho:g}": score for rho, score in scores.items()}
