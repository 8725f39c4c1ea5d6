"""What a grid of the kind ``stepping-stones`` says: encoders, lessons, and when to compare."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jat_graph.experiments.arms import build_heads, check_size
from jat_graph.experiments.grid_checks import check_columns
from jat_graph.experiments.grid_fields import check_keys, check_options, count, number, text
from jat_graph.experiments.small_encoder import HEADS
from jat_graph.tasks import TaggingTask, get_task
from jat_graph.tasks.stepping_stones import SteppingStonesTask

if TYPE_CHECKING:
    from jat_graph.experiments.grid import Grid
    from jat_graph.experiments.grid_parts import GridArm
    from jat_graph.experiments.results import Record, Results

PRETRAINED = "pretrained"

# Arms are compared on the one, with bases that are good enough on the other.
REPORTED, JUDGED = "test", "validation"

_ONE_STEP = "accuracy_1"
_MASTERED = 0.9
_MOST_ATTEMPTS = 100
_TAGGERS = 2  # layers

# What the lessons and the size of an encoder decide.
_NOT_OPTIONS = ("depth", "from_scratch")


@dataclass(frozen=True)
class Lesson:
    """Something that an encoder learns before all arms go on from its weights.

    Args:
        task: The task.
        options: Fields of :class:`jat_graph.training.TrainingOptions` in place of the grid's.
        pass_mark: The share of the task's own measure, on its first dev set, with less of which an
            encoder from scratch begins anew. (default: None, none)
    """

    task: str
    options: Mapping[str, Any]
    pass_mark: float | None = None

    def is_failed(self, metrics: Mapping[str, Mapping[str, float | None]] | None) -> bool:
        """Tell whether an encoder has learnt this and does not do it well enough.

        Args:
            metrics: Scores of each dev set; None before it has learnt.

        Returns:
            Whether there are scores, a pass mark, and less than that.
        """
        if metrics is None or self.pass_mark is None:
            return False
        score = next(iter(metrics.values()))[get_task(self.task).primary_metric]
        return score is None or score < self.pass_mark

    def depth(self, layers: int, *, drawn: bool) -> int:
        """Return how many layers of an encoder learn this.

        Words are tagged by one layer fewer, of drawn weights at most by two, and copies of the last
        one are put on top for the questions: where the top layer tags words, the token that answers
        has nothing to read, and three drawn layers seldom find what two do.

        Args:
            layers: Layers of the encoder.
            drawn: Whether its weights are drawn.

        Returns:
            The number, at least 1.
        """
        if not isinstance(get_task(self.task), TaggingTask):
            return layers
        most = _TAGGERS if drawn else layers
        return max(1, min(layers - 1, most))


def layers_of(setting: str) -> int | None:
    """Return the size of the encoder that a setting names.

    Args:
        setting: ``"1 layer"``, ``"2 layers"`` and so on, or ``"pretrained"``.

    Returns:
        The layers of an encoder from scratch; None for the pretrained model.

    Raises:
        ValueError: If it names neither.
    """
    if setting == PRETRAINED:
        return None
    found = re.fullmatch(r"([1-9]\d?) layers?", setting)
    if found is None:
        raise ValueError(f"tasks must be 'pretrained', '1 layer', '2 layers' …, got {setting!r}")
    return int(found[1])


def lessons_of(grid: Grid, where: str | None = None) -> tuple[Lesson, ...]:
    """Return the lessons of a grid, in their order.

    Args:
        grid: The grid.
        where: What messages call it. (default: None, by its name)

    Returns:
        The lessons; none if it says nothing.

    Raises:
        ValueError: If one is not a task with options.
    """
    here = f"{where or f'grid {grid.name!r}'}, [[{grid.kind}.lessons]]"
    found = grid.own.get("lessons", [])
    if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
        raise ValueError(f"{here} must be tables, got {found!r}")
    return tuple(_read_lesson(entry, here) for entry in found)


def attempts_of(grid: Grid, setting: str, where: str | None = None) -> int:
    """Return how many times weights of an encoder are drawn, until it fails no lesson.

    Args:
        grid: The grid.
        setting: Names the encoder; the pretrained one has its weights, and one attempt.
        where: What messages call the grid. (default: None, by its name)

    Returns:
        The number. (default: 1)

    Raises:
        ValueError: If it is no number of attempts.
    """
    here = f"{where or f'grid {grid.name!r}'}, [{grid.kind}]"
    found = count(grid.own, "attempts", here, default=1, below=_MOST_ATTEMPTS)
    return 1 if setting == PRETRAINED else found


def masters_one_step(grid: Grid, base: Record) -> bool:
    """Tell whether a base is good enough that arms may be compared with it.

    Args:
        grid: The grid.
        base: A finished cell of the base.

    Returns:
        Whether it answers the questions of one step, of the texts to validate on: to judge by those
        that are compared would favour the base.
    """
    score = base.score(JUDGED, _ONE_STEP)
    return score is not None and score >= mastery(grid)


def mastery(grid: Grid, where: str | None = None) -> float:
    """Return the share of questions of one step that a base must answer to be compared with.

    Args:
        grid: The grid.
        where: What messages call it. (default: None, by its name)

    Returns:
        The share. (default: 0.9)

    Raises:
        ValueError: If it is no share.
    """
    here = f"{where or f'grid {grid.name!r}'}, [{grid.kind}]"
    found = _share(grid.own, "mastered", here)
    return _MASTERED if found is None else found


def mastery_line(results: Results) -> str:
    """Say what chance is, with which bases arms were compared, and with which they were not.

    Args:
        results: The finished cells.

    Returns:
        Two sentences.
    """
    grid = results.grid
    left_out: dict[str, list[str]] = {}
    for record in results.records:
        if record.arm == grid.base.name and not masters_one_step(grid, record):
            left_out.setdefault(record.task, []).append(str(record.seed))
    where = "; ".join(f"{task}, seed {', '.join(seeds)}" for task, seeds in left_out.items())
    return (
        "Guessing gives 33 %; 67 % is within reach of a model that sees which of the two things "
        "stands higher in its chain, as the ends of a chain tell, and follows no step. Arms are "
        f"compared where {grid.base.name!r} answers at least {100 * mastery(grid):g} % of the "
        f"questions of one step to validate on{f', which leaves out {where}' if where else ''}."
    )


def check_curriculum(grid: Grid, where: str) -> None:
    """Refuse a grid of this kind that could not be run.

    Args:
        grid: The grid.
        where: What messages call it.

    Raises:
        ValueError: With the first thing that does not fit.
    """
    check_keys(grid.own, ("mastered", "attempts", "lessons"), f"{where}, [{grid.kind}]")
    mastery(grid, where)
    attempts_of(grid, PRETRAINED, where)
    lessons_of(grid, where)
    asked = SteppingStonesTask()
    by_steps = (f"{asked.primary_metric}_{step}" for step in asked.steps)
    check_columns(grid, (asked.primary_metric, *by_steps), where)
    for setting in grid.tasks:
        try:
            layers_of(setting)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
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


def _read_lesson(content: Mapping[str, Any], where: str) -> Lesson:
    options = {k: value for k, value in content.items() if k not in ("task", "pass_mark")}
    pass_mark = _share(content, "pass_mark", where)
    try:
        task = get_task(text(content, "task", where)).name
        check_options(options, where)
    except ValueError as error:
        message = str(error)
        raise ValueError(message if message.startswith(where) else f"{where}: {error}") from None
    _check_no(options, _NOT_OPTIONS, where)
    return Lesson(task, options, pass_mark)


def _share(content: Mapping[str, Any], name: str, where: str) -> float | None:
    found = number(content, name, where)
    if found is not None and not 0 < found <= 1:
        raise ValueError(f"{where}: {name} must be a share above 0, got {found}")
    return found


def _check_no(options: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    for name in names:
        if name in options:
            wanted = f"no {name}, which the size of an encoder and its lessons decide"
            raise ValueError(f"{where} must have {wanted}, got {options[name]!r}")
