"""The commands ``train`` and ``eval``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from jat_graph.cli.beforehand import check_heads
from jat_graph.cli.inputs import INTERRUPTED, ModelOption
from jat_graph.cli.options import EvalOptions, JatOptions, RunOptions, TripletOptions, gather
from jat_graph.files import check_data_folder, check_target
from jat_graph.progress import has_terminal
from jat_graph.tasks import TASK_NAMES, get_task
from jat_graph.training import Metrics, TrainingOptions
from jat_graph.training.storage import (
    CHECKPOINT_FOLDER,
    RUN_FILE,
    check_unused,
    refuse_single_run,
    write_json,
)

if TYPE_CHECKING:
    from jat_graph.config import JatConfig
    from jat_graph.training.heads import Heads

TaskOption = Annotated[str, typer.Option(help=f"Name of the task: {', '.join(TASK_NAMES)}.")]
DataOption = Annotated[
    Path | None,
    typer.Option(help="Folder with the task's original files; some tasks come from the Hub."),
]


@gather(jat=JatOptions, triplet=TripletOptions, run=RunOptions)
def train_command(
    model: ModelOption,
    task: TaskOption,
    jat: JatOptions,
    triplet: TripletOptions,
    run: Any,
    data_dir: DataOption = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for model and results. Default: jat_graph_TASK.")
    ] = None,
    base: Annotated[bool, typer.Option("--base", help="Train without jump heads.")] = False,
    density: Annotated[
        float | None, typer.Option(help="First calibrate thresholds to this density.")
    ] = None,
    compare_arms: Annotated[
        bool, typer.Option("--compare", help="Also train the base model, on the same seeds.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="Number of seeds for --compare.")] = 3,
    arm: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE.json: an arm of --compare; repeat for several."),
    ] = None,
) -> None:
    """Train a model with jump heads on a task; --compare sets it against the base.

    Without any option of jump attention the paper's settings are used. torchrun and accelerate
    launch start it in several processes (docs: Clusters).
    """
    from jat_graph.training.processes import join_others, one_voice

    with one_voice(), _naming_options():
        options = TrainingOptions(
            model=model,
            task=task,
            output_dir=str(output or f"jat_graph_{task}"),
            data_dir=None if data_dir is None else str(data_dir),
            **asdict(run) | {"trainer": dict(_read_setting(text) for text in run.trainer or ())},
        )
        jumps = density is not None or jat != JatOptions()
        _check_choice(base, compare_arms, seeds, arm, jumps, triplet != TripletOptions())
        given = dict(_read_arm(text) for text in arm or ())
        check_folder = refuse_single_run if compare_arms else check_unused
        try:
            processes = join_others(options)
            processes.on_main(lambda: _check(options, jat, triplet, density))
            processes.on_main(lambda: check_folder(options))
            from jat_graph.training import train
            from jat_graph.training.heads import name_of

            config = None if base or arm else _heads(options, jat, triplet, density)
            if compare_arms:
                _compare(options, {"base": None, **(given or {name_of(config): config})}, seeds)
            else:
                result = train(options, config, progress=has_terminal(), estimate=True)
                _print_metrics(result.metrics)
                Console().print(f"Model and results are in {options.output_dir}.")
        except KeyboardInterrupt:
            _say_how_to_go_on(options, compare_arms)
            raise SystemExit(INTERRUPTED) from None


@gather(run=EvalOptions)
def eval_command(
    model: ModelOption,
    task: TaskOption,
    run: Any,
    data_dir: DataOption = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the scores to this file.")
    ] = None,
) -> None:
    """Score a trained model on the dev sets of a task."""
    from jat_graph.training.processes import is_main, join_others, one_voice

    check_target(json_file)
    with one_voice():
        folder = None if data_dir is None else str(data_dir)
        given = {name: value for name, value in asdict(run).items() if value is not None}
        options = TrainingOptions(model, task, ".", folder, **given)
        join_others(options).on_main(lambda: _check(options, JatOptions(), TripletOptions(), None))
        from jat_graph.training import evaluate

        metrics = evaluate(model, task, folder, **asdict(run), progress=has_terminal())
        _print_metrics(metrics)
        if json_file is not None and is_main():
            write_json(json_file, {"model": model, "task": task, "metrics": metrics})


@contextmanager
def _naming_options() -> Iterator[None]:
    """Let what is said of a folder with other settings name them as the command line does."""
    names = {field.name for kind in (RunOptions, JatOptions) for field in fields(kind)}
    names |= {"data_dir", "density", "model", "task"}

    def option(setting: re.Match[str]) -> str:
        name = setting[1]
        return f"--{name.replace('_', '-')} " if name in names else setting[0]

    try:
        yield
    except ValueError as error:
        named = re.sub(r"(?<= holds a run with )(\w+)[=.]", option, str(error))
        if named == str(error):
            raise
        raise ValueError(named) from None


def _say_how_to_go_on(options: TrainingOptions, compare_arms: bool) -> None:
    """Say in one line what an interrupted command left behind."""
    from jat_graph.training.processes import is_main
    from jat_graph.training.storage import last_checkpoint, run_folder

    if compare_arms:
        said = "the same command goes on where it stopped"
    elif last_checkpoint(run_folder(options) / CHECKPOINT_FOLDER) is not None:
        said = "the same command with --resume goes on where it was saved last"
    elif (run_folder(options) / RUN_FILE).exists():
        said = "nothing was saved yet; the same command with --resume begins again"
    else:
        said = "nothing was begun"
    if is_main():
        typer.echo(f"interrupted; {said}", err=True)


def _check_choice(
    base: bool, compare_arms: bool, seeds: int, arm: list[str] | None, jumps: bool, triplets: bool
) -> None:
    """Refuse options that exclude each other; heads are described by their own options."""
    if base and compare_arms:
        raise ValueError("--base and --compare exclude each other: a comparison has a base arm")
    if compare_arms and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    if arm and not compare_arms:
        raise ValueError("--arm needs --compare")
    if triplets and (base or arm):
        raise ValueError("--triplet takes neither --base nor --arm")
    if base and jumps:
        raise ValueError(
            "--base takes neither --density nor an option of jump attention; a pattern alone is "
            "--pattern with --hop-weights 1"
        )
    if arm and jumps:
        raise ValueError(
            "--arm takes its settings from its file: leave out --density and options of jump "
            "attention"
        )


def _check(
    options: TrainingOptions, jat: JatOptions, triplet: TripletOptions, density: float | None
) -> None:
    """Refuse what can be refused with nothing imported; a model's own heads are not known."""
    from jat_graph.config import JatConfig, check_calibration

    jump = jat.resolve(JatConfig()) or JatConfig()
    if density is not None:
        check_calibration(density, jump)
    told = jump if jat != JatOptions() or density is not None else None
    check_heads(options.model, (told, triplet.resolve()), options.depth)
    get_task(options.task)
    check_data_folder(options.data_dir)


