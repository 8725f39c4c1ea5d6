"""How long the cells of a grid take: as finished ones, timed steps or cells like them say."""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.records import Store
from jat_graph.lab.studies.results import Record
from jat_graph.lab.studies.timing import Job, forget_samples
from jat_graph.training.estimate import Cost, describe_bytes, describe_time
from jat_graph.training.options import TrainingOptions

logger = logging.getLogger(__name__)

MEASURED, TIMED, UNKNOWN = "finished cells", "timed steps", "nothing"
# Seconds in which steps are timed, and in which data are read to guess what was not timed.
TIMING, READING = 4.0, 8.0
# Seconds of a core that imports take before, with which all of it is answered within twenty; after
# a slower start there is less time for the rest.
STARTING = 6.0

Group: TypeAlias = tuple[str, str]  # a task and an arm


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
        memory: Bytes that a training takes at its peak; None if they are not known.
            (default: None)
    """

    task: str
    arm: str
    seeds: tuple[int, ...]
    finished: int
    trials: int
    seconds: float | None
    source: str
    lessons: float = 0.0
    memory: int | None = None

    @property
    def total(self) -> float | None:
        """Time of all that is left; None if nothing is known."""
        if not self.seeds:
            return 0.0
        return None if self.seconds is None else self.lessons + len(self.seeds) * self.seconds


def estimate_cells(
    plan: Plan, output: Path, cells: Sequence[Cell] | None = None, *, waited: float = 0.0
) -> list[Estimate]:
    """Estimate the time of the cells that are not finished, and write nothing.

    Finished cells say how long they trained, and a timed step how long one would train and score.
    After a few seconds nothing is timed any more: cells are then guessed from others, by how many
    tokens they train on, and after a few more nothing is said of cells whose data are not read.
    What comes before and after a run, as loading and measuring thresholds, is left out.

    Args:
        plan: What the cells are, and what they are run with.
        output: Folder of the experiment, which need not be there.
        cells: The cells that are meant. (default: None, all)
        waited: Seconds for which whoever asks has waited already. (default: 0.0)

    Returns:
        An estimate for each task and arm.

    Raises:
        ValueError: If the folder holds another experiment, or a run cannot begin.
        OSError: If data cannot be read.
    """
    kind_of(plan.grid).check_plan(plan)
    return estimate_left(Store(plan, output), plan.cells if cells is None else cells, waited)


def estimate_left(store: Store, cells: Sequence[Cell], waited: float = 0.0) -> list[Estimate]:
    """Estimate what is left of some cells of an experiment or a comparison."""
    groups: dict[Group, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.task, cell.arm), []).append(cell)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            clock = _Clock(store.plan, Path(scratch), store.finished(), waited)
            clock.time(groups)
            seen: set[str] = set()
            return [_estimate(clock, store.output, group, groups[group], seen) for group in groups]
        finally:
            forget_samples()


def describe_total(estimates: Sequence[Estimate], jobs: int = 1) -> str:
    """Say what is left takes in all."""
    totals = [entry.total for entry in estimates]
    known = [total for total in totals if total is not None]
    if not any(entry.seeds for entry in estimates):
        return "Nothing is left to do."
    if not known or (len(known) < len(totals) and not any(known)):
        return "How long it takes is not known before a cell is finished."
    missing = len(totals) - len(known)
    rest = f", and {missing} arms of which nothing is known" if missing else ""
    how = "one after another" if jobs == 1 else f"{jobs} at a time if they do not slow each other"
    shared = sum(entry.lessons for entry in estimates)
    first = f", of which {describe_time(shared / jobs)} are shared" if shared else ""
    most = max((entry.memory or 0 for entry in estimates), default=0)
    memory = f" A run takes about {describe_bytes(most)} of memory." if most else ""
    return (
        f"About {describe_time(sum(known) / jobs)} of training here{first}, {how}{rest}; loading "
        f"and measuring come on top.{memory}"
    )


class _Clock:
    """What cells take of each task and arm: known, timed while there is time, or guessed."""

    def __init__(
        self, plan: Plan, scratch: Path, finished: Mapping[Cell, Record], waited: float
    ) -> None:
        self._plan, self._scratch, self.finished = plan, scratch, finished
        self._begin = time.monotonic() - max(0.0, waited - STARTING)
        self._jobs: dict[Group, Job | None] = {}
        self._known: dict[Group, tuple[Cost, str]] = {}

    def time(self, groups: Mapping[Group, Sequence[Cell]]) -> None:
        """Read what finished cells took, and time steps of those of which there are none."""
        for group, cells in sorted(groups.items(), key=self._order):
            times = [
                r.seconds for r in self.finished.values() if (r.task, r.arm) == group and r.steps
            ]
            self._jobs[group] = self.job(cells[0])
            job, left = self._jobs[group], TIMING - self._passed
            if times:
                self._known[group] = (Cost(statistics.mean(times)), MEASURED)
            elif job is not None and not self.is_finished(cells) and (left > 0 or not self._known):
                logger.info("timing a step of %s, %s", *group)
                self._known[group] = (job.time(left), TIMED)

    def cost(self, group: Group) -> tuple[Cost | None, str]:
        """What a cell takes, and what says so."""
        if group in self._known:
            return self._known[group]
        like, job = self._like(group), self._jobs[group]
        if like is None or job is None or self._passed > READING:
            return None, UNKNOWN
        return Cost(self._rate(like) * job.size), f"like {', '.join(like)}"

    def seconds_of(self, group: Group, cell: Cell, lesson: TrainingOptions) -> float:
        """What a lesson takes, at the pace of the cells that wait for it."""
        like = self._like(group)
        job = self.job(cell, lesson if self._passed < READING else None)  # about as long as a cell
        return 0.0 if like is None or job is None else self._rate(like) * job.size

    def job(self, cell: Cell, lesson: TrainingOptions | None = None) -> Job | None:
        """What is done in a cell, or in a lesson that it waits for."""
        return kind_of(self._plan.grid).job(cell, self._plan, self._scratch, lesson)

    def lessons(self, cell: Cell, output: Path) -> list[TrainingOptions]:
        """The trainings that a cell waits for."""
        return kind_of(self._plan.grid).lessons(cell, self._plan, output)

    def is_finished(self, cells: Sequence[Cell]) -> bool:
        """Whether nothing is left of some cells."""
        return all(cell in self.finished for cell in cells)

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._begin

    def _order(self, entry: tuple[Group, Sequence[Cell]]) -> tuple[int, int]:
        """First what others can be guessed from: all arms of a task, or all models with an arm."""
        task, arm = entry[0]
        grid = self._plan.grid
        place = grid.tasks.index(task), grid.arms.index(grid.arm(arm))
        return place[::-1] if kind_of(grid).task_is_model else place

    def _like(self, group: Group) -> Group | None:
        """The cells that are most like some of which nothing is known, or these themselves."""
        first = 0 if kind_of(self._plan.grid).task_is_model else 1
        known = [other for other in self._known if self._jobs[other] is not None]
        return min(
            known,
            key=lambda other: (other[first] != group[first], other[1 - first] != group[1 - first]),
            default=None,
        )

    def _rate(self, group: Group) -> float:
        job = self._jobs[group]
        return self._known[group][0].seconds / (job.size if job is not None else 1.0)


def _estimate(
    clock: _Clock, output: Path, group: Group, cells: Sequence[Cell], seen: set[str]
) -> Estimate:
    """Estimate the time of an arm on a task; what others wait for too is counted once, and seen."""
    left = [cell for cell in cells if cell not in clock.finished]
    lessons = {
        run.output_dir: (cell, run)
        for cell in left
        for run in clock.lessons(cell, output)
        if run.output_dir not in seen
    }
    seen.update(lessons)
    cost, source = clock.cost(group)
    waited = 0.0
    if cost is not None:
        waited = sum(clock.seconds_of(group, cell, run) for cell, run in lessons.values())
    return Estimate(
        *group,
        seeds=tuple(cell.seed for cell in left),
        finished=len(cells) - len(left),
        trials=len(lessons),
        seconds=None if cost is None else cost.seconds,
        source=source,
        lessons=waited,
        memory=None if cost is None else cost.memory,
    )
