"""An experiment as a Markdown table, what it shows in sentences, and what it was made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from jat_graph.experiments.comparing import reference_arm
from jat_graph.experiments.grid_parts import SECONDS
from jat_graph.experiments.panels import (
    group_rows,
    number_label,
    number_of,
    place_name,
    stem_name,
)
from jat_graph.experiments.results import Record, Results
from jat_graph.experiments.rows import MEAN, Change, Row, is_share

NOTHING = "-"
_CHANCE = 0.05  # share of intervals that lie off 0 by chance


def experiment_markdown(results: Results, rows: Sequence[Row]) -> str:
    """Write an experiment down: its table, what it shows, and what it was made from.

    Args:
        results: The finished cells.
        rows: Its rows.

    Returns:
        Lines of Markdown.
    """
    if not rows:
        return "No cell is finished yet."
    lines = (*finding_lines(results, rows), *caption_lines(results))
    plain = [row for row in rows if number_of(row) is None or row.paper is not None]
    tables = [_table(results, plain)] if plain else []
    if numbered := [row for row in rows if number_of(row) is not None]:
        tables.append(_numbered_table(results, numbered))
    text = "\n\n".join("\n".join(table) for table in tables)
    return "\n".join([text, "", *(f"- {line}" for line in lines)])


def finding_lines(results: Results, rows: Sequence[Row]) -> list[str]:
    """Say what the intervals show, and how it compares with the paper.

    Args:
        results: The finished cells.
        rows: Its rows.

    Returns:
        Sentences.
    """
    single = [row for row in rows if row.task != MEAN]
    changes = [row.change for row in single if row.change and len(row.change.by_seed) > 1]
    found = [change.interval for change in changes if change.interval]
    lines = []
    if found:
        above, below = (sum(one.low > 0 for one in found), sum(one.high < 0 for one in found))
        lines.append(
            f"Of {_count(len(found), 'interval')}, {above} {_lie(above)} above 0, {below} "
            f"{_lie(below)} below, and {len(found) - above - below} hold it. If no arm differed, "
            f"about {_CHANCE * len(found):.0f} would lie off 0 by chance."
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


def caption_lines(results: Results) -> list[str]:
    """Say what an experiment was made from, and how to read it.

    Args:
        results: The finished cells.

    Returns:
        Sentences.
    """
    grid = results.grid
    lines = [f"{source_line(results)} {_sizes(results)}", _reading(results)]
    if grid.tuning is not None and any(arm.tune for arm in grid.arms):
        tried = ", ".join(f"{threshold:g}" for threshold in grid.tuning.thresholds)
        lines.append(
            f"ρ is the one of {tried} that did best on {grid.tuning.held_out:.0%} of the training "
            "data, held out of a training on the rest with a seed that no cell has."
        )
    if grid.paper.scores:
        lines.append(f"The paper's numbers ({grid.source}) are those of {grid.paper.model}.")
    elif grid.source:
        lines.append(f"In the paper: {grid.source}.")
    if grid.budget:
        lines.append(f"Budget: {grid.budget}.")
    return [*lines, _machine_line(results)]


def source_line(results: Results) -> str:
    """Name the model and the data that were really used, and the number of seeds.

    Args:
        results: The finished cells.

    Returns:
        One sentence.
    """
    data = "data by name" if results.data is None else f"data folder {results.data!r}"
    if results.grid.kind == "stepping-stones":
        data = "data made by the library"
    seeds = sorted({record.seed for record in results.records})
    return f"Model {results.model}, {data}, {_count(len(seeds), 'seed')}."


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
        cells = [_short(found[number]) if number in found else NOTHING for number in numbers]
        lines.append([stem_name(group[0]), group[0].arm.name, *cells])
    return _markdown(lines)


def _short(row: Row) -> str:
    """Show a mean score and its change."""
    if row.summary is None:
        return "undefined"
    change, _ = _change(row.change, row.metric)
    text = _number(row.summary.mean, row.metric)
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
    return text + (f" ({_count(len(row.values), 'seed')})" if missing else "")


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


def _sizes(results: Results) -> str:
    """Say how many examples each task was trained on, and scored on."""
    parts = []
    for task in results.grid.tasks:
        record = next((record for record in results.records if record.task == task), None)
        if record is not None and record.examples:
            sizes = (f"{_share(record, name)} ({name})" for name in record.examples)
            parts.append(f"{task} {' and '.join(sizes)}")
    return f"Examples: {'; '.join(parts)}." if parts else ""


def _share(record: Record, split: str) -> str:
    """Say how many examples were used, and of how many if not all were."""
    used = record.examples[split]
    whole = record.all_examples.get(split, used)
    return f"{used:,}" if used == whole else f"{used:,} of {whole:,}"


def _reading(results: Results) -> str:
    """Say what scores, changes and intervals are."""
    grid = results.grid
    if SECONDS in grid.columns:
        return (
            "Times are means ± standard deviations over the seeds, whole trainings; a change is "
            "the share of more time, with Student's interval over the seeds."
        )
    bases = {reference_arm(grid, arm).name for arm in grid.arms}
    against = f"against {grid.base.name!r}" if len(bases) == 1 else "against the base at its place"
    seeds = Counter((record.task, record.arm) for record in results.records).values()
    if max(seeds, default=0) < 2:
        return (
            f"Scores are in percent, of one seed. A change is {against}; its interval is that of "
            "new examples alone, a paired bootstrap: it says nothing of other seeds, so that no "
            "change is bold. Intervals are not corrected for their number."
        )
    single = "; with one seed the interval is that of new examples alone, and the change not bold"
    return (
        "Scores are means ± standard deviations over the seeds, in percent. A change is "
        f"{against}; its interval is that of new seeds and new examples at once, conditional on "
        "nothing: a paired bootstrap over the examples, to which Student's spread of the seeds is "
        "added (that alone where there are no examples to resample). A change is bold where its "
        f"interval does not hold 0{single if min(seeds) < 2 else ''}. Intervals are not corrected "
        "for their number."
    )


def _machine_line(results: Results) -> str:
    """Name all machines and versions that cells ran with, and the time they took."""
    ran = [record.machine or results.machine for record in results.records]
    machines = " and ".join(dict.fromkeys(_machine(one) for one in ran))
    names = {
        name: [str(one.get(name, own)) for one in ran] for name, own in results.versions.items()
    }
    versions = ", ".join(
        f"{name} {' or '.join(dict.fromkeys(all_))}" for name, all_ in names.items()
    )
    hours = sum(record.seconds for record in results.records) / 3600
    line = f"Run on {machines}; {hours:.1f} hours of training for the cells above; {versions}."
    if SECONDS in results.grid.columns and len({_machine(one) for one in ran}) > 1:
        line += " Times of different machines are compared: changes are partly theirs."
    return line


def _machine(described: Mapping[str, str | int]) -> str:
    gpu = f"{described['gpu']}, " if "gpu" in described else ""
    cores = described.get("cores", "?")
    return f"{gpu}{described.get('processor', 'unknown processor')}, {cores} cores"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _lie(number: int) -> str:
    return "lies" if number == 1 else "lie"
