"""How long the cells of a grid take: as long as those that are finished, or as a few steps say."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jat_graph.experiments.cells import Cell, Plan
from jat_graph.experiments.records import Store
from jat_graph.experiments.timing import time_run
from jat_graph.experiments.tuning import TRIAL_FILE, tuning_folders

logger = logging.getLogger(__name__)

MEASURED, TIMED, UNKNOWN = "finished cells", "timed steps", "nothing"


@dataclass(frozen=True)
class Estimate:
    """What is left to do for an arm on a task.

    Args:
        task: The task.
        arm: Name of the arm.
        seeds: Seeds of the cells that are not finished.
        finished: Number of finished cells.
        trials: Runs that choose ρ and are not finished.
        seconds: Time of one training; None if nothing is known.
        source: What the time is from.
    """

    task: str
    arm: str
    seeds: tuple[int, ...]
    finished: int
    trials: int
    seconds: float | None
    source: str

    @property
    def total(self) -> float | None:
        """Time of all that is left; None if nothing is known."""
        runs = len(self.seeds) + self.trials
        return 0.0 if runs == 0 else None if self.seconds is None else runs * self.seconds


def estimate_cells(plan: Plan, output: Path, cells: Sequence[Cell] | None = None) -> list[Estimate]:
    """Estimate the time of the cells that are not finished, and write nothing.

    Finished cells say how long they trained, and timed steps how long one would train and score;
    what comes before and after a run, as loading and measuring thresholds, is left out.

    Args:
        plan: The plan.
        output: Folder of the experiment, which need not be there.
        cells: The cells that are meant. (default: None, all)

    Returns:
        An estimate for each task and arm.

    Raises:
        ValueError: If the folder holds another experiment, or a run cannot begin.
        OSError: If data cannot be read.
    """
    plan.check()
    finished = Store(plan, output).finished()
    meant = plan.cells if cells is None else cells
    seen: set[Path] = set()
    found = []
    for task, arm in dict.fromkeys((cell.task, cell.arm) for cell in meant):
        mine = [cell for cell in meant if (cell.task, cell.arm) == (task, arm)]
        left = [cell for cell in mine if cell not in finished]
        trials = _trials(plan, left, output) - seen
        seen |= trials
        times = [r.seconds for cell, r in finished.items() if (cell.task, cell.arm) == (task, arm)]
        seconds, source = statistics.mean(times) if times else None, MEASURED if times else UNKNOWN
        if left and not times and _trains(plan):
            logger.info("timing a few steps of %s, %s", task, arm)
            seconds, source = time_run(plan, left[0]), TIMED
        seeds = tuple(cell.seed for cell in left)
        found.append(
            Estimate(task, arm, seeds, len(mine) - len(left), len(trials), seconds, source)
        )
    return found


def describe_time(seconds: float) -> str:
    """Return a time in words.

    Args:
        seconds: The time.

    Returns:
        ``"40 s"``, ``"12 min"`` or ``"3 h 20 min"``.
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def _trains(plan: Plan) -> bool:
    """Tell whether cells are runs of ``train``, which a few steps can be timed of."""
    grid = plan.grid
    return grid.kind == "train" or (
        grid.kind == "connections" and grid.own.get("model", "trained") == "trained"
    )


def _trials(plan: Plan, cells: Sequence[Cell], output: Path) -> set[Path]:
    """Return the folders of the trials that the cells wait for."""
    folders = {folder for cell in cells for folder in tuning_folders(plan, cell, output).values()}
    return {folder for folder in folders if not (folder / TRIAL_FILE).exists()}
