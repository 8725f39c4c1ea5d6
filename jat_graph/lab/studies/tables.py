"""An experiment as a Markdown table, and what it shows in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jat_graph.lab.studies.captions import caption_lines, counted
from jat_graph.lab.studies.grid_parts import SECONDS
from jat_graph.lab.studies.panels import (
    group_rows,
    number_label,
    number_of,
    place_name,
    stem_name,
)
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import MEAN, Change, Row, is_share

NOTHING = "-"
_CHANCE = 0.05  # share of intervals that lie off 0 by chance


def experiment_markdown(results: Results, rows: Sequence[Row]) -> str:
    """Write an experiment down: its table, what it shows, and what it was made from."""
    if not rows:
        return "No cell is finished yet."
    lines = [*finding_lines(results, rows), *caption_lines(results, rows)]
    plain = [row for row in rows if number_of(row) is None or row.paper is not None]
    tables = [_table(results, plain)] if plain else []
    if numbered := [row for row in rows if number_of(row) is not None]:
        tables.append(_numbered_table(results, numbered))
        where = f"In the table by {number_label(results.grid, numbered[0])}"
        lines.insert(0, f"{where}, changes are in brackets, without their intervals.")
    text = "\n\n".join("\n".join(table) for table in tables)
    return "\n".join([text, "", *(f"- {line}" for line in lines)])


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


def _table(results: Results, rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table; a column that nobody fills is left out."""
    heading = ["measure", "arm", "score", "change", "95 % interval", "paper", "paper's change", "ρ"]
    cells = [_cells(results, row) for row in rows]
    filled = [i for i in range(len(heading)) if any(line[i] != NOTHING for line in cells)]
    return _markdown([[line[i] for i in filled] for line in (heading, *cells)])


def _numbered_table(results: Results, rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table with a column for each number, as for each layer."""
    label = number_label(results.grid, rows[0])
    numbers = sorted({number for row in rows if (number := number_of(row)) is not None})
    lines = [["measure", "arm", *(f"{label} {number}" for number in numbers)]]
    for group in group_rows(rows, lambda row: f"{stem_name(row)}, {row.arm.name}"):
        found = {number_of(row): row for row in group}
        cells = [_short(results, found.get(number)) for number in numbers]
        lines.append([stem_name(group[0]), group[0].arm.name, *cells])
    return _markdown(lines)


def _short(results: Results, row: Row | None) -> str:
    """Show a score and its change."""
    if row is None:
        return NOTHING
    change, _ = _change(row.change, row.metric)
    text = _score(results, row)
    return text if change == NOTHING else f"{text} ({change})"


def _markdown(lines: list[list[str]]) -> list[str]:
    """Return a table, whose first two columns are words."""
    marks = ["---"] * 2 + ["---:"] * (len(lines[0]) - 2)
    return ["| " + " | ".join(line) + " |" for line in (lines[0], marks, *lines[1:])]


def _cells(results: Results, row: Row) -> list[str]:
    change, low_high = _change(row.change, row.metric)
    unit, digits = (" %", 0) if row.metric == SECONDS else ("", 1)
    return [
        place_name(row),
        row.arm.name,
        _score(results, row),
        change,
        low_high,
        NOTHING if row.paper is None else f"{row.paper:.1f}",
        NOTHING if row.paper_change is None else f"{row.paper_change:+.{digits}f}{unit}",
        NOTHING if row.threshold is None else f"{row.threshold:g}",
    ]


def _score(results: Results, row: Row) -> str:
    if row.summary is None:
        return "undefined"
    text = _number(row.summary.mean, row.metric)
    if row.summary.std is not None:
        text += f" ± {_number(row.summary.std, row.metric)}"
    text += " s" if row.metric == SECONDS else ""
    missing = len(row.values) < results.grid.seeds
    return text + (f" ({counted(len(row.values), 'seed')})" if missing else "")


def _change(change: Change | None, metric: str) -> tuple[str, str]:
    """Show a change, bold if its interval is one over seeds and does not hold 0."""
    if change is None:
        return NOTHING, NOTHING
    text = _signed(change.mean, metric)
    if change.interval is None:
        return text, NOTHING
    low, high = (_signed(end, metric) for end in (change.interval.low, change.interval.high))
    shown = len(change.by_seed) > 1 and not change.interval.holds_zero
    return f"**{text}**" if shown else text, f"{low} to {high}"


def _number(value: float, metric: str) -> str:
    if metric == SECONDS:
        return f"{value:.1f}"
    return f"{100 * value:.1f}" if is_share(metric) else f"{value:.3g}"


def _signed(value: float, metric: str) -> str:
    if metric == SECONDS:
        return f"{100 * value:+.0f} %"
    return f"{100 * value:+.1f}" if is_share(metric) else f"{value:+.3g}"


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
