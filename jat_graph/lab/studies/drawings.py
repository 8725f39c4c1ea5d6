"""All pictures of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jat_graph.lab.studies.costs import draw_costs
from jat_graph.lab.studies.curves import draw_curves
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.picture import can_draw, draw_experiment
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import Row
from jat_graph.lab.studies.strengths import can_draw_strengths, draw_strengths

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawing(NamedTuple):
    """A picture, not drawn yet."""

    name: str  # of its file, without the ending
    title: str
    draw: Callable[[], Figure]


def drawings_of(results: Results, rows: Sequence[Row]) -> Iterator[Drawing]:
    """The pictures for which there are results."""
    name, title, kind = results.grid.name, results.grid.title, kind_of(results.grid)
    if can_draw(results, rows):
        yield Drawing(name, title, lambda: draw_experiment(results, rows))
    if curves := kind.curves(results):
        what = f"{title}, step by step"
        yield Drawing(f"{name}-steps", what, lambda: draw_curves(curves, title))
    if costs := kind.costs(results):
        what = f"{title}, and what that takes"
        yield Drawing(f"{name}-costs", what, lambda: draw_costs(costs, title))
    if can_draw_strengths(results):
        what = f"{title}: which layers and heads jump"
        yield Drawing(f"{name}-strengths", what, lambda: draw_strengths(results))
