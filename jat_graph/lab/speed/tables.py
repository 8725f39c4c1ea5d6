"""Results as a table, for the terminal and for Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jat_graph.lab.speed import find_benchmark
from jat_graph.lab.speed.results import Results, Row
from jat_graph.lab.speed.series import Bar, Fact
from jat_graph.lab.speed.spread import Spread

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

COLUMNS = ("L", "ours", "the other", "ratio", "bar", "joined", "taking part")
NOTHING = "-"
# Facts that have columns of their own.
SHARES = ("joined", "taking_part")
WORDS = {
    "keys": "U",
    "rank_seconds": "ranking",
    "product_seconds": "product",
    "count_seconds": "counting alone",
    "extra_bytes": "extra",
    "multiple": "times Q, K and key scores",
    "peak_bytes": "peak memory",
    "our_bytes": "peak memory",
    "their_bytes": "of the other",
    "memory_ratio": "memory ratio",
}


def results_table(results: Results) -> Group:
    """Draw results for a terminal of 80 columns.

    Args:
        results: The results.

    Returns:
        A table for each comparison, then slopes and the machine.
    """
    from rich.console import Group

    parts: list[Table | str] = []
    for what, against in comparisons(results):
        rows = [row for row in ordered_rows(results) if row.key[:2] == (what, against)]
        notes = [f"L={row.length}: {note}" for row in rows if (note := _note(results, row))]
        parts += [f"\n{what}, against {against}", _comparison_table(results, rows), *notes]
    return Group(*parts, "", *slope_lines(results), machine_line(results))


def _comparison_table(results: Results, rows: list[Row]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    unit = find_benchmark(results.benchmark).unit
    for row in rows:
        times = (_median(row.outcome.ours, unit), _median(row.outcome.theirs, unit))
        table.add_row(str(row.length), *times, *_ratio_cells(results, row))
    return table


def results_markdown(results: Results) -> str:
    """Write results as a Markdown table, followed by slopes and the machine.

    Args:
        results: The results.

    Returns:
        Lines of Markdown.
    """
    heading = ("our side", "against", *COLUMNS, "also")
    marks = ("---", "---", *("---:" for _ in COLUMNS), "---")
    rows = (_markdown_cells(results, row) for row in ordered_rows(results))
    table = ["| " + " | ".join(cells) + " |" for cells in (heading, marks, *rows)]
    lines = [f"- {line}" for line in (*slope_lines(results), machine_line(results))]
    return "\n".join([*table, "", *lines])


def comparisons(results: Results) -> list[tuple[str, str]]:
    """Return our side and the other of each comparison, in the order of the first rows."""
    return list(dict.fromkeys(row.key[:2] for row in results.rows))


def ordered_rows(results: Results) -> list[Row]:
    """Return the rows, comparison by comparison, each by rising length."""
    order = comparisons(results)
    return sorted(results.rows, key=lambda row: (order.index(row.key[:2]), row.length))


def slope_lines(results: Results) -> list[str]:
    """Say how the numbers grow that the claim is about."""
    benchmark = find_benchmark(results.benchmark)
    lines: dict[str, str] = {}  # a side may stand in several comparisons: the first one counts
    over = f"from {benchmark.growing_from} on" if benchmark.growing_from else "over the lengths"
    for name in benchmark.growing:
        bar = benchmark.slope_bar if name == "ours" else None
        wanted = "" if bar is None else f" (bar: at most {bar:g})"
        for what, against, slope in results.slopes(name, benchmark.growing_from):
            side = {"ours": what, "theirs": against}.get(name, f"{WORDS.get(name, name)}, {what}")
            lines.setdefault(side, f"Log–log slope {over}, {side}: {slope:.2f}{wanted}.")
    return list(lines.values())


def machine_line(results: Results) -> str:
    """Say what the results were measured on."""
    machine, settings = results.machine, results.settings
    known = {"processor", "cores", "threads", "system", "gpu", "cuda"}
    versions = ", ".join(f"{name} {machine[name]}" for name in machine if name not in known)
    gpu = f"{machine['gpu']} with CUDA {machine['cuda']}, " if "gpu" in machine else ""
    return (
        f"Measured in {settings['dtype']} on {gpu}{machine['processor']}, {machine['cores']} "
        f"cores, {machine['threads']} threads, {machine['system']}; {versions}."
    )


def _markdown_cells(results: Results, row: Row) -> tuple[str, ...]:
    unit, outcome = find_benchmark(results.benchmark).unit, row.outcome
    times = (_spread(outcome.ours, unit), _spread(outcome.theirs, unit))
    cells = _ratio_cells(results, row)
    return row.what, row.against, str(row.length), *times, *cells, _note(results, row)


def _ratio_cells(results: Results, row: Row) -> tuple[str, ...]:
    """Return ratio, the first bar and the two shares."""
    wanted = NOTHING
    for bar in find_bars(results, row)[:1]:
        wanted = f"≤ {bar.most:.3g}" + ("" if bar.number == "ratio" else " times")
    return _spread(row.outcome.ratio, ""), wanted, *(_share(row.number(name)) for name in SHARES)


def _note(results: Results, row: Row) -> str:
    """Return the other facts, with the bars that have no column, and what a reader must know."""
    bars = {bar.number: f" (bar: at most {bar.most:g})" for bar in find_bars(results, row)[1:]}
    facts = [
        f"{WORDS.get(name, name)} {_fact(name, value)}{bars.get(name, '')}"
        for name, value in row.outcome.facts.items()
        if name not in SHARES
    ]
    return "; ".join([*facts, *([row.outcome.note] if row.outcome.note else [])])


def find_bars(results: Results, row: Row) -> tuple[Bar, ...]:
    """Return the bars of a row."""
    bars, device = find_benchmark(results.benchmark).bars, results.settings["device"]
    return tuple(bar for bar in bars if bar.device == device and bar.holds_for(*row.key))


def _share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0%}"


def _median(spread: Spread | None, unit: str) -> str:
    if spread is None:
        return NOTHING
    factor, name = _scale(spread.median, unit)
    return f"{_digits(spread.median / factor)}{name}"


def _spread(spread: Spread | None, unit: str) -> str:
    """Show a median and its quartiles in one unit."""
    if spread is None:
        return NOTHING
    factor, name = _scale(spread.median, unit)
    middle, low, high = (_digits(n / factor) for n in (spread.median, spread.low, spread.high))
    return f"{middle}{name} ({low} to {high})"


def _fact(name: str, value: Fact) -> str:
    if isinstance(value, str):
        return value
    unit = name.rpartition("_")[2]
    factor, word = _scale(float(value), unit if unit in ("seconds", "bytes") else "")
    return f"{_digits(value / factor)}{word}" if word or isinstance(value, float) else f"{value:,}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Return the multiple of a unit that a number is shown in."""
    if unit == "seconds":
        return (1.0, " s") if value >= 1 else (1e-3, " ms")
    if unit == "bytes":
        return (2.0**30, " GiB") if abs(value) >= 2**30 else (2.0**20, " MiB")
    return 1.0, ""


def _digits(value: float) -> str:
    """Show three significant digits, without exponents for what is not tiny."""
    if value == 0:
        return "0"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
