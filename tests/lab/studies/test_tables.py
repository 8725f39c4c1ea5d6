"""The table says what the rows say."""

from dataclasses import replace
from typing import Any

import pytest

from jat_graph.lab.statistics import Difference, Interval
from jat_graph.lab.studies.rows import MEAN, Row, experiment_rows
from jat_graph.lab.studies.tables import (
    experiment_markdown,
    finding_lines,
    results_frame,
)
from tests.lab.studies import made_up
from tests.lab.studies.support import narrow

GRID = made_up.grid()
BASE, JAT, DAGGER = GRID.arms


def markdown(*arguments: Any) -> str:
    return narrow(experiment_markdown(*arguments))


def row(arm: Any, values: list[float], change: float | None = None, **fields: Any) -> Row:
    """Return a row with a change whose interval is two hundredths wide."""
    found = None
    if change is not None:
        ends = Interval(change - 0.01, change + 0.01)
        found = Difference(dict.fromkeys(range(len(values)), change), ends)
    plain = {"task": "rte", "split": "", "metric": "accuracy"} | fields
    return Row(arm=arm, values=dict(enumerate(values)), change=found, **plain)


ROWS = (
    row(BASE, [0.5, 0.6, 0.7], paper=69.3),
    row(JAT, [0.6, 0.6, 0.75], 0.05, paper=73.3, paper_change=4.0, threshold=6.0),
    row(DAGGER, [0.6, 0.61], 0.005),
)


def test_the_table_by_hand() -> None:
    lines = markdown(made_up.results(), ROWS).splitlines()
    assert lines[:5] == [
        "| measure | arm | score | change | 95 % interval | paper | paper's change | ρ |",
        "|:---|:---|---:|---:|---:|---:|---:|---:|",
        "| rte, accuracy | base | 60.0 ± 10.0 | - | - | 69.3 | - | - |",
        "| rte, accuracy | JAT | 65.0 ± 8.7 | **+5.0** | +4.0 to +6.0 | 73.3 | +4.0 | 6 |",
        "| rte, accuracy | JAT† | 60.5 ± 0.7 (2 seeds) | +0.5 | -0.5 to +1.5 | - | - | - |",
    ]


def test_the_numbers_of_the_table_are_a_frame() -> None:
    results = made_up.results()
    frame = results_frame(results).set_index(["task", "arm"])
    jat = frame.loc[("rte", "JAT")]
    scores = [record.scores["validation"]["accuracy"] for record in results.of("rte", "JAT")]
    assert jat["mean"] == pytest.approx(sum(s or 0 for s in scores) / 3)
    assert jat["low"] < jat["change"] < jat["high"]
    assert (jat["seeds"], jat["paper"], jat["threshold"]) == (3, 73.3, 4.0)
    assert len(frame) == 9 and frame.loc[("rte", "base"), "change"] != jat["change"]


def test_columns_that_nobody_fills_are_left_out() -> None:
    lines = markdown(made_up.results(), (row(BASE, [0.5]), row(DAGGER, [0.6], 0.1)))
    assert lines.splitlines()[0] == "| measure | arm | score | change | 95 % interval |"


@pytest.mark.parametrize(
    ("metric", "values", "score", "change"),
    [
        ("seconds", [10.0, 12.0], "11.0 ± 1.4 s", "**+50 %**"),
        ("perplexity", [3.21, 3.45], "3.33 ± 0.17", "**+0.500**"),
        ("pearson", [0.5, 0.5], "50.0 ± 0.0", "**+50.0**"),
    ],
)
def test_numbers_have_their_units(
    metric: str, values: list[float], score: str, change: str
) -> None:
    results = made_up.results(made_up.grid(seeds=2))
    text = markdown(results, (row(JAT, values, 0.5, metric=metric),)).splitlines()[2]
    assert f"| {score} | {change} |" in text


def test_an_undefined_score_says_so() -> None:
    undefined = replace(ROWS[0], values={0: None})
    assert "| undefined |" in markdown(made_up.results(), (undefined,))


