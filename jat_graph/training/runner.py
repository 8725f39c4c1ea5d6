"""Train one model on one task."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks import get_task
from jat_graph.training.card import write_card
from jat_graph.training.data import TRAIN, dev_splits, load_splits
from jat_graph.training.heads import Heads, attach_heads
from jat_graph.training.loading import check_heads, load_for_training
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Answers, Encoded, Objective
from jat_graph.training.options import TrainingOptions
from jat_graph.training.pretrained import quiet
from jat_graph.training.processes import Processes, join, own_environment
from jat_graph.training.results import RunResult, finite, versions
from jat_graph.training.storage import (
    ANSWERS_FILE,
    CHECKPOINT_FOLDER,
    MODEL_FOLDER,
    RESULTS_FILE,
    RUN_FILE,
    check_unused,
    difference,
    last_checkpoint,
    making_folder,
    read_json,
    replacing_folder,
    run_folder,
    steps_in,
    write_json,
)

if TYPE_CHECKING:
    from jat_graph.training.trainer import TaskTrainer


def train(
    options: TrainingOptions,
    config: Heads | None = None,
    *,
    progress: bool = True,
    estimate: bool = False,
) -> RunResult:
    """Train a model, with jump heads or without.

    Seeds are set before new weights are drawn, and the data order depends on the seed
    only: runs that differ in ``config`` alone start from the same weights and see the same batches.
    A run killed at any point and resumed gives the same weights and scores as one that was not, on
    the CPU to the bit.

    Started in several processes by ``torchrun`` or ``accelerate launch``, they train one model, and
    each step has ``batch_size`` sequences of every process. The main process alone writes.

    Args:
        options: What to train, on what, and where to.
        config: Settings of the jump heads, of triplet heads, or of both (:class:`BothHeads`); None
            trains the model as it is. (default: None)
        progress: Show a bar. (default: True)
        estimate: Say in the log, before the first step, about how long what is left takes and how
            much memory, by a step that is timed and changes nothing. (default: False)

    Returns:
        The result, also written to ``results.json`` in ``options.output_dir``, where ``model/``
        is the trained model with its tokenizer, and ``answers.json`` what it says of each example
        of the dev sets, beside what is right.

    Raises:
        ValueError: If the task, the model or an option does not fit, the folder holds another run,
            or the loss is no longer finite.
        OSError: If data cannot be read, or the folder not be written to.

    Reference:
        The protocol is that of the JAT paper's section on GLUE: fine-tune, report the dev set.
    """
    require_extra()
    processes = join(options)
    task = processes.agree(lambda: get_task(options.task))
    options = replace(options, task=task.name)
    description = _description(options, config, processes)
    finished = processes.on_main(lambda: _finished_run(options, description))
    if finished is not None:
        return finished
    objective = objective_for(task, options)
    processes.agree(lambda: _check_fit(objective, config))
    with ExitStack() as stack:
        folder = processes.on_main(lambda: stack.enter_context(making_folder(options.output_dir)))
        return _train_in(
            folder, objective, config, processes, description, progress=progress, estimate=estimate
        )


def require_extra() -> None:
    """Check that the optional packages for training are there."""
    wanted = (
        "accelerate",
        "conllu",
        "datasets",
        "pandas",
        "pydantic",
        "sklearn",
        "scipy",
        "tabulate",
    )
    missing = [name for name in wanted if find_spec(name) is None]
    if missing:
        raise ValueError(f"training needs the package {missing[0]}: pip install 'jat_graph[train]'")


def _check_fit(objective: Objective[Any], config: Heads | None) -> None:
    """Refuse what can be refused before data and weights are read."""
    from jat_graph.training.arguments import check_device

    check_device(objective.options)
    check_heads(objective, config)


def _train_in(
    folder: Path,
    objective: Objective[Any],
    config: Heads | None,
    processes: Processes,
    description: dict[str, Any],
    *,
    progress: bool,
    estimate: bool,
) -> RunResult:
    """Train, score, and write what comes of it."""
    from jat_graph.training.arguments import precision_of
    from jat_graph.training.estimate import foresee
    from jat_graph.training.trainer import score

    task, options = objective.task, objective.options
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with quiet(), own_environment():
        trainer, splits = processes.agree(
            lambda: _prepare(objective, config, processes, folder, progress)
        )
        processes.on_main(lambda: write_json(folder / RUN_FILE, description))
        checkpoint = processes.on_main(lambda: _checkpoint(folder, options, processes))
        if estimate and not options.fully_sharded:  # a process has no whole model to step with
            done = 0 if checkpoint is None else steps_in(checkpoint)
            count = processes.count
            processes.agree(lambda: foresee(trainer, options, splits, processes=count, done=done))
        _fit(trainer, folder, processes, checkpoint)
        seconds = trainer.clock.seconds
        metrics, answers = score(trainer, objective, processes, splits)
        place = folder / MODEL_FOLDER
        with replacing_folder(place) if processes.is_main else nullcontext(place) as temporary:
            _save(trainer, temporary)
    result = RunResult(
        task=task.name,
        primary_metric=task.primary_metric,
        metrics=metrics,
        history=_history(trainer.state.log_history),
        steps=trainer.state.global_step,
        best_step=trainer.state.best_global_step if options.select_best else None,
        seconds=round(seconds, 3),
        started=started,
        device=trainer.args.device.type,
        mixed_precision=precision_of(options),
        versions=versions(),
        **description,
    )
    return processes.on_main(lambda: _conclude(folder, result, answers))


def _prepare(
    objective: Objective[Any],
    config: Heads | None,
    processes: Processes,
    folder: Path,
    progress: bool,
) -> tuple[TaskTrainer, dict[str, Encoded]]:
    """Load everything a run needs."""
    splits = load_splits(objective, (TRAIN, *dev_splits(objective.task, objective.options)))
    return assemble(objective, config, processes, folder, splits, progress=progress), splits


def assemble(
    objective: Objective[Any],
    config: Heads | None,
    processes: Processes,
    folder: Path,
    splits: dict[str, Encoded],
    *,
    progress: bool,
) -> TaskTrainer:
    """Load a model and put its Trainer together, in the order that makes runs comparable."""
    from transformers import set_seed

    from jat_graph.training.arguments import layers_to_shard, training_arguments
    from jat_graph.training.trainer import build_trainer, checkpoint_activations

    options, task = objective.options, objective.task
    set_seed(options.seed)  # before the head is drawn, so that all arms of a comparison share it
    model = load_for_training(objective)
    attach_heads(model, config, objective.saved_tokenizer)
    if options.gradient_checkpointing:
        checkpoint_activations(model)
    layers = layers_to_shard(model) if options.fully_sharded else None
    args = training_arguments(options, task, folder, progress=progress, layers=layers)
    return build_trainer(model, objective, processes, args, splits, folder)


def _checkpoint(folder: Path, options: TrainingOptions, processes: Processes) -> Path | None:
    """The checkpoint that a run goes on from, if there is one and it is to."""
    checkpoints = folder / CHECKPOINT_FOLDER
    return last_checkpoint(checkpoints, processes.count) if options.resume else None


def _fit(trainer: TaskTrainer, folder: Path, processes: Processes, checkpoint: Path | None) -> None:
    """Train, from a checkpoint if there is one."""
    checkpoints = folder / CHECKPOINT_FOLDER
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except FloatingPointError as error:
        if processes.is_main:
            _discard(folder)  # the same options would diverge again
        raise processes.shared(ValueError(str(error))) from None
    except (ImportError, OSError, ValueError):
        if processes.is_main and last_checkpoint(checkpoints, processes.count) is None:
            _discard(folder)  # nothing was begun that could go on
        raise


def _finished_run(options: TrainingOptions, asked: dict[str, Any]) -> RunResult | None:
    """The finished run that the folder holds, if any; one that is not asked for is refused."""
    check_unused(options)
    folder = run_folder(options)
    results, begun = read_json(folder / RESULTS_FILE), read_json(folder / RUN_FILE)
    found = results or begun
    if found is None:
        return None
    found = {"processes": 1} | found
    if any(found.get(part) != asked[part] for part in ("fingerprint", "processes")):
        changes = map(difference, _settings(found), _settings(asked))
        changed = next(filter(None, changes), "other settings")
        raise ValueError(f"output_dir {folder} holds a run with {changed}: name another folder")
    if results is None:
        return None
    _discard(folder)
    return RunResult.from_dict(results)


def _settings(run: dict[str, Any]) -> list[dict[str, Any]]:
    """What the result of a run depends on, part by part."""
    elsewhere = dict.fromkeys(("output_dir", "resume"))  # which changes nothing
    options = (run.get("options") or {}) | elsewhere
    return [{"processes": run["processes"]}, options, run.get("config") or {}]


def _description(
    options: TrainingOptions, config: Heads | None, processes: Processes
) -> dict[str, Any]:
    return {
        "options": replace(options, resume=False).to_dict(),
        "config": None if config is None else config.to_dict(),
        "fingerprint": options.fingerprint(config),
        "processes": processes.count,
    }


def _save(trainer: TaskTrainer, folder: Path) -> None:
    """Write the model and its tokenizer; the Trainer adds its arguments, which say nothing new.

    All processes call this, as each may hold a part of the weights; the main one writes.
    """
    sharding = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if sharding is not None:
        sharding.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model(str(folder))
    (folder / "training_args.bin").unlink(missing_ok=True)


def _conclude(folder: Path, result: RunResult, answers: dict[str, Answers]) -> RunResult:
    """Write what a run found, and delete what it needs no more."""
    write_card(folder / MODEL_FOLDER, result)
    write_json(folder / ANSWERS_FILE, {split: asdict(said) for split, said in answers.items()})
    write_json(folder / RESULTS_FILE, result.to_dict())
    _discard(folder)
    return result


def _discard(folder: Path) -> None:
    """Delete what is only needed while a run is going on."""
    shutil.rmtree(folder / CHECKPOINT_FOLDER, ignore_errors=True)
    for cut_off in folder.glob(f".{MODEL_FOLDER}-*"):
        shutil.rmtree(cut_off, ignore_errors=True)
    (folder / RUN_FILE).unlink(missing_ok=True)


def _history(log: list[dict[str, Any]]) -> tuple[dict[str, float | None], ...]:
    """Losses and scores of the Trainer's log, one entry a step, times left out."""
    steps: dict[int, dict[str, Any]] = {}
    for entry in log:
        scores = {
            name.removeprefix("eval_"): value
            for name, value in entry.items()
            if name == "loss"
            or (name.startswith("eval_") and not name.endswith(("_runtime", "_per_second")))
        }
        if scores:
            row = steps.setdefault(entry["step"], {"step": entry["step"], "epoch": entry["epoch"]})
            row |= scores
    return tuple(finite(row) for row in steps.values())
