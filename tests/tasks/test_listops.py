import gzip
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks import ListOpsTask, evaluate_listops

INNERMOST = re.compile(r"\[(MIN|MAX|MED|SM)((?: \d)+) \]")


def slow_value(expression: str) -> int:
    """Rewrite the innermost lists by their values until one digit is left."""
    text = " ".join(expression.replace("(", " ").replace(")", " ").split())
    while not text.isdigit():
        text, count = INNERMOST.subn(lambda found: str(slow_list(found[1], found[2])), text)
        assert count, text
    return int(text)


def slow_list(name: str, arguments: str) -> int:
    values = sorted(int(word) for word in arguments.split())
    if name == "SM":
        return int(str(sum(values))[-1])
    if name == "MED":
        return (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2
    return values[0] if name == "MIN" else values[-1]


def lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.sampled_from(("MIN", "MAX", "MED", "SM"))
    words = st.lists(inner, min_size=1, max_size=6).map(" ".join)
    return st.tuples(names, words).map(lambda drawn: f"[{drawn[0]} {drawn[1]} ]")


EXPRESSIONS = st.recursive(st.sampled_from("0123456789"), lists, max_leaves=30)


# --- values --------------------------------------------------------------------------------------


@given(EXPRESSIONS)
def test_values_are_those_of_the_slow_evaluator(expression: str) -> None:
    assert evaluate_listops(expression) == slow_value(expression)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[MED 1 2 4 9 ]", 3),
        ("[MED 1 2 5 9 ]", 3),  # 3.5 without its fraction
        ("[SM 9 9 [SM 1 1 ] ]", 0),
        ("( ( ( [MIN 3 ) 2 ) ] )", 2),
        ("7", 7),
    ],
)
def test_hand_computed_values(expression: str, value: int) -> None:
    assert evaluate_listops(expression) == slow_value(expression) == value


def test_the_original_file_has_the_same_labels(data_dir: Path) -> None:
    packed = (data_dir / "listops" / "test_d20s.tsv.gz").read_bytes()
    rows = [line.split("\t") for line in gzip.decompress(packed).decode().splitlines()]
    assert len(rows) == 10_000
    labels = [int(label) for label, _ in rows]
    assert [evaluate_listops(expression) for _, expression in rows] == labels
    assert [slow_value(expression) for _, expression in rows[::20]] == labels[::20]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("[ADD 1 2 ]", "operator must be one of [MIN, [MAX, [MED, [SM, got '[ADD'"),
        ("[MAX 1 12 ]", "argument must be a digit, got '12'"),
        ("[MAX 1 x ]", "argument must be a digit, got 'x'"),
        ("[MAX ]", "']' must close a list with arguments, got one without"),
        ("1 ]", "']' must close a list with arguments, got one without"),
        ("[MAX 1 2", "expression must be one closed list or digit, got '[MAX 1 2'"),
        ("1 2", "expression must be one closed list or digit, got '1 2'"),
        ("", "expression must be one closed list or digit, got ''"),
    ],
)
def test_expressions_that_are_none(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        evaluate_listops(expression)


# --- drawing -------------------------------------------------------------------------------------


@given(
    size=st.integers(1, 40), least=st.integers(4, 60), more=st.integers(0, 40), seed=st.integers()
)
def test_what_is_drawn_is_asked_for(size: int, least: int, more: int, seed: int) -> None:
    task = ListOpsTask(validation_size=size, min_length=least, max_length=least + more, seed=seed)
    rows = task.load(None, ["validation"])["validation"].to_list()
    assert len(rows) == size
    counts = Counter(row["label"] for row in rows)
    assert max(counts.values()) - min(counts[label] for label in range(10)) <= 1
    for row in rows:
        assert least <= len(row["expression"].split()) <= least + more
        assert slow_value(row["expression"]) == row["label"]


def test_long_expressions_nest_and_have_every_length() -> None:
    task = ListOpsTask(train_size=40, min_length=1990, max_length=2000)
    rows = task.load(None, ["train"])["train"]["expression"]
    lengths = {len(expression.split()) for expression in rows}
    assert lengths <= set(range(1990, 2001)) and len(lengths) > 5
    assert {word for expression in rows for word in expression.split() if "[" in word} == {
        *("[MIN", "[MAX", "[MED", "[SM")
    }
    assert min(map(depth, rows)) > 5


def depth(expression: str) -> int:
    level = deepest = 0
    for word in expression.split():
        level += word.startswith("[") - (word == "]")
        deepest = max(deepest, level)
    return deepest


def test_the_seed_decides_and_splits_differ() -> None:
    def drawn(**settings: Any) -> dict[str, list[str]]:
        loaded = ListOpsTask(train_size=50, **settings).load(None)
        return {split: rows["expression"][:] for split, rows in loaded.items()}

    splits = drawn()
    assert splits == drawn()
    assert drawn(test_size=7)["validation"] == splits["validation"]
    assert not set(drawn(seed=1)["train"]) & set(splits["train"])
    assert len(set().union(*splits.values())) == 50 + 1000 + 1000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train_size": 0}, "train_size must be 1 or more, got 0"),
        ({"test_size": -1}, "test_size must be 1 or more, got -1"),
        ({"min_length": 3}, "min_length must be 4 or more, got 3"),
        ({"min_length": 9, "max_length": 8}, "max_length must be min_length or more, 9, got 8"),
    ],
)
def test_sizes_that_cannot_be(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        ListOpsTask(**settings)
