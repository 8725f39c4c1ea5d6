"""An experiment as a Markdown table, and what it shows in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jat_graph.lab.statistics import Difference
from jat_graph.lab.studies.captions import caption_lines, counted
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import (
    MEAN,
    Row,
    experiment_rows,
    group_rows,
    number_label,
    quoted_rows,
)
from jat_graph.lab.studies.strengths import STRENGTHS_LINE, strengths_frame
from jat_graph.lab.studies.verdicts import question_line, verdict_frame, verdicts
from jat_graph.lab.tables import NOTHING, SECONDS, markdown, show_change, show_score

if TYPE_CHECKING:
    from pandas import DataFrame


WORDS = ("measure", "arm")  # columns of words
QUOTED = "quoted"  # in the place of a score
_CHANCE = 0.05  # share of intervals that lie off 0 by chance


def experiment_markdown(results: Results, rows: Sequence[Row]) -> str:
    """Write an experiment down: its table, what it shows, and what it was made from."""
    if not rows:
        return "No cell is finished yet."
    lines = [*finding_lines(results, rows), *caption_lines(results, rows)]
    plain = [row for row in rows if row.number is None or row.paper is not None]
    shown = list(quoted_rows(results.grid, plain))
    tables = [markdown(text_frame(results, shown), WORDS)] if plain else []
    if numbered := [row for row in rows if row.number is not None]:
        tables.append(markdown(_numbered_frame(results, numbered), WORDS))
        where = f"In the table by {number_label(results.grid, numbered[0])}"
        lines.insert(0, f"{where}, changes are in brackets, without their intervals.")
    if found := verdicts(results, rows):
        tables.append(markdown(verdict_frame(found), (*WORDS, "verdict")))
        lines.append(question_line(results, found))
    if not (learned := strengths_frame(results)).empty:
        tables.append(markdown(learned, ("task", "arm")))
        lines.append(STRENGTHS_LINE)
    return "\n".join(["\n\n".join(tables), "", *(f"- {line}" for line in lines)])


def finding_lines(results: Results, rows: Sequence[Row]) -> list[str]:
    """Say what the intervals show, and how it compares with the paper."""
    single = [row for row in rows if row.task != MEAN]
    changes = [row.change for row in single if row.change and len(row.change.by_seed) > 1]
    found = [change.interval for change in changes if change.interval]
    lines = []
    if found:
        above, below = (sum(one.low > 0 for one in found), sum(one.high < 0 for one in found))
        alike = sum(one.low == one.high == 0 for one in found)
        equal = f", {alike} of them of arms that score alike with each seed" if alike else ""
        lines.append(
            f"Of {counted(len(found), 'interval')}, {above} {_lie(above)} above 0, {below} "
            f"{_lie(below)} below, and {len(found) - above - below} hold it{equal}. If no arm "
            f"differed, about {_CHANCE * (len(found) - alike):.2g} would lie off 0 by chance."
        )
    pairs = [
        (row.change.mean, row.paper_change)
        for row in single
        if row.change and row.paper_change and row.change.mean and row.metric != SECONDS
    ]
    if pairs:
        same = sum((ours > 0) == (printed > 0) for ours, printed in pairs)
        lines.append(f"The change has the sign of the paper's in {same} of {len(pairs)} places.")
    return [*lines, *_best_line(rows)]


def results_frame(results: Results) -> DataFrame:
    """Return the numbers of an experiment's table, to go on with.

    Args:
        results: What :func:`read_results` gives, finished or not.

    Returns:
        A row for each task, split, metric and arm: the number of seeds, ``mean`` and ``std`` of the
        scores, ``change`` against the base with ``low`` and ``high``, the ends of its 95 %
        interval, and the paper's numbers; shares are shares, not percent. NaN where there is none.
    """
    from pandas import DataFrame

    return DataFrame([_numbers(row) for row in experiment_rows(results)])


def text_frame(results: Results, rows: Sequence[Row]) -> DataFrame:
    """The rows as texts, with their units; a column that nobody fills is left out."""
    from pandas import DataFrame

    frame = DataFrame([_cells(results, row) for row in rows])
    return frame.loc[:, (frame != NOTHING).any()]


def _numbered_frame(results: Results, rows: Sequence[Row]) -> DataFrame:
    """The rows as texts, with a column for each number, as for each layer."""
    from pandas import DataFrame

    label = number_label(results.grid, rows[0])
    numbers = sorted({number for row in rows if (number := row.number) is not None})
    lines = []
    for group in group_rows(rows, lambda row: f"{row.stem}, {row.arm.name}"):
        found = {row.number: row for row in group}
        cells = {f"{label} {number}": _short(results, found.get(number)) for number in numbers}
        lines.append({"measure": group[0].stem, "arm": group[0].arm.name} | cells)
    return DataFrame(lines)


def _short(results: Results, row: Row | None) -> str:
    """A score and its change."""
    if row is None:
        return NOTHING
    change, _ = _change(row.change, row.metric)
    text = _score(results, row)
    return text if change == NOTHING else f"{text} ({change})"


def _numbers(row: Row) -> dict[str, Any]:
    mean, std = (None, None) if row.summary is None else (row.summary.mean, row.summary.std)
    change = row.change
    return {
        "task": row.task,
        "split": row.split,
        "metric": row.metric,
        "arm": row.arm.name,
        "seeds": len(row.values),
        "mean": mean,
        "std": std,
        "change": None if change is None else change.mean,
        "low": None if change is None else change.low,
        "high": None if change is None else change.high,
        "paper": row.paper,
        "paper_change": row.paper_change,
        "threshold": row.threshold,
    }


def _cells(results: Results, row: Row) -> dict[str, str]:
    change, low_high = _change(row.change, row.metric)
    unit, digits = (" %", 0) if row.metric == SECONDS else ("", 1)
    printed = row.paper_change
    return {
        "measure": row.place,
        "arm": row.arm.name,
        "score": _score(results, row),
        "change": change,
        "95 % interval": low_high,
        "paper": NOTHING if row.paper is None else f"{row.paper:.1f}",
        "paper's change": NOTHING if printed is None else f"{printed:+.{digits}f}{unit}",
        "ρ": NOTHING if row.threshold is None else f"{row.threshold:g}",
    }


def _score(results: Results, row: Row) -> str:
    if not row.values:
        return QUOTED
    if row.summary is None:
        return "undefined"
    text = show_score(row.summary.mean, row.metric)
    if row.summary.std is not None:
        text += f" ± {show_score(row.summary.std, row.metric)}"
    text += " s" if row.metric == SECONDS else ""
    missing = len(row.values) < len(results.grid.all_seeds)
    return text + (f" ({counted(len(row.values), 'seed')})" if missing else "")


def _change(change: Difference | None, metric: str) -> tuple[str, str]:
    """Show a change, bold if its interval is one over seeds and does not hold 0."""
    if change is None:
        return NOTHING, NOTHING
    text = show_change(change.mean, metric)
    if change.interval is None:
        return text, NOTHING
    low, high = (show_change(end, metric) for end in (change.interval.low, change.interval.high))
    shown = len(change.by_seed) > 1 and not change.interval.holds_zero
    return f"**{text}**" if shown else text, f"{low} to {high}"


def _best_line(rows: Sequence[Row]) -> Iterator[str]:
    """Say which arm changes the mean over the tasks most, here and in the paper."""
    means = [(row, row.change) for row in rows if row.task == MEAN and row.change is not None]
    if len(means) < 2 or any(row.metric == SECONDS for row, _ in means):
        return
    row, change = max(means, key=lambda pair: pair[1].mean)
    text, low_high = _change(change, row.metric)
    line = f"Of all arms {row.arm.name} changes the mean of the tasks to the highest: {text}"
    line += f" ({low_high})" if low_high != NOTHING else ""
    printed = [row for row, _ in means if row.paper_change is not None]
    if printed:
        best = max(printed, key=lambda row: row.paper_change or 0.0)
        line += f"; in the paper {best.arm.name}, {best.paper_change:+.1f}"
    yield f"{line}. It was chosen with the scores in view, so its change is rather too high."


def _lie(number: int) -> str:
    return "lies" if number == 1 else "lie"
