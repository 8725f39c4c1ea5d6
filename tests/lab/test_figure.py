"""Panels of a picture, and lines that differ."""

import sys

import pytest

from jat_graph.lab.figure import line_style, open_figure


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (3, 2), (4, 2)])
def test_there_are_as_many_panels_as_asked_for(count: int, columns: int) -> None:
    figure, axes = open_figure(count, columns, (4.0, 3.0))
    assert figure.axes == axes
    assert len(axes) == count
    assert tuple(figure.get_size_inches()) == (4.0, 3.0)


def test_neighbours_look_different() -> None:
    looks = [(line_style(place)["color"], line_style(place)["marker"]) for place in range(7)]
    assert len(set(looks)) == 7
    assert line_style(7) == line_style(0)


def test_a_missing_matplotlib_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pictures need matplotlib: pip install"):
        open_figure(1, 1, (4.0, 3.0))
