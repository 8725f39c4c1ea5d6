"""Verdicts: Holm's correction, and what yes, no and unknown go by."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.lab.studies.grid import Grid, load_grid
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.rows import experiment_rows
from jat_graph.lab.studies.tables import experiment_markdown
from jat_graph.lab.studies.verdicts import holm, verdicts

SHARES = st.lists(st.floats(0.0, 1.0), max_size=12)
CONTENT: dict[str, Any] = {
    "name": "mine",
    "title": "Two steps away",
    "kind": "partners",
    "tasks": ["1 layer, 2 pairs", "2 layers, 2 pairs"],
    "question": {"least": 20.0, "tasks": ["1 layer, 2 pairs"]},
    "arms": [{"name": "plain"}, {"name": "stones", "heads": "stones"}],
}


def results(plain: list[float], stones: list[float], **question: Any) -> Results:
    """Return results of which the scores of the largest size are these, by seed."""
    grid = Grid.from_dict(
        CONTENT | {"seeds": len(plain), "question": CONTENT["question"] | question}
    )
    records = tuple(
        Record(task, arm, seed, {"test": {"accuracy": 0.9, "accuracy_1": 1.0, "accuracy_2": score}})
        for task in grid.tasks
        for arm, scores in (("plain", plain), ("stones", stones))
        for seed, score in enumerate(scores)
    )
    return Results(grid, "", "from scratch", None, {}, {}, records)


def said(found: Results) -> list[str]:
    return [one.said for one in verdicts(found, experiment_rows(found))]


@given(SHARES, st.integers(0, 30))
def test_holm_goes_through_the_values_from_the_smallest(values: list[float], more: int) -> None:
    family = len(values) + more
    corrected, largest = holm(values, family), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, (family - rank) * values[place])
        assert corrected[place] == pytest.approx(min(1.0, largest))


@given(SHARES.filter(bool), st.floats(0.0, 1.0))
def test_a_comparison_elsewhere_never_makes_a_value_larger_than_holm_says(
    values: list[float], other: float
) -> None:
    together = holm([*values, other], len(values) + 1)[:-1]
    assert all(a <= b + 1e-12 for a, b in zip(together, holm(values, len(values) + 1), strict=True))


def test_an_arm_is_better_where_all_seeds_are_by_as_much_as_is_asked() -> None:
    found = results([0.50, 0.51, 0.52], [0.90, 0.92, 0.91])
    (one,) = verdicts(found, experiment_rows(found))
    assert one.said == "yes" and one.row.metric == "accuracy_2" and one.p == one.corrected
    assert said(results([0.50, 0.51, 0.52], [0.90, 0.92, 0.91], least=41.0)) == ["unknown"]
    assert said(results([0.50, 0.51, 0.52], [0.90, 0.92, 0.91], least=60.0)) == ["no"]
    assert said(results([0.90, 0.92, 0.91], [0.50, 0.51, 0.52])) == ["no"]


def test_more_comparisons_and_more_spread_make_it_unknown() -> None:
    assert said(results([0.50, 0.51, 0.52], [0.90, 0.92, 0.91], family=500)) == ["unknown"]
    assert said(results([0.50, 0.51, 0.52], [0.60, 0.99, 0.80])) == ["unknown"]


def test_a_question_is_about_what_its_grid_shows() -> None:
    grid = load_grid("scratch")  # of chorales bits, and not the perplexity
    asked = [kind_of(grid).asked(grid, task) for task in grid.tasks]
    assert asked == ["accuracy", "bits_per_token", "bits_per_character", "accuracy"]
    partners = load_grid("partners")
    assert kind_of(partners).asked(partners, "2 layers, 8 pairs") == "accuracy_8"


def test_comparisons_that_are_not_run_yet_count() -> None:
    found = results([0.50, 0.51, 0.52], [0.90, 0.92, 0.91], tasks=CONTENT["tasks"])
    begun = replace(found, records=tuple(r for r in found.records if r.task == "1 layer, 2 pairs"))
    (one,) = verdicts(begun, experiment_rows(begun))
    assert one.p is not None and one.corrected == pytest.approx(2 * one.p)


def test_one_seed_and_equal_scores_say_what_they_can() -> None:
    assert said(results([0.5], [0.9])) == ["unknown"]
    found = results([0.5, 0.6], [0.5, 0.6])
    (one,) = verdicts(found, experiment_rows(found))
    assert (one.p, one.corrected) == (1.0, 1.0)


def test_a_table_says_what_it_goes_by_where_something_was_asked() -> None:
    found = results([0.50, 0.51, 0.52], [0.90, 0.92, 0.91])
    text = experiment_markdown(found, experiment_rows(found))
    assert "| verdict" in text and "better than 'plain' by 20 points or more" in text
    assert "for 1 comparisons" not in text
    plain = Grid.from_dict({k: v for k, v in CONTENT.items() if k != "question"})
    bare = Results(plain, "", "from scratch", None, {}, {}, found.records)
    assert verdicts(bare, experiment_rows(bare)) == []


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"least": 0.0}, "least must be above 0, got 0"),
        ({"least": {"1 layer, 2 pairs": 20.0}}, "least must have a number for each of 1 layer"),
        ({"tasks": ["rte"]}, "unknown 'rte', wanted one of 1 layer, 2 pairs"),
        ({"family": 1}, "family must be at least 2, got 1"),  # one arm on two tasks
        ({"most": 1.0}, "unknown 'most'"),
    ],
)
def test_a_question_that_cannot_be_answered_is_one_line(question: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        Grid.from_dict(CONTENT | {"question": {"least": 1.0} | question})
    assert "\n" not in str(caught.value)
