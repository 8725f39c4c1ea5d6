"""What questions say of stones with values, task by task, in one picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jat_graph.lab.figure import COLOURS, GREY, MARKERS, add_legend, open_figure
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import Row
from jat_graph.lab.studies.verdicts import NO, UNKNOWN, YES, Verdict, verdict_frame, verdicts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Stones with values against the same model without them, task by task"

_WIDTH, _LINE_HEIGHT, _AROUND = 8.4, 0.21, 1.6  # inches
_LOOKS = {YES: (COLOURS[2], MARKERS[0]), NO: (COLOURS[1], MARKERS[1]), UNKNOWN: (GREY, MARKERS[3])}
_TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)


class Answer(NamedTuple):
    """A verdict, and the experiment that it comes from."""

    experiment: str
    verdict: Verdict


def stones_answers(found: Iterable[tuple[Results, Sequence[Row]]]) -> list[Answer]:
    """The verdict for each task of each question, on its first arm of stones with values."""
    answers: dict[tuple[str, str], Answer] = {}
    for results, rows in found:
        for one in verdicts(results, rows):
            name, arm = results.grid.name, one.row.arm
            if arm.heads == "stones" and "strength" not in arm.settings:
                answers.setdefault((name, one.row.task), Answer(name, one))
    return list(answers.values())


def draw_answers(answers: Sequence[Answer]) -> Figure:
    """Draw a line for each answer: the gain in units of what was asked for, and the change."""
    found = [one.verdict for one in answers]
    figure, (axis,) = open_figure(1, 1, (_WIDTH, _LINE_HEIGHT * len(answers) + _AROUND))
    figure.suptitle(TITLE, fontsize=10)
    for said, (colour, marker) in _LOOKS.items():
        lines = {line: one for line, one in enumerate(found) if one.said == said}
        means = [one.gain.mean for one in lines.values()]
        axis.plot(means, list(lines), marker, color=colour, markersize=5, label=said)
        for line, one in lines.items():
            if one.gain.interval is not None:
                axis.hlines(line, one.gain.interval.low, one.gain.interval.high, color=colour)
    _write_numbers(axis, found)
    _label(axis, [f"{one.experiment}: {one.verdict.row.task}" for one in answers])
    add_legend(figure, [axis], columns=len(_LOOKS))
    return figure


def _write_numbers(axis: Axes, found: Sequence[Verdict]) -> None:
    frame = verdict_frame(found)
    changes = frame["change"] + " (" + frame["95 % interval"] + ")"
    for line, text in enumerate(["change, in points; of bits fewer is better", *changes], -1):
        place = axis.get_yaxis_transform()
        axis.text(1.01, line, text, transform=place, va="center", fontsize=8)


def _label(axis: Axes, names: Sequence[str]) -> None:
    axis.axvline(0, color=GREY, linewidth=0.8)
    axis.axvline(1, color=GREY, linewidth=0.8, linestyle="--")
    axis.set_xscale("symlog", linthresh=1, linscale=0.6)
    axis.set_xticks(_TICKS, [str(tick) for tick in _TICKS])
    label = "gain, where 1 is as much as was asked for, with its 95 % interval (compressed scale)"
    axis.set_xlabel(label, fontsize=8)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(labelsize=8)
    axis.grid(axis="x", alpha=0.3)