def test_numbered_measures_stand_side_by_side() -> None:
    fields = {"task": "wnut17", "metric": "share"}
    rows = [
        row(arm, [0.25 * n] * 2, None if arm is BASE else 0.05, split=f"layer {n}", **fields)
        for n in (1, 2)
        for arm in (BASE, JAT)
    ]
    rows.append(row(BASE, [0.5], split="all layers", **fields))
    lines = markdown(made_up.results(made_up.grid(seeds=2)), rows).splitlines()
    assert lines[2] == "| wnut17, all layers, share | base | 50.0 (1 seed) |"
    assert lines[4:8] == [
        "| measure | arm | layer 1 | layer 2 |",
        "|:---|:---|---:|---:|",
        "| wnut17, share | base | 25.0 ± 0.0 | 50.0 ± 0.0 |",
        "| wnut17, share | JAT | 25.0 ± 0.0 (**+5.0**) | 50.0 ± 0.0 (**+5.0**) |",
    ]
    assert "- In the table by layer, changes are in brackets, without their intervals." in lines


def test_findings_count_intervals_and_signs() -> None:
    worse = row(JAT, [0.5, 0.5], -0.05, paper_change=1.0, task="stsb", metric="pearson")
    first, second = finding_lines(made_up.results(), (*ROWS, worse))
    assert first.startswith("Of 3 intervals, 1 lies above 0, 1 lies below, and 1 hold it.")
    assert second == "The change has the sign of the paper's in 1 of 2 places."


def test_findings_tell_arms_that_score_alike() -> None:
    alike = replace(row(JAT, [0.5, 0.5]), change=Difference({0: 0.0, 1: 0.0}, Interval(0.0, 0.0)))
    (line,) = finding_lines(made_up.results(), (alike, alike, row(DAGGER, [0.5, 0.5], 0.0)))
    assert line.startswith(
        "Of 3 intervals, 0 lie above 0, 0 lie below, and 3 hold it, 2 of them of arms that score "
        "alike with each seed. If no arm differed, about 0.05 would lie off 0 by chance."
    )


def test_findings_name_the_best_arm_here_and_there() -> None:
    means = (
        row(JAT, [0.5, 0.5], 0.005, task=MEAN, metric="", paper_change=2.0),
        row(DAGGER, [0.5, 0.5], 0.02, task=MEAN, metric="", paper_change=1.0),
    )
    (line,) = finding_lines(made_up.results(), means)
    assert line.startswith(
        "Of all arms JAT† changes the mean of the tasks to the highest: **+2.0**"
    )
    assert "in the paper JAT, +2.0" in line


def test_times_are_explained_as_times() -> None:
    results = made_up.results(made_up.grid(columns=["seconds"], paper={}))
    text = markdown(results, experiment_rows(results))
    assert "a change is the share of more time" in text
    assert "bootstrap" not in text


def test_nothing_finished_is_said() -> None:
    assert markdown(made_up.results(records=()), ()) == "No cell is finished yet."


def test_one_seed_says_nothing_of_others() -> None:
    results = made_up.results(made_up.grid(seeds=1))
    rows = (row(BASE, [0.5]), row(JAT, [0.6], 0.1))
    text = markdown(results, rows)
    assert "| +10.0 | +9.0 to +11.0 |" in text and "**" not in text
    assert "it says nothing of other seeds, so that no change is bold" in text
    assert "new seeds" not in text and "intervals, " not in text
    assert not finding_lines(results, rows)


def test_an_arm_of_one_seed_among_others_is_not_bold() -> None:
    whole = made_up.results()
    left = tuple(r for r in whole.records if r.arm != "JAT†" or r.seed == 0)
    text = markdown(
        replace(whole, records=left), (row(JAT, [0.6, 0.6], 0.1), row(DAGGER, [0.6], 0.1))
    )
    assert "**+10.0**" in text and "| +10.0 |" in text
    assert "with one seed the interval is that of new examples alone" in text


def test_seeds_that_only_one_arm_has_are_not_compared_and_the_caption_knows() -> None:
    few = replace(ROWS[1], change=Difference({2: 0.1}, Interval(0.05, 0.15)))
    text = markdown(made_up.results(), (ROWS[0], few))
    assert "| +10.0 | +5.0 to +15.0 |" in text
    assert "with one seed the interval is that of new examples alone" in text
    assert "with one seed" not in markdown(made_up.results(), ROWS)
