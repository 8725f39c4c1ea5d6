"""What holds for every picture: nothing lies outside, and what is written is found."""

from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw_inside(figure: Figure) -> Any:
    """Draw a figure, all of which must lie inside it; return what drew it."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    used = figure.get_tightbbox(renderer)  # inches, every text included
    width, height = figure.get_size_inches()
    assert min(used.x0, used.y0) >= 0
    assert used.x1 <= width
    assert used.y1 <= height
    return renderer


def assert_apart(artists: list[Any], renderer: Any) -> None:
    boxes = [artist.get_window_extent(renderer) for artist in artists]
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


def assert_rows_stand_at_one_height(axes: list[Any], renderer: Any) -> None:
    heights: dict[int, tuple[float, float]] = {}
    for axis in axes:
        box = axis.get_window_extent(renderer)
        row = heights.setdefault(axis.get_subplotspec().rowspan.start, (box.y0, box.y1))
        assert abs(row[0] - box.y0) <= 1 and abs(row[1] - box.y1) <= 1
