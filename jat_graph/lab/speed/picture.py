"""Time or memory over the length as a picture, a panel for each benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jat_graph.lab.figure import GREY, line_style, open_figure
from jat_graph.lab.speed import find_benchmark
from jat_graph.lab.speed.results import Results
from jat_graph.lab.speed.tables import ordered_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (5.6, 5.6)  # inches
LABELS = {"seconds": "time in seconds", "bytes": "peak memory in MiB"}
SCALES = {"seconds": 1.0, "bytes": 2.0**20}


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
    panels = [(results, numbers) for results in found for numbers in _panels(results)]
    columns = min(2, len(panels))
    size = PANEL[0] * columns, PANEL[1] * -(-len(panels) // columns)
    figure, axes = open_figure(len(panels), columns, size)
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, *panel)
    return figure


def _panels(results: Results) -> list[tuple[str, str]]:
    """The numbers of both sides for each panel that has a line to draw."""
    drawn = find_benchmark(results.benchmark).drawn
    return [numbers for numbers in drawn if _lines(results, numbers[0])]


def _draw_panel(axis: Axes, results: Results, numbers: tuple[str, str]) -> None:
    unit = find_benchmark(results.benchmark).unit_of(numbers[0])
    ours, theirs = _lines(results, numbers[0]), _lines(results, numbers[1], theirs=True)
    others = {name: points for name, points in theirs.items() if name not in ours}
    for lines, look in ((ours, {}), (others, {"color": GREY, "linestyle": "--"})):
        for place, (name, points) in enumerate(lines.items()):
            values = [value / SCALES[unit] for value in points.values()]
            axis.plot(list(points), values, label=name, **line_style(place) | look)
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


def _lines(results: Results, number: str, *, theirs: bool = False) -> dict[str, dict[int, float]]:
    """The lines of one side by name: at every length what was measured first."""
    found: dict[str, dict[int, float]] = {}
    for row in ordered_rows(results):
        value = row.number(number)
        if value is not None and not row.is_bytes:
            name = row.against if theirs else row.what
            found.setdefault(name, {}).setdefault(row.length, value)
    return {name: dict(sorted(line.items())) for name, line in found.items() if len(line) > 1}


def _short(length: int) -> str:
    """Write 4096 as 4K, as the axis has little room."""
    return f"{length // 1024}K" if length >= 1024 and length % 1024 == 0 else str(length)
