"""The picture: a panel for each measure, everything inside."""

from dataclasses import replace
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from jat_graph.lab.studies.picture import PAPER, can_draw, draw_experiment
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import experiment_rows
from tests.lab.studies import made_up
from tests.lab.studies.test_rows import LINES

LONG = [{"name": "base"}, {"name": "JAT with a name that is rather long", "heads": "paper"}]


def of_arms() -> Results:
    return made_up.results(made_up.grid(arms=LONG, paper={}))


def of_lines() -> Results:
    return made_up.results(made_up.grid(arms=LINES, paper={}, x_label="layers"))


def draw(results: Results) -> Figure:
    return draw_experiment(results, experiment_rows(results))


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def test_a_panel_for_each_measure_and_one_legend() -> None:
    figure = draw(made_up.results())
    assert [axis.get_title() for axis in figure.axes] == [
        *("rte, accuracy", "stsb, pearson", "mean of tasks")
    ]
    assert legend(figure) == ["here, with its 95 % interval", PAPER]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["JAT", "JAT†"]
    assert not any(label.get_text() for label in figure.axes[1].get_yticklabels())


def test_a_panel_with_other_arms_has_names_of_its_own() -> None:
    whole = made_up.results()
    left = [r for r in whole.records if (r.task, r.arm) != ("rte", "JAT")]
    figure = draw(replace(whole, records=tuple(left)))
    names = [[label.get_text() for label in axis.get_yticklabels()] for axis in figure.axes]
    assert names[:2] == [["JAT†"], ["JAT", "JAT†"]]


def test_the_title_names_what_was_really_used() -> None:
    figure = draw(made_up.results())
    title = figure.get_suptitle()
    assert "Model a-model, data folder 'glue', 3 seeds." in title


def test_one_measure_of_several_tasks_has_one_scale() -> None:
    arms = [{"name": "base"}, {"name": "JAT", "heads": "paper"}]
    kind: dict[str, Any] = {"kind": "stepping-stones", "tasks": ["1 layer", "2 layers"]}
    grid = made_up.grid(**kind, arms=arms, paper={})
    records = [
        made_up.plain(task, arm.name, seed, {"test": {"accuracy_1": score, "accuracy_2": score}})
        for task, score in (("1 layer", 0.2), ("2 layers", 0.9))
        for arm in grid.arms
        for seed in (0, 1)
    ]
    figure = draw(made_up.results(grid, records))
    first, second = figure.axes
    low, high = first.get_ylim()
    assert low < 20 < 90 < high
    assert second.get_ylim() == (low, high)


def test_bars_of_shares_end_at_all() -> None:
    kind: dict[str, Any] = {"kind": "stepping-stones", "tasks": ["1 layer"]}
    grid = made_up.grid(
        **kind, arms=[{"name": "base"}, {"name": "JAT", "heads": "paper"}], paper={}
    )
    records = [
        made_up.plain("1 layer", arm.name, seed, {"test": {"accuracy_1": 1 - seed / 2}})
        for arm in grid.arms
        for seed in (0, 1)
    ]
    figure = draw(made_up.results(grid, records))
    (bar,) = figure.axes[0].containers[0].lines[2][0].get_segments()
    assert tuple(bar[:, 1]) == pytest.approx((75 - 50 / 2**0.5, 100))


def test_an_arm_looks_alike_in_all_panels() -> None:
    arms = [{"name": "base"}, {"name": "JAT", "heads": "paper"}, {"name": "JAT†", "heads": "paper"}]
    kind: dict[str, Any] = {"kind": "stepping-stones", "tasks": ["1 layer", "2 layers"]}
    scores = {"test": {"accuracy_1": 0.5, "accuracy_2": 0.25}}
    records = [
        made_up.plain(task, arm, seed, scores)
        for task, found in (("1 layer", ("base", "JAT", "JAT†")), ("2 layers", ("base", "JAT†")))
        for arm in found
        for seed in (0, 1)
    ]
    figure = draw(made_up.results(made_up.grid(**kind, arms=arms, paper={}), records))
    colours = [
        {bars.get_label(): bars.lines[0].get_color() for bars in axis.containers}
        for axis in figure.axes
    ]
    assert len(set(colours[0].values())) == 3
    assert colours[1] == {name: colours[0][name] for name in ("base", "JAT†")}


def test_lines_are_drawn_over_their_number() -> None:
    figure = draw(of_lines())
    assert legend(figure) == ["base", "JAT"]
    assert figure.axes[0].get_xlabel() == "layers"
    assert list(figure.axes[0].get_xticks()) == [-1, 0]


def of_a_long_name() -> Results:
    whole = made_up.results()
    one = [record for record in whole.records if record.task == "rte"]
    return replace(whole, records=tuple(one), model="a-house/a-model-of-many-layers-" + 60 * "x")


@pytest.mark.parametrize("results", [made_up.results, of_arms, of_lines, of_a_long_name])
def test_everything_lies_inside_the_picture(results) -> None:  # type: ignore[no-untyped-def]
    figure = draw(results())
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    used = figure.get_tightbbox(renderer)
    width, height = figure.get_size_inches()
    assert min(used.x0, used.y0) >= 0
    assert used.x1 <= width
    assert used.y1 <= height


def test_one_arm_is_no_picture() -> None:
    whole = made_up.results()
    alone = replace(whole, records=tuple(r for r in whole.records if r.arm == "base"))
    assert can_draw(whole, experiment_rows(whole)) and not can_draw(alone, experiment_rows(alone))
    with pytest.raises(ValueError, match="a picture of 'glue' needs finished cells of two arms"):
        draw(alone)
