"""Run the cells of a grid that are not finished, and gather what is."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from jat_graph.files import write_text
from jat_graph.lab.studies.captions import counted
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.examples import count_examples
from jat_graph.lab.studies.jobs import Outcome, run_cells
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.picture import can_draw, draw_experiment
from jat_graph.lab.studies.records import Store
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import experiment_rows
from jat_graph.lab.studies.tables import experiment_markdown
from jat_graph.lab.tables import SECONDS
from jat_graph.training.runner import require_extra
from jat_graph.training.storage import prepare_folder
from jat_graph.viz import save_figure

logger = logging.getLogger(__name__)


class CellsFailedError(RuntimeError):
    """Some cells of an experiment failed; the others are finished and written."""


def run_experiment(
    plan: Plan,
    output: str | Path,
    *,
    jobs: int = 1,
    part: tuple[int, int] = (1, 1),
    progress: bool = True,
) -> Results:
    """Run all cells of a grid that are not finished.

    Each cell is run in a folder of its own, ``runs/TASK/ARM/seed-N``, and goes on where it was
    interrupted, so that a command can be given again, and several machines can run parts of one
    grid into one folder. ``results.jsonl`` there has all finished cells; ``NAME.md`` and
    ``NAME.png`` show them, once there is a call without ``part``.

    Args:
        plan: The grid, the model and the data.
        output: Folder of the experiment.
        jobs: Cells at a time. (default: 1)
        part: ``(i, n)``: only part i of n equal parts, from 1. (default: (1, 1), all)
        progress: Show a bar for each run. (default: True)

    Returns:
        All finished cells, those of other parts too.

    Raises:
        ValueError: If the model does not fit the grid, an argument does not fit, or the folder
            holds another experiment.
        OSError: If the data cannot be read, or the folder cannot be written to.
        CellsFailedError: If a cell failed, when all others are through.
    """
    require_extra()
    check_alone()
    check_jobs(plan, jobs)
    cells = plan.part(*part)
    plan.check()
    store = Store(plan, Path(output))
    finished = store.finished()
    todo = [cell for cell in cells if cell not in finished]
    check_data(plan, todo)
    folder = prepare_folder(output)
    logger.info("%d cells, %d of them finished", len(cells), len(cells) - len(todo))
    failed: list[Outcome] = []
    outcomes = run_cells(todo, plan, folder, jobs=jobs, progress=progress)
    for number, outcome in enumerate(outcomes, start=1):
        logger.info("%d of %d: %s: %s", number, len(todo), outcome.cell, outcome)
        if outcome.error is not None:
            failed.append(outcome)
        elif part == (1, 1) and not outcome.elsewhere:
            store.gather()
    results = store.gather()
    if part == (1, 1):  # parts that end together would overwrite each other's tables
        show_results(results, folder)
    if failed:
        raise CellsFailedError(
            f"{len(failed)} of {counted(len(todo), 'cell')} failed; the first: {failed[0].cell}: "
            f"{failed[0].error}"
        )
    return results


def show_results(results: Results, folder: Path) -> None:
    """Write ``NAME.md``, the table, and ``NAME.png``, the picture, beside the results."""
    rows = experiment_rows(results)
    name, title = results.grid.name, results.grid.title
    write_text(folder / f"{name}.md", f"# {title}\n\n{experiment_markdown(results, rows)}\n")
    if find_spec("matplotlib") is None:
        logger.warning("no picture: it needs matplotlib (pip install 'jat_graph[viz]')")
    elif can_draw(results, rows):
        save_figure(draw_experiment(results, rows), folder / f"{name}.png")


def check_data(plan: Plan, cells: Sequence[Cell]) -> None:
    """Refuse data that cannot be read, before anything is run or written."""
    task = kind_of(plan.grid).task
    for cell in {cell.task: cell for cell in cells}.values():
        count_examples(plan.options(cell, Path("output"), task=task or cell.task))


def check_jobs(plan: Plan, jobs: int) -> None:
    """Refuse a number of cells at a time that a plan cannot be run with."""
    if jobs < 1:
        raise ValueError(f"jobs must be a positive integer, got {jobs}")
    if jobs > 1 and SECONDS in plan.grid.columns:
        raise ValueError(
            f"jobs must be 1 where times are compared, as cells slow each other, got {jobs}"
        )


def check_alone() -> None:
    """Refuse to run in one of several processes that a launcher started."""
    count = os.environ.get("WORLD_SIZE", "1")
    if count not in ("", "0", "1"):
        raise ValueError(
            f"an experiment runs each cell in one process, got {count} of a launcher: use --jobs "
            "or --part; jat-graph train runs one training in many"
        )
