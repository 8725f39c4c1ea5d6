"""Run the cells of a grid that are not finished, and gather what is."""

from __future__ import annotations

import logging
import os
import shutil
from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

from jat_graph.files import write_text
from jat_graph.lab.store import locked
from jat_graph.lab.studies.captions import counted
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.drawings import drawings_of
from jat_graph.lab.studies.grid import task_of
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.records import RECORD_FILE, Store
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import experiment_rows
from jat_graph.lab.studies.tables import experiment_markdown
from jat_graph.lab.tables import SECONDS
from jat_graph.tasks import get_task
from jat_graph.training.data import drawn_rows
from jat_graph.training.loading import check_heads
from jat_graph.training.objectives import objective_for
from jat_graph.training.runner import require_extra
from jat_graph.training.storage import MODEL_FOLDER, prepare_folder, reason
from jat_graph.viz import save_figure

# What a cell may fail with without anything being wrong with the others.
_FAILURES = (ValueError, OSError, RuntimeError, ImportError)

logger = logging.getLogger(__name__)


class CellsFailedError(RuntimeError):
    """Some cells of an experiment failed; the others are finished and written."""


def run_experiment(
    plan: Plan,
    output: str | Path,
    *,
    jobs: int = 1,
    part: tuple[int, int] = (1, 1),
    tasks: Sequence[str] = (),
    arms: Sequence[str] = (),
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
        tasks: Only cells of these tasks. (default: of all)
        arms: Only cells of these arms. (default: of all)
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
    cells = plan.choose(part, tasks, arms)
    kind_of(plan.grid).check_plan(plan)
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
    """Write ``NAME.md``, the table, and ``NAME.png``, the picture, beside the results.

    Further pictures show how cells did on the way, what they took, and which heads chose to jump.
    """
    rows = experiment_rows(results)
    text = f"# {results.grid.title}\n\n{experiment_markdown(results, rows)}\n"
    write_text(folder / f"{results.grid.name}.md", text)
    if find_spec("matplotlib") is None:
        logger.warning("no picture: it needs matplotlib (pip install 'jat_graph[viz]')")
        return
    for drawing in drawings_of(results, rows):
        save_figure(drawing.draw(), folder / f"{drawing.name}.png")


def check_data(plan: Plan, cells: Sequence[Cell]) -> None:
    """Refuse data that cannot be read, before anything is run or written."""
    if not kind_of(plan.grid).reads_data:
        return
    for cell in {cell.task: cell for cell in cells}.values():
        drawn_rows(plan.options(cell, Path("output"), task=task_of(plan.grid, cell.task).name))


def check_cells(store: Store) -> None:
    """Refuse heads that do not fit, and data that cannot be read, before a first arm is trained."""
    plan, finished = store.plan, store.finished()
    left = [cell for cell in plan.cells if cell not in finished]
    for cell in {cell.arm: cell for cell in left}.values():
        options = plan.options(cell, store.folder(cell))
        check_heads(objective_for(get_task(options.task), options), plan.heads(cell))
    check_data(plan, left)


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


@dataclass(frozen=True)
class Outcome:
    """What came of a cell.

    Args:
        cell: Which one was run.
        error: Why it failed, in one line. (default: None)
        elsewhere: Whether another process is at it. (default: False)
    """

    cell: Cell
    error: str | None = None
    elsewhere: bool = False

    def __str__(self) -> str:
        """Say what came of it."""
        if self.error is not None:
            return f"failed, {self.error}"
        return "another process is at it" if self.elsewhere else "finished"


def run_cells(
    cells: Sequence[Cell], plan: Plan, output: Path, *, jobs: int = 1, progress: bool = True
) -> Iterator[Outcome]:
    """Run cells; one that fails does not stop the others, nor does one whose process is killed."""
    if jobs == 1:
        for cell in cells:
            yield run_one(cell, plan, output, progress)
        return
    left = deque(cells)
    while left:
        cut = yield from _run_pool(left, plan, output, jobs)
        for cell in cut:  # which of them was too large is seen when each has the machine for itself
            if (yield from _run_pool(deque([cell]), plan, output, 1)):
                yield Outcome(cell, "its process was killed, as happens where memory runs out")


def _run_pool(
    left: deque[Cell], plan: Plan, output: Path, jobs: int
) -> Generator[Outcome, None, list[Cell]]:
    """Run cells in processes; return those that were running when one of the processes died."""
    import torch

    threads = max(1, torch.get_num_threads() // jobs)
    pool = ProcessPoolExecutor(
        min(jobs, len(left)), get_context("spawn"), torch.set_num_threads, (threads,)
    )
    running: dict[Future[Outcome], Cell] = {}
    with pool:
        try:
            while left or running:
                while left and len(running) < jobs:  # no more, so that those begun are known
                    cell = _choose(left, running.values(), plan, output)
                    left.remove(cell)
                    running[pool.submit(run_one, cell, plan, output, False)] = cell
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield future.result()
                    del running[future]
        except BrokenProcessPool:
            return list(running.values())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return []


def _choose(left: Sequence[Cell], running: Collection[Cell], plan: Plan, output: Path) -> Cell:
    """Return a cell that need not wait until a running one has learnt what they share.

    Those that have lessons to learn come first: the other arms of their encoder wait for these, and
    at the end of a grid there would be nothing else to run meanwhile.
    """

    def lessons(cell: Cell) -> set[str]:
        waiting = kind_of(plan.grid).lessons(cell, plan, output)
        return {lesson.output_dir for lesson in waiting}

    busy = set[str]().union(*map(lessons, running))
    free = {cell: found for cell in left if not busy & (found := lessons(cell))}
    return next((cell for cell in free if free[cell]), next(iter(free), left[0]))


def run_one(cell: Cell, plan: Plan, output: Path, progress: bool) -> Outcome:
    """Run one cell and write its record, unless another process is at it."""
    try:
        return Outcome(cell, elsewhere=not finish_cell(cell, Store(plan, output), progress))
    except _FAILURES as error:
        return Outcome(cell, reason(error))


def finish_cell(cell: Cell, store: Store, progress: bool, *, wait: bool = False) -> bool:
    """Run a cell and write its record, where there is none; False if another process is at it."""
    plan, folder = store.plan, store.folder(cell)
    main = plan.processes.on_main
    with ExitStack() as stack:
        if not main(lambda: stack.enter_context(locked(folder, wait=wait))):
            return False
        if not main((folder / RECORD_FILE).exists):  # another process may have finished it
            record = kind_of(plan.grid).run_cell(cell, plan, folder, progress)
            main(lambda: store.save(record))
            if plan.processes.is_main and not plan.keep_models:
                shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
    return True
