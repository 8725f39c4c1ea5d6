"""What a grid of the kind ``stepping-stones`` says: encoders, lessons, and when to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jat_graph.checks.numbers import check_integer
from jat_graph.lab.parsing import STRICT, parse
from jat_graph.lab.studies.arms import GridArm, build_heads, check_options, check_size
from jat_graph.lab.studies.grid import Grid, check_columns
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.small_models import HEADS, layers_of
from jat_graph.tasks import WordTask, get_task
from jat_graph.tasks.stepping_stones import SteppingStonesTask

KIND = "stepping-stones"
PRETRAINED = "pretrained"

# Among the scores of a cell: the split that arms are compared on, and what its encoder had in each
# of its lessons.
REPORTED, LESSONS = "test", "lessons"

_MOST_ATTEMPTS = 100
_TAGGERS = 2  # layers

# What the lessons and the size of an encoder decide.
_NOT_OPTIONS = ("depth", "from_scratch")


@dataclass(frozen=True)
class Lesson:
    """Something that an encoder learns before all arms go on from its weights.

    With less than the pass mark, a share of the task's own measure on its first dev set, an encoder
    from scratch begins anew, and nothing is compared with any that stays below.
    """

    __pydantic_config__ = STRICT

    task: str
    options: Mapping[str, Any]  # fields of TrainingOptions in place of the grid's
    pass_mark: float | None = None

    def score(self, metrics: Mapping[str, Mapping[str, float | None]]) -> float | None:
        """Return what counts of the scores of a lesson."""
        return next(iter(metrics.values()))[get_task(self.task).primary_metric]

    def is_failed(self, score: float | None) -> bool:
        """Tell whether an encoder does not do this well enough."""
        return self.pass_mark is not None and (score is None or score < self.pass_mark)

    def depth(self, layers: int, *, drawn: bool) -> int:
        """Return how many layers of an encoder learn this.

        Words are tagged by one layer fewer, of drawn weights at most by two, which are enough, and
        copies of the last one are put on top for the questions: where the top layer tags words, the
        token that answers has nothing to read.
        """
        if not isinstance(get_task(self.task), WordTask):
            return layers
        most = _TAGGERS if drawn else layers
        return max(1, min(layers - 1, most))


@dataclass(frozen=True)
class _Curriculum:
    """The table that a grid has under the name of this kind."""

    __pydantic_config__ = STRICT

    attempts: int = 1
    lessons: tuple[Mapping[str, Any], ...] = ()


def lessons_of(grid: Grid, where: str | None = None) -> dict[str, Lesson]:
    """The lessons of a grid, in their order; those of another kind have none."""
    here = f"{where or f'grid {grid.name!r}'}, [[{KIND}.lessons]]"
    lessons = [_read_lesson(entry, here) for entry in _curriculum(grid, where).lessons]
    return {f"{number}-{lesson.task}": lesson for number, lesson in enumerate(lessons, start=1)}


def attempts_of(grid: Grid, setting: str, where: str | None = None) -> int:
    """How many times weights of an encoder are drawn, until it fails no lesson."""
    found = _curriculum(grid, where).attempts
    here = f"{where or f'grid {grid.name!r}'}, [{KIND}]"
    check_integer(f"{here}: attempts", found, least=1, below=_MOST_ATTEMPTS)
    return 1 if setting == PRETRAINED else found


def has_passed(grid: Grid, record: Record) -> bool:
    """Tell whether the encoder of a cell reached the pass mark of each lesson."""
    scores = record.scores.get(LESSONS, {})
    return not any(lesson.is_failed(scores.get(name)) for name, lesson in lessons_of(grid).items())


def passing_line(results: Results) -> str:
    """Say what chance is, with which encoders arms were compared, and with which they were not."""
    grid = results.grid
    chance = (
        "Guessing gives 33 %; 67 % is within reach of a model that sees which of the two things "
        "stands higher in its chain, as the ends of a chain tell, and follows no step."
    )
    if all(lesson.pass_mark is None for lesson in lessons_of(grid).values()):
        return chance
    left_out: dict[str, list[str]] = {}
    for record in results.records:
        if record.arm == grid.base.name and not has_passed(grid, record):
            left_out.setdefault(record.task, []).append(str(record.seed))
    where = "; ".join(
        f"{task}, seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
        for task, seeds in left_out.items()
    )
    return (
        f"{chance} Arms are compared where the encoder has passed all of its lessons"
        f"{f', which leaves out {where}' if where else ''}."
    )


def check_curriculum(grid: Grid, where: str) -> None:
    """Refuse a grid of this kind that could not be run."""
    attempts_of(grid, PRETRAINED, where)
    lessons_of(grid, where)
    asked = SteppingStonesTask()
    by_steps = [f"{asked.primary_metric}_{step}" for step in asked.steps]
    check_columns(grid, (asked.primary_metric, *by_steps), where)
    for setting in grid.tasks:
        if setting != PRETRAINED and layers_of(setting) is None:
            wanted = "'pretrained', '1 layer', '2 layers' …"
            raise ValueError(f"{where}: tasks must be {wanted}, got {setting!r}")
    for options in (grid.training, *grid.task_training.values()):
        _check_no(options, _NOT_OPTIONS, f"{where}, [training]")
    for arm in grid.arms:
        _check_arm(grid, arm, f"{where}, arm {arm.name!r}")


def _check_arm(grid: Grid, arm: GridArm, where: str) -> None:
    """Refuse what would set an arm apart from the others by more than its heads."""
    if arm.options:
        raise ValueError(f"{where} must have no options: all arms go on from the same lessons")
    asked = [name for name in ("tune", "density") if getattr(arm, name)]
    if asked:
        raise ValueError(f"{where} must have no {asked[0]}: nothing is measured before its run")
    for layers in filter(None, map(layers_of, grid.tasks)):
        try:
            check_size(build_heads(arm, layers=layers, heads=HEADS), layers, HEADS)
        except ValueError as error:
            raise ValueError(f"{where}, encoder of {layers} layers: {error}") from None


def _curriculum(grid: Grid, where: str | None) -> _Curriculum:
    own = grid.own if grid.kind == KIND else {}
    return parse(_Curriculum, own, f"{where or f'grid {grid.name!r}'}, [{KIND}]")


def _read_lesson(content: Mapping[str, Any], where: str) -> Lesson:
    named = {name: content[name] for name in ("task", "pass_mark") if name in content}
    options = {name: value for name, value in content.items() if name not in named}
    lesson = parse(Lesson, {"options": options, **named}, where)
    if lesson.pass_mark is not None and not 0 < lesson.pass_mark <= 1:
        raise ValueError(f"{where}: pass_mark must be a share above 0, got {lesson.pass_mark}")
    check_options(options, where)
    _check_no(options, _NOT_OPTIONS, where)
    try:
        return replace(lesson, task=get_task(lesson.task).name)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _check_no(options: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    for name in names:
        if name in options:
            wanted = f"no {name}, which the size of an encoder and its lessons decide"
            raise ValueError(f"{where} must have {wanted}, got {options[name]!r}")
