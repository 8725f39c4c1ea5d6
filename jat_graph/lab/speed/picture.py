"""Time or memory over the length as a picture, a panel for each benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jat_graph.lab.speed import find_benchmark
from jat_graph.lab.speed.results import Results
from jat_graph.lab.speed.tables import ordered_rows

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
    """Tell whether some comparison was measured at two lengths or more."""
    return bool(_panels(results))


def draw_results(found: Sequence[Results]) -> Figure:
    """Draw time or memory over the length on logarithmic axes.

    Args:
        found: Results of one or more benchmarks: a panel each, or two where time and memory were
            measured. Comparisons at one length only are left out.

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
    panels = [(results, numbers) for results in found for numbers in _panels(results)]
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    size = PANEL[0] * columns, PANEL[1] * rows
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis, panel in zip(axes, panels, strict=False):
        _draw_panel(axis, *panel)
    for axis in axes[len(panels) :]:
        axis.remove()
    return figure


def _panels(results: Results) -> list[tuple[str, str]]:
    """The numbers of both sides for each panel that has a line to draw."""
    drawn = find_benchmark(results.benchmark).drawn
    return [numbers for numbers in drawn if any(True for _ in _lines(results, numbers[0]))]


def _draw_panel(axis: Axes, results: Results, numbers: tuple[str, str]) -> None:
    unit = find_benchmark(results.benchmark).unit_of(numbers[0])
    ours = list(_lines(results, numbers[0]))
    for place, line in enumerate(ours):
        _draw_line(axis, line, unit, COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
    names = {line.name for line in ours}
    others = [line for line in _lines(results, numbers[1], theirs=True) if line.name not in names]
    for place, line in enumerate(others):
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


def _lines(results: Results, number: str, *, theirs: bool = False) -> Iterator[_Line]:
    """Yield the lines of one side, a name each: at every length what was measured first."""
    found: dict[str, dict[int, float]] = {}
    for row in ordered_rows(results):
        value = row.number(number)
        if value is not None:
            name = row.against if theirs else row.what
            found.setdefault(name, {}).setdefault(row.length, value)
    for name, points in found.items():
        if len(points) > 1:
            yield _Line(name, sorted(points.items()))


def _short(length: int) -> str:
    """Write 4096 as 4K, as the axis has little room."""
    return f"{length // 1024}K" if length >= 1024 and length % 1024 == 0 else str(length)
