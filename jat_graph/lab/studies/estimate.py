"""How long the cells of a grid take: as long as those that are finished, or as a few steps say."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.kinds import Kind, kind_of
from jat_graph.lab.studies.records import Store
from jat_graph.lab.studies.results import Record
from jat_graph.training.options import TrainingOptions

logger = logging.getLogger(__name__)

MEASURED, TIMED, UNKNOWN = "finished cells", "timed steps", "nothing"


@dataclass(frozen=True)
class Estimate:
    """What is left to do for an arm on a task.

    Args:
        task: Name of the task.
        arm: Name of the arm.
        seeds: Seeds of the cells that are not finished.
        finished: Number of finished cells.
        trials: Runs that the cells wait for and are not finished, as lessons or trials of ρ. Those
            that the cells of several arms wait for are counted for the first of them.
        seconds: Time of one training; None if nothing is known.
        source: What the time is from.
        lessons: Time of these trials. (default: 0.0)
    """

    task: str
    arm: str
    seeds: tuple[int, ...]
    finished: int
    trials: int
    seconds: float | None
    source: str
    lessons: float = 0.0

    @property
    def total(self) -> float | None:
        """Time of all that is left; None if nothing is known."""
        if not self.seeds:
            return 0.0
        return None if self.seconds is None else self.lessons + len(self.seeds) * self.seconds


def estimate_cells(plan: Plan, output: Path, cells: Sequence[Cell] | None = None) -> list[Estimate]:
    """Estimate the time of the cells that are not finished, and write nothing.

    Finished cells say how long they trained, and timed steps how long one would train and score;
    what comes before and after a run, as loading and measuring thresholds, is left out.

    Args:
        plan: What the cells are, and what they are run with.
        output: Folder of the experiment, which need not be there.
        cells: The cells that are meant. (default: None, all)

    Returns:
        An estimate for each task and arm.

    Raises:
        ValueError: If the folder holds another experiment, or a run cannot begin.
        OSError: If data cannot be read.
    """
    kind_of(plan.grid).check_plan(plan)
    finished = Store(plan, output).finished()
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in plan.cells if cells is None else cells:
        groups.setdefault((cell.task, cell.arm), []).append(cell)
    seen: set[str] = set()
    return [_estimate(plan, output, mine, finished, seen) for mine in groups.values()]


def _estimate(
    plan: Plan,
    output: Path,
    cells: Sequence[Cell],
    finished: Mapping[Cell, Record],
    seen: set[str],
) -> Estimate:
    """Estimate the time of an arm on a task; what others wait for too is counted once, and seen."""
    left = [cell for cell in cells if cell not in finished]
    kind = kind_of(plan.grid)
    lessons = {
        run.output_dir: (cell, run)
        for cell in left
        for run in kind.lessons(cell, plan, output)
        if run.output_dir not in seen
    }
    seen.update(lessons)
    same = (cells[0].task, cells[0].arm)
    mine = (record for c, record in finished.items() if (c.task, c.arm) == same)
    times = [record.seconds for record in mine if record.steps]  # else nothing was trained
    timed = None
    if left and not times:
        logger.info("timing a few steps of %s, %s", left[0].task, left[0].arm)
        timed = kind.time(left[0], plan)
    source = MEASURED if times else UNKNOWN if timed is None else TIMED
    return Estimate(
        task=cells[0].task,
        arm=cells[0].arm,
        seeds=tuple(cell.seed for cell in left),
        finished=len(cells) - len(left),
        trials=len(lessons),
        seconds=statistics.mean(times) if times else timed,
        source=source,
        lessons=_time_lessons(kind, plan, lessons.values()),
    )


def _time_lessons(kind: Kind, plan: Plan, lessons: Iterable[tuple[Cell, TrainingOptions]]) -> float:
    """The seconds of lessons, of which those that differ in the seed alone take the same."""
    alike: dict[TrainingOptions, list[tuple[Cell, TrainingOptions]]] = {}
    for cell, run in lessons:
        plain = replace(run, seed=0, model=cell.task, output_dir="any")
        alike.setdefault(plain, []).append((cell, run))
    firsts = ((*same[0], len(same)) for same in alike.values())
    return sum((kind.time(cell, plan, run) or 0.0) * count for cell, run, count in firsts)
