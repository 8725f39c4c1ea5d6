"""Results as numbers in a frame, and as texts in a table for the terminal or for Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from jat_graph.lab.speed import find_benchmark
from jat_graph.lab.speed.results import Results, Row
from jat_graph.lab.speed.series import Bar, Fact
from jat_graph.lab.speed.spread import Spread
from jat_graph.lab.tables import NOTHING, markdown, terminal_table

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Group
    from rich.table import Table

SIDES = ("our side", "against")
COLUMNS = ("L", "ours", "the other", "ratio", "bar", "joined", "taking part")
ALSO = "also"
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


def results_frame(results: Results) -> DataFrame:
    """Return results as numbers, for analyses of one's own.

    Args:
        results: What a benchmark measured so far.

    Returns:
        A row for each point: ``what``, ``against``, ``length``, ``seconds`` and ``note`` as in
        :class:`Row` and :class:`Outcome`; of ``ours``, ``theirs`` and ``ratio`` the fields of
        :class:`Spread`, such as ``ours_median``; and a column for each fact. NaN where a point has
        no such number.
    """
    from pandas import DataFrame

    return DataFrame([_numbers(row) for row in ordered_rows(results)])


def _numbers(row: Row) -> dict[str, Fact]:
    named: dict[str, Fact] = {"what": row.what, "against": row.against, "length": row.length}
    for side in ("ours", "theirs", "ratio"):
        spread = getattr(row.outcome, side)
        fields = {} if spread is None else asdict(spread)
        named |= {f"{side}_{name}": value for name, value in fields.items()}
    return named | row.outcome.facts | {"seconds": row.seconds, "note": row.outcome.note}


def results_table(results: Results) -> Group:
    """Draw results for a terminal of 80 columns.

    Args:
        results: What a benchmark measured so far.

    Returns:
        A table for each comparison, then slopes and the machine.
    """
    from rich.console import Group

    parts: list[Table | str] = []
    for (what, against), rows in _texts(results, _median).groupby(list(SIDES), sort=False):
        notes = [f"L={row.L}: {row.also}" for row in rows.itertuples() if row.also]
        table = terminal_table(rows[list(COLUMNS)], left=())
        parts += [f"\n{what}, against {against}", table, *notes]
    return Group(*parts, "", *slope_lines(results), machine_line(results))


def results_markdown(results: Results) -> str:
    """Write results as a Markdown table, followed by slopes and the machine.

    Args:
        results: What a benchmark measured so far.

    Returns:
        Lines of Markdown.
    """
    table = markdown(_texts(results, _spread), left=(*SIDES, ALSO))
    lines = [f"- {line}" for line in (*slope_lines(results), machine_line(results))]
    return "\n".join([table, "", *lines])


def _texts(results: Results, show: Callable[[Spread | None, str], str]) -> DataFrame:
    """Show each point in words; times as ``show`` says."""
    from pandas import DataFrame

    cells = [
        (
            *row.key,
            show(row.outcome.ours, _unit(results, row)),
            show(row.outcome.theirs, _unit(results, row)),
            *_ratio_cells(results, row),
            _note(results, row),
        )
        for row in ordered_rows(results)
    ]
    return DataFrame(cells, columns=[*SIDES, *COLUMNS, ALSO]).astype(str)


def _unit(results: Results, row: Row) -> str:
    return "bytes" if row.is_bytes else find_benchmark(results.benchmark).unit


def ordered_rows(results: Results) -> list[Row]:
    """The rows, comparison by comparison, each by rising length."""
    order = list(dict.fromkeys(row.key[:2] for row in results.rows))
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


def _ratio_cells(results: Results, row: Row) -> tuple[str, ...]:
    """The cells of ratio, first bar and the two shares."""
    wanted = NOTHING
    for bar in find_bars(results, row)[:1]:
        wanted = f"≤ {bar.most:.3g}" + ("" if bar.number == "ratio" else " times")
    return _spread(row.outcome.ratio, ""), wanted, *(_share(row.number(name)) for name in SHARES)


def _note(results: Results, row: Row) -> str:
    """The other facts, with the bars that have no column, and what a reader must know."""
    bars = {bar.number: f" (bar: at most {bar.most:g})" for bar in find_bars(results, row)[1:]}
    facts = [
        f"{WORDS.get(name, name)} {_fact(name, value)}{bars.get(name, '')}"
        for name, value in row.outcome.facts.items()
        if name not in SHARES
    ]
    return "; ".join([*facts, *([row.outcome.note] if row.outcome.note else [])])


def find_bars(results: Results, row: Row) -> tuple[Bar, ...]:
    """The bars of a row."""
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
    """The multiple of a unit that a number is shown in."""
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
