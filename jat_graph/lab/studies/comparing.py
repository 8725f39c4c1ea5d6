"""Every arm of an experiment against its base: scores over the seeds, and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jat_graph.lab.studies.bootstrap import interval, paired_bootstrap
from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.grid_parts import SECONDS, GridArm
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.rows import Change, Row, mean_rows, over_seeds
from jat_graph.lab.studies.sums import Measure, Scorer, scorer


def experiment_rows(results: Results) -> tuple[Row, ...]:
    """Compare all arms of an experiment with their bases."""
    table = _Table(results)
    rows = [table.row(place, arm) for place in table.places() for arm in table.arms(place.task)]
    return (*rows, *mean_rows(results.grid, rows))


def reference_arm(grid: Grid, arm: GridArm) -> GridArm:
    """Return what an arm is compared with."""
    line = grid.base.line
    return next((a for a in grid.arms if line and a.line == line and a.x == arm.x), grid.base)


@dataclass(frozen=True)
class _Place:
    """Where scores are looked up."""

    task: str
    split: str
    metric: str

    def value(self, record: Record) -> float | None:
        """Return a record's score; None if it has none."""
        return record.seconds if self.metric == SECONDS else record.score(self.split, self.metric)


class _Table:
    """Finished cells by task, arm and seed."""

    def __init__(self, results: Results) -> None:
        self.grid, self.kind = results.grid, kind_of(results.grid.kind)
        self.cells: dict[tuple[str, str], dict[int, Record]] = {}
        for record in results.records:
            self.cells.setdefault((record.task, record.arm), {})[record.seed] = record
        self._scorers: dict[tuple[_Place, str, int], Scorer] = {}

    def arms(self, task: str) -> list[GridArm]:
        """Return the arms with a finished cell."""
        return [arm for arm in self.grid.arms if (task, arm.name) in self.cells]

    def places(self) -> Iterator[_Place]:
        """Yield what is tabulated, task by task."""
        for task in self.grid.tasks:
            for arm in self.arms(task)[:1]:
                record = next(iter(self.cells[task, arm.name].values()))
                if SECONDS in self.grid.columns:
                    yield _Place(task, "", SECONDS)
                for split, scores in record.scores.items():
                    if self.kind.is_reported(split):
                        names = self._metrics(task, scores)
                        yield from (_Place(task, split, name) for name in names)

    def row(self, place: _Place, arm: GridArm) -> Row:
        """Return the row of an arm."""
        records = self.cells[place.task, arm.name]
        first = next(iter(records.values()))
        paper, paper_change = self._paper(place, arm)
        return Row(
            task=place.task,
            split=place.split if len(first.scores) > 1 else "",
            metric=place.metric,
            arm=arm,
            values={seed: place.value(record) for seed, record in records.items()},
            change=self._change(place, arm),
            paper=paper,
            paper_change=paper_change,
            threshold=first.threshold,
        )

    def _metrics(self, task: str, scores: Mapping[str, float | None]) -> list[str]:
        if self.grid.columns:
            return [name for name in self.grid.columns if name in scores]
        primary = self.kind.primary_metric(task)
        return list(scores) if primary is None else [primary]

    def _paper(self, place: _Place, arm: GridArm) -> tuple[float | None, float | None]:
        """Return the paper's number, and its change against the paper's base."""
        base = reference_arm(self.grid, arm)
        own, other = (_printed(self.grid, place, a) for a in (arm, base))
        if place.metric == SECONDS:
            return None, own
        return own, None if arm is base or own is None or other is None else own - other

    def _change(self, place: _Place, arm: GridArm) -> Change | None:
        """Compare an arm with its base, on the seeds that both have finished."""
        base = reference_arm(self.grid, arm)
        ours, theirs = (self.cells.get((place.task, a.name), {}) for a in (arm, base))
        fit = [s for s in ours if s in theirs and self.kind.may_compare(self.grid, theirs[s])]
        pairs = {s: (place.value(ours[s]), place.value(theirs[s])) for s in fit}
        known = {s: (a, b) for s, (a, b) in pairs.items() if a is not None and b is not None}
        if arm is base or not pairs or len(known) < len(pairs):
            return None
        if place.metric == SECONDS:
            return over_seeds({s: a / b - 1 for s, (a, b) in known.items()})
        by_seed = {s: a - b for s, (a, b) in known.items()}
        measure = self.kind.measure(place.task)
        if measure is None or not self._same_examples(place, arm, base, by_seed):
            return over_seeds(by_seed)
        sides = [[self._scorer(measure, place, a.name, s) for s in by_seed] for a in (arm, base)]
        name = f"{place.task} {place.split}"
        draws = paired_bootstrap(sides[0], sides[1], name, place.task)
        return Change(by_seed, interval(draws), draws)

    def _same_examples(
        self, place: _Place, arm: GridArm, base: GridArm, seeds: Mapping[int, float]
    ) -> bool:
        """Tell whether there are examples to resample; refuse arms that were given others."""
        cells = [self.cells[place.task, a.name][seed] for a in (arm, base) for seed in seeds]
        right = [
            cell.answers[place.split]["right"] for cell in cells if place.split in cell.answers
        ]
        if len(right) < len(cells):
            return False
        if any(one != right[0] for one in right):
            raise ValueError(
                f"arms {arm.name!r} and {base.name!r} of {place.task} must be scored on the same "
                f"examples of {place.split}, got others"
            )
        return True

    def _scorer(self, measure: Measure, place: _Place, arm: str, seed: int) -> Scorer:
        key = place, arm, seed
        if key not in self._scorers:  # the base is needed by every other arm
            answers = self.cells[place.task, arm][seed].answers[place.split]
            self._scorers[key] = scorer(measure, place.metric, answers["said"], answers["right"])
        return self._scorers[key]


def _printed(grid: Grid, place: _Place, arm: GridArm) -> float | None:
    """Return the number that the paper prints; one without a metric is of the primary one."""
    found = grid.paper.scores.get(arm.name, {}).get(place.task)
    if isinstance(found, Mapping):
        return found.get(place.metric)
    return found if place.metric == kind_of(grid.kind).primary_metric(place.task) else None
