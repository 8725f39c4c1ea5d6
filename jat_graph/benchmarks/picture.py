"""Time or memory over the length as a picture, a panel for each benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jat_graph.benchmarks.registry import find_benchmark
from jat_graph.benchmarks.results import Results
from jat_graph.benchmarks.tables import ordered_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, told apart under every common colour blindness.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
GREY = "#666666"
MARKERS = "os^Dvp"
PANEL = (5.6, 5.6)  # inches
LABELS = {"seconds": "time in seconds", "bytes": "peak memory in MiB"}
SCALES = {"seconds": 1.0, "bytes": 2.0**20}


class _Line:
    """One side of a comparison over the length."""

    def __init__(self, name: str, points: list[tuple[int, float]]) -> None:
        self.name, self.points = name, points


def can_draw(results: Results) -> bool:
    """Tell whether some comparison was measured at two lengths or more.

    Args:
        results: The results.

    Returns:
        True if there is a line to draw.
    """
    return any(True for _ in _lines(results, "ours"))


def draw_results(found: Sequence[Results]) -> Figure:
    """Draw time or memory over the length on logarithmic axes.

    Args:
        found: Results of one or more benchmarks: a panel each. Comparisons at one length only are
            left out.

    Returns:
        A matplotlib figure that belongs to no window, for :func:`jat_graph.viz.save_figure`.

    Raises:
        ValueError: If some results have no comparison at two lengths or more.
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).
    """
    for results in found:
        if not can_draw(results):
            raise ValueError(
                f"a picture of {results.benchmark!r} needs two lengths or more, got one"
            )
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'jat_graph[viz]'") from error
    columns = min(2, len(found))
    rows = -(-len(found) // columns)
    size = PANEL[0] * columns, PANEL[1] * rows
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, results in zip(axes, found, strict=False):
        _draw_panel(axis, results)
    for axis in axes[len(found) :]:
        axis.remove()
    return figure


def _draw_panel(axis: Axes, results: Results) -> None:
    unit = find_benchmark(results.benchmark).unit
    for place, line in enumerate(_lines(results, "ours")):
        _draw_line(axis, line, unit, COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
    for place, line in enumerate(_lines(results, "theirs")):
        _draw_line(axis, line, unit, GREY, MARKERS[place % len(MARKERS)], dashed=True)
    lengths = sorted({row.length for row in results.rows})
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(lengths, [_short(length) for length in lengths], rotation=45, fontsize=8)
    axis.tick_params(axis="x", which="minor", bottom=False)
    axis.set_xlabel("tokens L")
    axis.set_ylabel(LABELS[unit])
    axis.grid(alpha=0.3)
    device = results.machine.get("gpu", results.machine.get("processor", ""))
    axis.set_title(f"{results.benchmark}: {device}, {results.settings['dtype']}", fontsize=10)
    axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)


def _draw_line(
    axis: Axes, line: _Line, unit: str, colour: str, marker: str, *, dashed: bool = False
) -> None:
    lengths, values = zip(*line.points, strict=True)
    axis.plot(
        lengths,
        [value / SCALES[unit] for value in values],
        label=line.name,
        color=colour,
        marker=marker,
        markersize=4,
        linewidth=1.2,
        linestyle="--" if dashed else "-",
    )


def _lines(results: Results, side: str) -> Iterator[_Line]:
    """Yield the lines of one side, a name each: at every length what was measured first."""
    found: dict[str, dict[int, float]] = {}
    for row in ordered_rows(results):
        value = row.number(side)
        if value is not None:
            name = row.what if side == "ours" else row.against
            found.setdefault(name, {}).setdefault(row.length, value)
    for name, points in found.items():
        if len(points) > 1:
            yield _Line(name, sorted(points.items()))


def _short(length: int) -> str:
    """Write 4096 as 4K, as the axis has little room."""
    return f"{length // 1024}K" if length >= 1024 and length % 1024 == 0 else str(length)
