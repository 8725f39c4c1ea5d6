"""Sweeps of the kind ``train``: a run script fine-tunes a model on a task, and scores it.

Options are those of the run scripts; ``depth`` may be relative, as ``"-3"``, and ``bf16``
``"auto"``: on where the device multiplies in it.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors import safe_open
from transformers import AutoConfig

from examples.sweeps.definition import TUNING_SEED, Run
from examples.sweeps.heads import build_heads, resolve_depth
from examples.sweeps.rows import SECONDS, task_of
from examples.tasks import get_task
from examples.training import prefixes
from jat_graph import JatConfig
from jat_graph.core.files import write_text

RESULTS, ANSWERS = "all_results.json", "answers.json"
_STRENGTHS = ".strength.theta"
_TAKEN = ("model_name_or_path", "task_name", "data_dir", "output_dir", "seed", "held_out")


def check(run: Run) -> None:
    """Refuse a task, options or heads that do not fit, before anything is run."""
    if get_task(run.task).kind == "ids":
        raise ValueError("no run script trains on ids, which sweeps of their own kinds do")
    if taken := run.options.keys() & set(_TAKEN):
        raise ValueError(f"options must leave {min(taken)} to the sweep")
    chosen_heads(run)


def shape(model: str | None) -> tuple[int, int]:
    """Return layers and heads of a model, which has no heads of ours."""
    if model is None:
        raise ValueError("a sweep of this kind needs --model, a folder or a Hub name")
    config = AutoConfig.from_pretrained(model)
    if getattr(config, "jat", None):
        raise ValueError(f"model {model!r} must have no jump heads to be the base")
    return config.num_hidden_layers, config.num_attention_heads


def chosen_heads(run: Run, threshold: float | None = None) -> list[JatConfig]:
    """Return the settings of a run's heads, on its model at its depth."""
    layers, heads = shape(run.model)
    layers = resolve_depth(run.options.get("depth", layers), layers)
    return build_heads(run.variant, layers=layers, heads=heads, threshold=threshold)


def run(run: Run) -> dict[str, Any]:
    """Train and score a model; return its record. Its weights stay in the folder."""
    threshold, tuning = choose_threshold(run) if run.variant.tune else (None, None)
    heads = chosen_heads(run, threshold)
    if SECONDS in run.sweep.columns and not (run.folder / RESULTS).exists():
        shutil.rmtree(run.folder, ignore_errors=True)  # one that goes on may be timed elsewhere
        with tempfile.TemporaryDirectory() as folder:  # nothing is compiled in what is timed
            train(run, Path(folder, "warm"), heads, max_steps=1)
    measured = train(run, run.folder, heads)
    return make_record(run, measured) | {"threshold": threshold, "tuning": tuning}


def train(
    run: Run, folder: Path, heads: Sequence[JatConfig] = (), do_train: bool = True, **options: Any
) -> dict[str, Any]:
    """Call the run script with other options, unless it has finished in this folder."""
    chosen: dict[str, Any] = {"model_name_or_path": run.model, "data_dir": run.data_dir}
    chosen |= {"use_cpu": not torch.accelerator.is_available()}  # which bf16 asks for
    chosen |= run.options | {"task_name": run.task, "seed": run.seed} | options
    if isinstance(chosen.get("depth"), str):
        chosen["depth"] = resolve_depth(chosen["depth"], shape(run.model)[0])
    if chosen.get("bf16") == "auto":
        chosen["bf16"] = multiplies_in_bf16()
    chosen |= {"output_dir": folder, "disable_tqdm": True}
    results = folder / RESULTS
    if not results.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if heads:
            write_text(folder / "heads.json", json.dumps({"jat": heads[0].to_dict()}))
            chosen |= {"jat_config": folder / "heads.json", "density": run.variant.density}
        task = get_task(chosen["task_name"])
        chosen |= {"do_eval": True, "do_train": do_train}
        chosen["do_predict"] = "test" in task.splits and "held_out" not in chosen
        chosen["resume_from_checkpoint"] = "last" if do_train else None  # if there is any
        words = [f"--{name}={value}" for name, value in chosen.items() if value is not None]
        script = import_module(f"examples.run_{task.kind}")
        with (folder / "log.txt").open("a", encoding="utf-8") as log, redirect_stdout(log):
            script.main(words)
    return json.loads(results.read_text(encoding="utf-8"))


def multiplies_in_bf16() -> bool:
    """Tell whether the device has instructions for bf16, such as avx512_bf16 and amx_bf16."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return any("bf16" in name and has for name, has in torch.cpu.get_capabilities().items())


def make_record(run: Run, measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trained run says about itself, from its folder."""
    task = task_of(run.sweep, run.task)
    answers = json.loads((run.folder / ANSWERS).read_text(encoding="utf-8"))
    return {
        "scores": scores_of(task.metrics, task.splits, measured),
        "answers": answers,
        "seconds": measured["train_runtime"],
        "strengths": saved_strengths(run.folder),
    }


def scores_of(
    metrics: Sequence[str], splits: Sequence[str], measured: Mapping[str, Any]
) -> dict[str, dict[str, float | None]]:
    """Return the scores by split and metric, those by size too; None where one is undefined."""
    found: dict[str, dict[str, float | None]] = {}
    for split, prefix in prefixes(splits).items():
        starts = [name for name in measured if name.startswith(f"{prefix}_")]
        own = {name[len(prefix) + 1 :]: measured[name] for name in starts}
        own = {name: value for name, value in own.items() if not math.isnan(value)}
        names = [*metrics, *(name for name in own if name.startswith("accuracy_"))]
        if split != "train" and own:
            found[split] = {name: own.get(name) for name in names}
    return found


def choose_threshold(run: Run) -> tuple[float, dict[str, float | None]]:
    """Choose ρ on training data that is held out, with a seed of its own; all seeds share it."""
    tuning, variant = run.sweep.tuning, run.variant
    if isinstance(variant.tune, str):
        variant = run.sweep.variant(variant.tune)
    trial = replace(run, variant=variant, seed=TUNING_SEED)
    task, scores = get_task(run.task), dict[float, float | None]()
    for threshold in tuning.thresholds:
        folder = trial.folder.parent / "tuning" / f"threshold-{threshold:g}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            heads = chosen_heads(trial, threshold)
            measured = train(trial, folder, heads, held_out=tuning.held_out)
            for path in [*folder.glob("checkpoint-*"), *folder.glob("*.safetensors")]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        found = scores_of(task.metrics, ["held_out"], measured)
        scores[threshold] = found["held_out"][task.primary_metric]
    sign = 1 if task.greater_is_better else -1
    defined = {rho: sign * score for rho, score in scores.items() if score is not None}
    best = max(defined, key=lambda rho: defined[rho], default=tuning.thresholds[0])
    return best, {f"{rho:g}": score for rho, score in scores.items()}


def saved_strengths(folder: Path) -> dict[str, list[list[list[float]]]]:
    """Return the strengths ``[queries, keys, values][hop][head]`` of a saved model by module."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            for name in weights.keys():  # it is no dictionary
                if name.endswith(_STRENGTHS):
                    theta = weights.get_tensor(name).double().numpy()
                    found[name.removesuffix(_STRENGTHS)] = theta.round(5).tolist()
    return found