def _heads(
    options: TrainingOptions, jat: JatOptions, triplet: TripletOptions, density: float | None
) -> Heads | None:
    """The settings of the heads; None leaves a model saved with heads of ours as it is."""
    from jat_graph.config import JatConfig
    from jat_graph.training.heads import join_kinds
    from jat_graph.training.measuring import calibrate_once
    from jat_graph.training.pretrained import has_own_heads, load_config
    from jat_graph.training.processes import join

    jumps, triplets = density is not None or jat != JatOptions(), triplet != TripletOptions()

    def settings() -> Heads | None:
        has_own = has_own_heads(load_config(options.model))
        if has_own and (jumps or triplets):
            raise ValueError(
                f"model {options.model!r} has jump heads or triplet heads already: train it "
                "without options that describe some"
            )
        default = None if has_own or (triplets and not jumps) else JatConfig()
        return join_kinds(jat.resolve(default), triplet.resolve())

    config = join(options).agree(settings)
    if density is None or config is None:
        return config
    return calibrate_once(options, config, density)


def _read_setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"--trainer must be NAME=VALUE, got {text!r}")
    return name, value


def _read_arm(text: str) -> tuple[str, JatConfig]:
    from jat_graph.config import JatConfig

    name, separator, file = text.partition("=")
    if not separator or not name or not file:
        raise ValueError(f"--arm must be NAME=FILE.json, got {text!r}")
    return name, JatConfig.load(file)


def _compare(options: TrainingOptions, arms: Mapping[str, Heads | None], count: int) -> None:
    from jat_graph.lab.comparison import comparison_table
    from jat_graph.training import compare

    seeds = range(options.seed, options.seed + count)
    console = Console()
    found = compare(options, arms, list(seeds), progress=has_terminal(), estimate=True)
    console.print(comparison_table(found))
    console.print(f"Results are in {options.output_dir}.")


def _print_metrics(metrics: Metrics) -> None:
    table = Table("dev set", "metric", "score")
    for split, scores in metrics.items():
        for name, value in scores.items():
            table.add_row(split, name, "undefined" if value is None else f"{value:.4f}")
    Console().print(table)
