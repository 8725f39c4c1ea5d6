from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks.splitting import stratified_split

CLASSES = st.lists(st.sampled_from("abc"), max_size=60)
SHARES = {"validation": 0.2, "test": 0.1}


@given(CLASSES)
def test_every_row_is_in_one_split_and_every_class_has_its_share(classes: list[str]) -> None:
    splits = stratified_split(classes, SHARES)
    assert list(splits) == ["train", "validation", "test"]
    assert sorted(row for rows in splits.values() for row in rows) == list(range(len(classes)))
    sizes = Counter(classes)
    for split, share in SHARES.items():
        counts = Counter(classes[row] for row in splits[split])
        assert all(abs(counts[name] - share * size) <= 0.5 for name, size in sizes.items())
    assert all(rows == sorted(rows) for rows in splits.values())


@given(CLASSES, CLASSES)
def test_rows_of_a_class_do_not_depend_on_the_other_classes(
    first: list[str], more: list[str]
) -> None:
    alone = stratified_split(first, SHARES)
    with_others = stratified_split([*first, *(name.upper() for name in more)], SHARES)
    for split, rows in alone.items():
        assert [row for row in with_others[split] if row < len(first)] == rows


def test_rows_are_drawn_and_not_just_the_first() -> None:
    splits = stratified_split([0] * 100, {"test": 0.5})
    assert splits == stratified_split([0] * 100, {"test": 0.5})
    assert 10 < sum(row < 50 for row in splits["test"]) < 40
