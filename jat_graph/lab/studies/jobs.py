"""Run cells one after another, or several at a time in processes of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from jat_graph.lab.store import locked
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.records import RECORD_FILE, Store
from jat_graph.training.storage import reason

# What a cell may fail with without anything being wrong with the others.
_FAILURES = (ValueError, OSError, RuntimeError, ImportError)


@dataclass(frozen=True)
class Outcome:
    """What came of a cell.

    Args:
        cell: The cell.
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
        min(jobs, len(left)), get_context("spawn"), _limit_threads, (threads,)
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
        store = Store(plan, output)
        folder = store.folder(cell)
        with locked(folder, wait=False) as free:
            if not free:
                return Outcome(cell, elsewhere=True)
            if not (folder / RECORD_FILE).exists():  # another process may have finished it
                store.save(kind_of(plan.grid).run_cell(cell, plan, folder, progress))
    except _FAILURES as error:
        return Outcome(cell, reason(error))
    return Outcome(cell)


def _limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
