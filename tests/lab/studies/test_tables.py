"""The table says what the rows say, and its caption what they were made from."""

from dataclasses import replace
from typing import Any

import pytest

from jat_graph.lab.statistics import Difference, Interval
from jat_graph.lab.studies.rows import MEAN, Row, experiment_rows
from jat_graph.lab.studies.tables import (
    caption_lines,
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


def test_the_caption_names_what_was_really_used() -> None:
    text = "\n".join(caption_lines(made_up.results(), ROWS))
    for part in (
        "Model a-model, data folder 'glue', 3 seeds.",
        "Examples: rte 100 (train) and 60 (validation); stsb",
        "new seeds and new examples at once: a paired bootstrap",
        "not corrected for their number",
        "ρ is the one of 4, 6 that did best on 10% of the training data",
        "The paper's numbers (Table 1) are those of BERT-base.",
        "Budget: a minute.",
        "A Processor, 2 cores",
        "torch 2.13.0",
    ):
        assert part in text


def test_the_caption_says_for_which_arm_a_threshold_was_chosen() -> None:
    arms = [{"name": "base"}, *({"name": name, "heads": "paper"} for name in ("a", "b", "c"))]
    arms[1]["tune"], arms[2]["tune"], arms[3]["tune"] = (True, "a", "a")
    text = "\n".join(caption_lines(made_up.results(made_up.grid(arms=arms, paper={})), ROWS))
    assert "It was chosen for a, which that favours; b, c took it over." in text


def test_the_caption_counts_seeds_where_they_differ_and_says_what_intervals_are_of() -> None:
    whole = made_up.results()
    records = [replace(record, answers={}) for record in whole.records]
    text = "\n".join(caption_lines(replace(whole, records=tuple(records[1:])), ROWS))
    assert "2 to 3 seeds." in text
    assert "its interval is that of new seeds, Student's of the paired t test." in text


def test_the_caption_says_no_more_than_is_true() -> None:
    grid = made_up.grid(paper={}, tuning={"thresholds": [4.0]}, budget="", seeds=1)
    results = replace(made_up.results(grid), data=None, machine={"gpu": "A GPU"})
    text = "\n".join(caption_lines(results, ROWS))
    assert "Model a-model, data by name, 1 seed." in text
    assert "In the paper: Table 1." in text
    assert "Run on A GPU, unknown processor, ? cores" in text
    assert "Budget" not in text


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


def test_the_papers_model_is_named_if_it_is_known() -> None:
    grid = made_up.grid(paper={"base": {"rte": 69.3}}, source="Table 1")
    text = "\n".join(caption_lines(made_up.results(grid), ROWS))
    assert "In the paper: Table 1." in text and "those of ." not in text


def test_arms_that_train_on_other_examples_are_named() -> None:
    whole = made_up.results()
    records = [
        replace(r, examples={"train": 50}) if r.arm == "JAT" and r.task == "rte" else r
        for r in whole.records
    ]
    text = "\n".join(caption_lines(replace(whole, records=tuple(records)), ROWS))
    both = "rte 100 (train) and 60 (validation) for base, JAT†, 50 (train) for JAT; stsb 100"
    assert both in text


def test_a_share_of_the_data_is_stated() -> None:
    whole = made_up.results()
    records = [replace(r, all_examples={"train": 2500, "validation": 60}) for r in whole.records]
    text = "\n".join(caption_lines(replace(whole, records=tuple(records)), ROWS))
    assert "rte 100 of 2,500 (train) and 60 (validation)" in text


def test_all_machines_and_versions_are_named() -> None:
    grid = made_up.grid(columns=["seconds"], paper={})
    whole = made_up.results(grid)
    other = {"processor": "Another", "cores": 8, "gpu": "A GPU", "torch": "2.14.0"}
    records = (replace(whole.records[0], machine=other), *whole.records[1:])
    line = caption_lines(replace(whole, records=records), ROWS)[-1]
    assert "Run on A GPU, Another, 8 cores and A Processor, 2 cores;" in line
    assert "torch 2.14.0 or 2.13.0." in line and "Times of different machines" in line
    assert "Times of different machines" not in caption_lines(whole, ROWS)[-1]


def test_the_numbers_that_all_cells_multiplied_in_are_named() -> None:
    whole = made_up.results()
    assert "cores; " in caption_lines(whole, ROWS)[-1]
    first, *others = whole.records
    for name, rest, said in [
        ("bf16", "bf16", " in bf16;"),
        ("bf16", "no", " in bf16 and fp32;"),
        ("bf16", None, "cores;"),
    ]:
        records = [replace(record, mixed_precision=rest) for record in others]
        records.insert(0, replace(first, mixed_precision=name))
        assert said in caption_lines(replace(whole, records=tuple(records)), ROWS)[-1]
