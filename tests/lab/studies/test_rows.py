"""Rows by hand: what is compared with what, on which seeds, and what the paper says beside it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jat_graph.lab.statistics import Interval, paired_difference
from jat_graph.lab.studies.rows import MEAN, Row, experiment_rows, quoted_rows, reference_arm
from jat_graph.lab.studies.tables import caption_lines, experiment_markdown
from jat_graph.lab.tables import SECONDS, is_share
from tests.lab.studies import made_up

LINES = [
    {"name": "base", "line": "base", "x": 0},
    {"name": "JAT", "heads": "paper", "line": "JAT", "x": 0},
    {"name": "base −1", "options": {"depth": "-1"}, "line": "base", "x": -1},
    {"name": "JAT −1", "heads": "paper", "options": {"depth": "-1"}, "line": "JAT", "x": -1},
]


def find(rows: tuple[Row, ...], task: str, arm: str, metric: str | None = None) -> Row:
    (row,) = (r for r in rows if (r.task, r.arm.name) == (task, arm) and metric in (None, r.metric))
    return row


def test_every_task_and_arm_has_a_row_and_then_the_mean() -> None:
    rows = experiment_rows(made_up.results())
    places = [(task, arm["name"]) for task in (*made_up.TASKS, MEAN) for arm in made_up.ARMS]
    assert [(row.task, row.arm.name) for row in rows] == places
    assert [row.metric for row in rows[:6]] == ["accuracy"] * 3 + ["pearson"] * 3
    assert {row.split for row in rows} == {""}


def test_scores_and_changes_are_those_of_the_seeds() -> None:
    results = made_up.results()
    row = find(experiment_rows(results), "rte", "JAT")
    arm, base = (
        [record.scores["validation"]["accuracy"] for record in results.of("rte", name)]
        for name in ("JAT", "base")
    )
    assert list(row.values.values()) == arm
    assert row.summary is not None and row.summary.mean == pytest.approx(np.mean(arm))
    assert row.change is not None
    assert row.change.mean == pytest.approx(np.mean(arm) - np.mean(base))
    assert row.change.interval is not None and row.change.draws is not None
    assert row.change.interval.low < row.change.mean < row.change.interval.high
    assert row.threshold == 4.0


def test_the_base_is_compared_with_nothing() -> None:
    rows = experiment_rows(made_up.results())
    assert all(row.change is None for row in rows if row.arm.name == "base")


def test_the_papers_numbers_stand_beside() -> None:
    rows = experiment_rows(made_up.results())
    base, jat, other = (find(rows, "rte", arm["name"]) for arm in made_up.ARMS)
    assert (base.paper, base.paper_change) == (69.3, None)
    assert (jat.paper, jat.paper_change) == (73.3, pytest.approx(4.0))
    assert (other.paper, other.paper_change) == (None, None)
    mean = find(rows, MEAN, "JAT")
    assert (mean.paper, mean.paper_change) == (pytest.approx(81.9), pytest.approx(2.75))


def test_what_the_paper_quotes_stands_after_each_measure() -> None:
    scores = {"base": {"rte": 69.3, "stsb": 89.0}, "ELMo": {"rte": 53.4, "stsb": 70.4}}
    grid = made_up.grid(paper={"quoted": ["ELMo", "CBOW"], **scores, "CBOW": {"rte": 54.2}})
    results = made_up.results(grid)
    rows = list(quoted_rows(grid, experiment_rows(results)))
    assert [row.arm.name for row in rows[:6]] == ["base", "JAT", "JAT†", "ELMo", "CBOW", "base"]
    quoted = [(row.task, row.arm.name, row.paper) for row in rows if not row.values]
    assert quoted == [("rte", "ELMo", 53.4), ("rte", "CBOW", 54.2), ("stsb", "ELMo", 70.4)]
    table = experiment_markdown(results, experiment_rows(results))
    (line,) = [line for line in table.splitlines() if "ELMo" in line and "rte" in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["rte, accuracy", "ELMo", "quoted", "-", "-", "53.4", "-"]
    assert "- Quoted from the paper and not run here: ELMo, CBOW." in table


@pytest.mark.parametrize("name", ["JAT", "XLNet"])
def test_what_is_quoted_has_numbers_and_is_no_arm(name: str) -> None:
    wanted = f"quoted must be names of its tables that are no arms, got '{name}'"
    with pytest.raises(ValueError, match=wanted):
        made_up.grid(paper={"quoted": [name], "JAT": {"rte": 73.3}})


def test_the_mean_is_that_of_the_tasks() -> None:
    rows = experiment_rows(made_up.results())
    parts, mean = [find(rows, task, "JAT") for task in made_up.TASKS], find(rows, MEAN, "JAT")
    for seed in range(3):
        assert mean.values[seed] == pytest.approx(np.mean([row.values[seed] for row in parts]))
    changes = [row.change for row in parts]
    assert mean.change is not None
    assert mean.change.mean == pytest.approx(np.mean([one.mean for one in changes if one]))
    assert mean.change.draws == pytest.approx(
        np.mean([one.draws for one in changes if one], axis=0)
    )
    assert changes[0] is not None and changes[0].interval is not None
    assert mean.change.interval is not None
    width, one = (found.high - found.low for found in (mean.change.interval, changes[0].interval))
    assert width < one


def test_a_mean_of_tasks_that_have_other_seeds_has_no_interval() -> None:
    whole = made_up.results()
    left = [r for r in whole.records if (r.task, r.arm, r.seed) != ("stsb", "JAT", 2)]
    rows = experiment_rows(replace(whole, records=tuple(left)))
    mean = find(rows, MEAN, "JAT").change
    assert mean is not None and set(mean.by_seed) == {0, 1} and mean.interval is None
    other = find(rows, MEAN, "JAT†").change
    assert other is not None and set(other.by_seed) == {0, 1, 2} and other.interval is not None


def test_numbers_by_metric_are_found_by_it() -> None:
    paper = {"model": "m", "base": {"cb": {"accuracy": 94.6, "macro_f1": 93.7}}}
    grid = made_up.grid(tasks=["cb"], columns=["accuracy", "macro_f1"], paper=paper)
    rows = experiment_rows(made_up.results(grid))
    assert [find(rows, "cb", "base", name).paper for name in grid.columns] == [94.6, 93.7]
    assert MEAN not in {row.task for row in rows}  # of one task there is no mean


@pytest.mark.parametrize(("mean", "there"), [(None, False), (True, True), (False, False)])
def test_tasks_of_several_metrics_have_a_mean_if_it_is_asked_for(
    mean: bool | None, there: bool
) -> None:
    changes = {} if mean is None else {"mean": mean}
    grid = made_up.grid(tasks=["cb", "rte"], columns=["accuracy", "macro_f1"], paper={}, **changes)
    rows = experiment_rows(made_up.results(grid))
    assert (MEAN in {row.task for row in rows}) == there


def test_seeds_that_one_arm_lacks_are_not_compared() -> None:
    whole = made_up.results()
    left = [r for r in whole.records if (r.arm, r.seed) not in {("JAT", 2), ("base", 0)}]
    row = find(experiment_rows(replace(whole, records=tuple(left))), "rte", "JAT")
    assert list(row.values) == [0, 1]
    assert row.change is not None and list(row.change.by_seed) == [1]


def test_an_arm_without_a_finished_cell_has_no_row_and_no_mean() -> None:
    whole = made_up.results()
    left = [r for r in whole.records if (r.task, r.arm) != ("stsb", "JAT†")]
    rows = experiment_rows(replace(whole, records=tuple(left)))
    assert [row.arm.name for row in rows if row.task in ("stsb", MEAN)] == ["base", "JAT"] * 2
    assert experiment_rows(replace(whole, records=())) == ()


def test_a_score_that_is_undefined_leaves_nothing_to_compare() -> None:
    whole = made_up.results()
    first = replace(whole.records[0], scores={"validation": {"accuracy": None}})
    rows = experiment_rows(replace(whole, records=(first, *whole.records[1:])))
    assert find(rows, "rte", "base").summary is None
    assert find(rows, "rte", "JAT").change is None
    assert find(rows, MEAN, "JAT").change is None


def test_other_examples_are_refused() -> None:
    whole = made_up.results()
    said, right = made_up.answers("rte", 0, 0.5)
    other = {"validation": {"said": said, "right": right[1:] + right[:1]}}
    first = replace(whole.records[0], answers=other)
    with pytest.raises(ValueError, match="arms 'JAT' and 'base' of rte must be scored on the same"):
        experiment_rows(replace(whole, records=(first, *whole.records[1:])))


def test_without_answers_the_interval_is_students() -> None:
    whole = made_up.results()
    bare = tuple(replace(record, answers={}) for record in whole.records)
    row = find(experiment_rows(replace(whole, records=bare)), "rte", "JAT")
    sides = [
        [r.scores["validation"]["accuracy"] for r in whole.of("rte", n)] for n in ("JAT", "base")
    ]
    truth = paired_difference(*sides)  # type: ignore[arg-type]
    assert row.change is not None and row.change.draws is None
    assert row.change.interval == Interval(pytest.approx(truth.low), pytest.approx(truth.high))


def test_times_are_compared_as_shares() -> None:
    paper = {"model": "m", "JAT": {"rte": {"seconds": 75.0}}}
    results = made_up.results(made_up.grid(columns=[SECONDS], paper=paper))
    rows = experiment_rows(results)
    row = find(rows, "rte", "JAT")
    shares = [(10 + 3 + seed) / (10 + 4 + seed) - 1 for seed in range(3)]
    assert row.change is not None and row.change.mean == pytest.approx(np.mean(shares))
    assert (row.paper, row.paper_change) == (None, 75.0)
    assert find(rows, MEAN, "JAT").metric == SECONDS
    assert {row.metric for row in rows} == {SECONDS}


def test_an_arm_is_compared_with_the_base_at_its_place() -> None:
    grid = made_up.grid(arms=LINES, paper={})
    assert [reference_arm(grid, arm).name for arm in grid.arms] == [
        *("base", "base", "base −1", "base −1")
    ]
    rows = experiment_rows(made_up.results(grid))
    assert [row.arm.name for row in rows if row.task == "rte" and row.change] == ["JAT", "JAT −1"]


def test_several_dev_sets_are_named() -> None:
    whole = made_up.results()
    twice = [
        replace(r, scores={n: r.scores["validation"] for n in ("a", "b")}, answers={})
        for r in whole.records
    ]
    rows = experiment_rows(replace(whole, records=tuple(twice)))
    assert [row.split for row in rows[:6]] == ["a"] * 3 + ["b"] * 3
    once = experiment_rows(whole)
    assert find(rows, MEAN, "JAT").values == pytest.approx(find(once, MEAN, "JAT").values)


SCORES = {"accuracy": 0.5, "accuracy_1": 0.95, "accuracy_2": 0.25}


def test_nothing_is_compared_where_an_encoder_failed_a_lesson() -> None:
    arms = [{"name": "base"}, {"name": "JAT", "heads": "paper"}]
    kind: dict[str, Any] = {"kind": "stepping-stones", "tasks": ["1 layer"], "arms": arms}
    everything = {0, 1, 2}
    for mark, compared in ((0.9, {0, 2}), (0.5, everything), (1.0, set()), (None, everything)):
        marked = {} if mark is None else {"pass_mark": mark}
        lessons = [{"task": "stepping-stones-one", **marked}]
        grid = made_up.grid(**kind, paper={}, **{"stepping-stones": {"lessons": lessons}})
        records = [
            made_up.plain(
                "1 layer",
                arm,
                seed,
                {
                    "test": dict(SCORES),
                    "lessons": {"1-steppingstonesone": 0.6 if seed == 1 else 0.95},
                },
            )
            for arm in ("base", "JAT")
            for seed in range(3)
        ]
        whole = made_up.results(grid, records)
        rows = experiment_rows(whole)
        caption = caption_lines(whole, rows)
        change = find(rows, "1 layer", "JAT", "accuracy_2").change
        assert set(change.by_seed if change else ()) == compared
        (line,) = [line for line in caption if line.startswith("Guessing")]
        left_out = ", ".join(str(seed) for seed in sorted(everything - compared))
        seeds = "seeds" if "," in left_out else "seed"
        rest = f", which leaves out 1 layer, {seeds} {left_out}." if left_out else "."
        passed = f" Arms are compared where the encoder has passed all of its lessons{rest}"
        assert line.endswith(f"follows no step.{passed if marked else ''}")
        assert {row.split for row in rows} == {"test"}
        assert caption[0].startswith("Encoders from scratch, which had lessons, texts")


def test_settings_of_stepping_stones_are_no_tasks() -> None:
    arms = [{"name": "base"}, {"name": "JAT", "heads": "paper"}]
    changes = {"kind": "stepping-stones", "tasks": ["1 layer"], "arms": arms, "paper": {}}
    said = {"base": [0, 1, 2, 0], "JAT": [0, 1, 0, 0]}
    right = [[0, 1], [1, 1], [0, 2], [1, 2]]
    grid = made_up.grid(**changes, columns=["accuracy", "accuracy_2"])
    records = [
        replace(
            made_up.plain(
                "1 layer", arm, seed, {"validation": {"accuracy_1": 1.0}, "test": SCORES}
            ),
            answers={"test": {"said": said[arm], "right": right}},
        )
        for arm in said
        for seed in range(2)
    ]
    rows = experiment_rows(made_up.results(grid, records))
    row = find(rows, "1 layer", "JAT", "accuracy_2")
    assert row.change is not None and row.change.draws is not None
    assert set(np.unique(row.change.draws[~np.isnan(row.change.draws)])) <= {
        0.0,
        1 / 3,
        0.5,
        1.0,
    } | {
        0.25,
        2 / 3,
        0.75,
    }
    assert MEAN not in {row.task for row in rows}


def test_shares_are_told_from_times_and_losses() -> None:
    assert is_share("accuracy") and is_share("different types > mean + std")
    assert not is_share("seconds") and not is_share("perplexity") and not is_share("bits_per_token")
