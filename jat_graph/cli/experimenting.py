"""The command ``experiment``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from jat_graph.checks.numbers import check_choice, check_integer
from jat_graph.cli.inputs import INTERRUPTED
from jat_graph.files import check_data_folder, check_model_name, write_text
from jat_graph.lab.grids import grid_names, grid_path, makes_models, needs_model
from jat_graph.progress import has_terminal

if TYPE_CHECKING:
    from jat_graph.lab.studies import Cell, Estimate, Grid


def experiment_command(
    name: Annotated[
        str, typer.Argument(help=f"One of {', '.join(grid_names())}; or a file FILE.toml.")
    ],
    model: Annotated[
        str | None, typer.Option(help="Folder or Hub name of the model, if one is needed.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder that holds the tasks' original files.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the results. Default: experiment-NAME.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds. Default: the grid's.")] = None,
    jobs: Annotated[int, typer.Option(help="Cells at a time, each in its own process.")] = 1,
    part: Annotated[
        str, typer.Option(help="I/N: only part I of N, from 1; parts share an output folder.")
    ] = "1/1",
    task: Annotated[
        list[str] | None, typer.Option(help="Only cells of this task; may be given again.")
    ] = None,
    arm: Annotated[
        list[str] | None, typer.Option(help="Only cells of this arm; may be given again.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto or cpu.")] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run and how long it takes.")
    ] = False,
    copy: Annotated[
        Path | None, typer.Option(help="Only copy the grid to this file, to change it.")
    ] = None,
) -> None:
    """Make a table or a figure of the paper on your own model.

    Each cell, a task with an arm and a seed, is run on its own. A command that was interrupted goes
    on when it is given again; finished cells are not repeated.
    """
    path = grid_path(name)
    place = _read_part(part)
    if copy is not None:
        _copy(path, copy)
        return
    check_integer("--jobs", jobs, least=1)
    check_choice("--device", device, ("auto", "cpu"))
    if seeds is not None:
        check_integer("--seeds", seeds, least=1)
    _check_model(path, model)
    check_data_folder(data_dir)
    from jat_graph.lab.studies import Plan, estimate_cells, load_grid, run_experiment
    from jat_graph.lab.studies.cells import SCRATCH
    from jat_graph.lab.studies.estimate import describe_total
    from jat_graph.lab.studies.running import check_jobs

    grid = load_grid(name)
    plan = Plan(
        grid if seeds is None else grid.with_seeds(seeds), model or SCRATCH, data_dir, device
    )
    check_jobs(plan, jobs)
    folder = output or Path(f"experiment-{grid.name}")
    tasks, arms = tuple(task or ()), tuple(arm or ())
    cells = plan.choose(place, tasks, arms)
    try:
        estimates = estimate_cells(plan, folder, cells, waited=time.process_time())
        if dry_run:
            _print_estimates(grid, cells, estimates, jobs)
            return
        Console(stderr=True).print(describe_total(estimates, jobs), soft_wrap=True)
        run_experiment(
            plan,
            folder,
            jobs=jobs,
            part=place,
            tasks=tasks,
            arms=arms,
            progress=has_terminal() and jobs == 1,
        )
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command goes on where it stopped", err=True)
        raise SystemExit(INTERRUPTED) from None
    shown = (
        f"the table is {grid.name}.md" if place == (1, 1) else "without --part the table is made"
    )
    Console().print(f"Results are in {folder}; {shown}.", soft_wrap=True)


def _check_model(path: Path, model: str | None) -> None:
    if model is None and needs_model(path):
        raise ValueError("an experiment needs --model, a folder or a Hub name")
    if model is not None and makes_models(path):
        raise ValueError(f"experiment {path.stem} makes its own models: leave out --model")
    if model is not None:
        check_model_name(model)


def _copy(source: Path, target: Path) -> None:
    if target.suffix != ".toml":
        raise ValueError(f"--copy must be a file name ending in .toml, got {str(target)!r}")
    if target.exists():
        raise ValueError(f"--copy must be a new file, but {target} is there")
    write_text(target, source.read_text(encoding="utf-8"))
    Console().print(f"The grid is in {target}: change it, and run jat-graph experiment {target}.")


def _read_part(text: str) -> tuple[int, int]:
    first, separator, second = text.partition("/")
    if not separator or not first.isdecimal() or not second.isdecimal():
        raise ValueError(f"--part must be I/N, as 2/8, got {text!r}")
    index, count = int(first), int(second)
    if not 1 <= index <= count:
        raise ValueError(f"--part must be I/N with I from 1 to N, got {text!r}")
    return index, count


def _print_estimates(
    grid: Grid, cells: Sequence[Cell], estimates: Sequence[Estimate], jobs: int
) -> None:
    from pandas import DataFrame

    from jat_graph.lab.studies.estimate import describe_total
    from jat_graph.lab.tables import NOTHING, terminal_table
    from jat_graph.training.estimate import describe_time

    rows = [
        (
            entry.task,
            entry.arm,
            ", ".join(map(str, entry.seeds)) or NOTHING,
            str(entry.finished),
            str(entry.trials),
            "unknown" if entry.seconds is None else describe_time(entry.seconds),
            entry.source,
        )
        for entry in estimates
    ]
    columns = ["task", "arm", "seeds to run", "finished", "shared", "one run", "from"]
    words = ("task", "arm", "seeds to run", "from")
    console = Console()
    console.print(terminal_table(DataFrame(rows, columns=columns), words))
    left, trials = sum(len(e.seeds) for e in estimates), sum(e.trials for e in estimates)
    console.print(
        f"{len(cells)} cells, {len(cells) - left} of them finished; {left} to run, and {trials} "
        f"trainings that they share. {describe_total(estimates, jobs)}",
        soft_wrap=True,
    )
    if grid.budget:
        console.print(f"The grid: {grid.budget}.", soft_wrap=True)
