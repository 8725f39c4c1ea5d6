"""What is drawn, as numbers."""

from dataclasses import replace
from typing import Any

import pytest

from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.picture import Panel, choose_panels
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import MEAN, experiment_rows
from tests.lab.studies import made_up
from tests.lab.studies.test_rows import LINES


def panels(results: Results) -> list[Panel]:
    return choose_panels(results.grid, experiment_rows(results))


def numbered(of: Grid, scores: dict[str, dict[str, Any]]) -> Results:
    """Return results of two seeds whose scores are the same everywhere."""
    cells = [(t, arm.name, seed) for t in of.tasks for arm in of.arms for seed in range(2)]
    return made_up.results(of, [made_up.plain(*cell, scores) for cell in cells])


def test_changes_of_arms_stand_below_each_other() -> None:
    results = made_up.results()
    found = panels(results)
    assert [panel.title for panel in found] == ["rte, accuracy", "stsb, pearson", MEAN]
    rows = [row for row in experiment_rows(results) if row.task == "rte" and row.change]
    panel, (line,) = found[0], found[0].lines
    assert panel.ticks == ("JAT", "JAT†")
    assert line.y == [0, 1]
    for place, row in enumerate(rows):
        assert row.change is not None and row.change.interval is not None
        assert line.x[place] == pytest.approx(100 * row.change.mean)
        low, high = line.x[place] - line.below[place], line.x[place] + line.above[place]
        assert (low / 100, high / 100) == pytest.approx(
            (row.change.interval.low, row.change.interval.high)
        )
    (printed,) = panel.printed
    assert (printed.x, printed.y) == ([pytest.approx(4.0)], [0.0])


def test_arms_with_numbers_are_lines_of_changes() -> None:
    arms = [
        {"name": "base"},
        *(
            {
                "name": f"{n} heads",
                "heads": "paper",
                "settings": {"heads": n},
                "line": "JAT",
                "x": n,
            }
            for n in (2, 4)
        ),
    ]
    paper = {"model": "m", "base": {"rte": 78.7}, "4 heads": {"rte": 80.2}}
    panel = panels(made_up.results(made_up.grid(arms=arms, paper=paper, x_label="heads")))[0]
    (line,), (printed,) = panel.lines, panel.printed
    assert (panel.x_label, panel.ticks, panel.of_changes) == ("heads", (), True)
    assert (line.name, line.x) == ("JAT", [2, 4])
    assert (printed.x, printed.y) == ([4.0], [pytest.approx(1.5)])


def test_a_base_with_a_line_gives_lines_of_scores() -> None:
    results = made_up.results(made_up.grid(arms=LINES, paper={}))
    panel = panels(results)[0]
    assert [(line.name, line.x) for line in panel.lines] == [("base", [-1, 0]), ("JAT", [-1, 0])]
    assert not panel.of_changes
    summary = next(row.summary for row in experiment_rows(results) if row.arm.name == "base −1")
    assert summary is not None and summary.std is not None
    assert panel.lines[0].y[0] == pytest.approx(100 * summary.mean)
    assert panel.lines[0].below[0] == pytest.approx(100 * summary.std)


def test_metrics_that_end_with_a_number_are_lines() -> None:
    arms = [{"name": "base"}, {"name": "JAT", "heads": "paper"}]
    changes: dict[str, Any] = {"kind": "stepping-stones", "tasks": ["1 layer", "2 layers"]}
    grid = made_up.grid(**changes, arms=arms, paper={}, x_label="steps")
    scores = {"test": {"accuracy": 0.5, **{f"accuracy_{n}": 0.2 * n for n in (1, 2, 3)}}}
    found = panels(numbered(grid, scores))
    assert [panel.title for panel in found] == ["1 layer, accuracy", "2 layers, accuracy"]
    assert [line.name for line in found[0].lines] == ["base", "JAT"]
    assert found[0].lines[0].x == [1, 2, 3]
    assert found[0].lines[0].y == pytest.approx([20, 40, 60])
    assert found[0].x_label == "steps"


def test_parts_of_a_model_that_end_with_a_number_are_lines() -> None:
    arms = [{"name": "base"}, {"name": "JAT", "heads": "paper"}]
    grid = made_up.grid(kind="connections", tasks=["wnut17"], arms=arms, paper={})
    scores = {"all layers": {"share": 0.3}, **{f"layer {n}": {"share": 0.1 * n} for n in (1, 2)}}
    (panel,) = panels(numbered(grid, scores))
    assert (panel.title, panel.x_label) == ("wnut17, share", "layer")
    assert panel.lines[1].x == [1, 2]


def test_nothing_to_compare_is_nothing_to_draw() -> None:
    whole = made_up.results()
    base = [record for record in whole.records if record.arm == "base"]
    assert panels(replace(whole, records=tuple(base))) == []
    assert panels(replace(whole, records=())) == []
