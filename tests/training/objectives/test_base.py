"""Subsets are the same in every run, and groups stay whole."""

from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.training.objectives.base import draw, draw_groups

GROUPS = st.lists(st.sampled_from("abcdefgh"), max_size=40)


@given(groups=GROUPS, limit=st.integers(0, 50))
def test_groups_are_drawn_whole_until_there_are_enough_rows(groups: list[str], limit: int) -> None:
    drawn, others = draw_groups(groups, limit)
    assert sorted(drawn + others) == list(range(len(groups)))
    assert drawn == sorted(drawn) and others == sorted(others)
    taken = {groups[row] for row in drawn}
    assert taken.isdisjoint(groups[row] for row in others)
    largest = max((groups.count(group) for group in taken), default=0)
    assert min(limit, len(groups)) <= len(drawn) < limit + max(1, largest)
    assert draw_groups(groups, limit) == (drawn, others)


def test_groups_are_drawn_at_random() -> None:
    drawn, others = draw_groups(range(100), 10)
    assert len(drawn) == 10 and len(others) == 90
    assert drawn != list(range(10))


def test_rows_of_one_group_are_drawn_together() -> None:
    rows = Dataset.from_dict(
        {"x": list(range(60)), "question": [f"{row // 3}" for row in range(60)]}
    )
    drawn = draw(rows, 10, "question")
    assert len(drawn) == 12  # four questions of three answers
    assert [x // 3 for x in drawn["x"][::3]] == [x // 3 for x in drawn["x"][2::3]]
    assert drawn["x"][:] == draw(rows, 10, "question")["x"][:]
    assert draw(rows, None, "question") is draw(rows, 60, "question") is rows
    assert len(draw(rows, 10)) == 10
