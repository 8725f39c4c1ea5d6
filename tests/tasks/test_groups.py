from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks.metrics import put_together, score, score_groups

LABELS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=5)
GROUPS = st.lists(LABELS, min_size=1, max_size=6)
NAMES = ("f1", "exact_match", "accuracy")


def test_hand_computed_values() -> None:
    # Three questions of 3, 2 and 1 answers: the first and the last are right as a whole.
    said, labels = [[1, 0, 1], [1, 1], [0]], [[1, 0, 1], [0, 1], [0]]
    # over all six answers 3 true positives, 1 false positive, no false negative
    assert score_groups(NAMES, said, labels) == pytest.approx(
        {"f1": 2 * 3 / (2 * 3 + 1), "exact_match": 2 / 3, "accuracy": 5 / 6}
    )


@given(GROUPS)
def test_groups_of_one_row_are_rows(groups: list[list[tuple[int, int]]]) -> None:
    rows = [row for group in groups for row in group]
    said, labels = [[one] for one, _ in rows], [[other] for _, other in rows]
    found = score_groups(NAMES, said, labels)
    flat = score(("f1", "accuracy"), np.array(said)[:, 0], np.array(labels)[:, 0])
    assert found == flat | {"exact_match": flat["accuracy"]}
    assert list(found) == list(NAMES)


@given(GROUPS)
def test_the_order_of_groups_and_rows_says_nothing(groups: list[list[tuple[int, int]]]) -> None:
    def scores(groups: list[list[tuple[int, int]]]) -> dict[str, float]:
        said, labels = ([[row[side] for row in group] for group in groups] for side in (0, 1))
        return score_groups(NAMES, said, labels)

    assert scores([group[::-1] for group in groups[::-1]]) == pytest.approx(scores(groups))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=20))
def test_rows_are_grouped_in_the_order_of_their_groups(rows: list[tuple[str, int]]) -> None:
    names = [name for name, _ in rows]
    (found,) = put_together(names, [value for _, value in rows])
    order = sorted(set(names), key=names.index)
    assert found == [[value for name, value in rows if name == wanted] for wanted in order]


@pytest.mark.parametrize(
    ("said", "labels", "message"),
    [
        ([[1]], [[1, 0]], "said and labels must have groups of the same lengths, got others"),
        ([[1]], [[1], [1]], "said and labels must have groups of the same lengths, got others"),
        ([], [], "said and labels must have one length above 0, got 0 and 0"),
    ],
)
def test_what_cannot_be_scored_is_refused(said: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        score_groups(NAMES, said, labels)
