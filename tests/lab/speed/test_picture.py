"""The picture: a panel for each benchmark, a line for each side, everything inside."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from jat_graph.lab.speed.picture import can_draw, draw_results
from jat_graph.lab.speed.results import Results, Row
from jat_graph.lab.speed.series import Outcome
from tests.lab.speed.support import outcome, results

LENGTHS = (128, 256, 4096)


def made_up(benchmark: str) -> Results:
    rows = [
        Row(what, "ordinary", n, outcome(n * factor, n * 2.0), 1.0)
        for factor, what in enumerate(("JAT†, a rather long name of our side", "JAT"), start=1)
        for n in LENGTHS
    ]
    lonely = Row("one point", "nothing", 512, outcome(), 1.0)
    missing = Row("missing", "nothing", 512, Outcome(note="no"), 1.0)
    return results(benchmark, *rows, lonely, missing)


def test_every_side_of_two_lengths_or_more_is_a_line() -> None:
    (axis,) = draw_results([made_up("heads")]).axes
    lines = {line.get_label(): line for line in axis.lines}
    assert list(lines) == ["JAT†, a rather long name of our side", "JAT", "ordinary"]
    assert list(lines["JAT"].get_xdata()) == list(LENGTHS)
    assert list(lines["JAT"].get_ydata()) == [2.0 * n for n in LENGTHS]
    assert lines["ordinary"].get_linestyle() == "--"
    assert axis.get_xscale() == axis.get_yscale() == "log"
    assert axis.get_ylabel() == "time in seconds"


def test_bytes_are_drawn_in_mebibytes() -> None:
    (axis,) = draw_results([made_up("memory")]).axes
    assert axis.get_ylabel() == "peak memory in MiB"
    assert axis.lines[1].get_ydata()[0] == 2 * 128 / 2**20


def test_time_and_memory_have_a_panel_each() -> None:
    facts = {"our_bytes": 2**20, "their_bytes": 2**21}
    rows = [Row("ours", "theirs", n, outcome(n, 2.0 * n, **facts), 1.0) for n in LENGTHS]
    rows += [Row("another", "ours", n, outcome(n, 2.0 * n, **facts), 1.0) for n in LENGTHS]
    time, memory = draw_results([results("long", *rows)]).axes
    assert (time.get_ylabel(), memory.get_ylabel()) == ("time in seconds", "peak memory in MiB")
    for axis in (time, memory):  # ours is a side of its own, and is not drawn again
        assert [line.get_label() for line in axis.lines] == ["ours", "another", "theirs"]
    assert list(memory.lines[2].get_ydata()) == [2.0] * len(LENGTHS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_everything_lies_inside_the_picture(count: int) -> None:
    figure = draw_results([made_up("heads")] * count)
    assert len(figure.axes) == count
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    used = figure.get_tightbbox(renderer)
    width, height = figure.get_size_inches()
    assert min(used.x0, used.y0) >= 0
    assert used.x1 <= width
    assert used.y1 <= height


def test_one_length_is_no_line() -> None:
    single = results("kernels", Row("a", "b", 64, outcome(), 1.0))
    assert not can_draw(single)
    assert can_draw(made_up("heads"))
    with pytest.raises(ValueError, match="a picture of 'kernels' needs two lengths or more"):
        draw_results([made_up("heads"), single])
