import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks.superglue_readers import (
    BOOLEAN,
    Labels,
    Reader,
    copy_texts,
    make_rows,
    read_copa,
    read_flat_multirc,
    read_multirc,
    read_wic,
    read_wsc,
)

CHOICES = ("choice1", "choice2")
ENTAILMENT = ("entailment", "contradiction", "neutral")

PAIR = {"premise": "It rains.", "hypothesis": "It is wet.", "label": "neutral"}
COPA = {
    "premise": "It rained.",
    "choice1": "I sang.",
    "choice2": "I got wet.",
    "question": "effect",
    "label": 1,
}
PASSAGE = {
    "text": "Ann has a cat and a dog.",
    "questions": [
        {
            "question": "What has Ann?",
            "idx": 7,
            "answers": [{"text": "a cat", "label": 1}, {"text": "", "label": 0}],
        },
        {"question": "Who?", "idx": 8, "answers": [{"text": "Ann", "label": 1}]},
    ],
}
MULTIRC = {"idx": 3, "passage": PASSAGE}
FLAT = {
    "paragraph": PASSAGE["text"],
    "question": "Who?",
    "answer": "Ann",
    "idx": {"paragraph": 3, "question": 8, "answer": 20},
    "label": 1,
}
WIC = {
    "sentence1": "Room and board.",
    "sentence2": "He nailed boards.",
    "start1": 9,
    "end1": 14,
    "start2": 10,
    "end2": 16,
    "label": False,
}
TARGET = {"span1_text": "The Cup", "span1_index": 3, "span2_text": "it", "span2_index": 6}
WSC = {"text": "Water is in the cup until it is full", "target": TARGET, "label": True}

CASES: dict[str, tuple[Reader, Labels, dict[str, Any]]] = {
    "pair": (copy_texts("premise", "hypothesis"), ENTAILMENT, PAIR),
    "copa": (read_copa, CHOICES, COPA),
    "multirc": (read_multirc, BOOLEAN, MULTIRC),
    "flat": (read_flat_multirc, BOOLEAN, FLAT),
    "wic": (read_wic, BOOLEAN, WIC),
    "wsc": (read_wsc, BOOLEAN, WSC),
}


def read(case: str, **changes: Any) -> list[dict[str, Any]]:
    reader, labels, line = CASES[case]
    return list(reader(line | changes, labels))


# --- what lines become ---------------------------------------------------------------------------


def test_texts_are_taken_as_they_are() -> None:
    assert read("pair") == [{"premise": "It rains.", "hypothesis": "It is wet.", "label": 2}]
    assert read("pair", label=1)[0]["label"] == 1  # the Hub's


def test_a_choice_is_asked_for_in_the_words_of_its_authors() -> None:
    (row,) = read("copa")
    assert row == {
        "prompt": "It rained. What happened as a result?",
        "choices": ["I sang.", "I got wet."],
        "label": 1,
    }
    assert read("copa", question="cause")[0]["prompt"].endswith(" What was the cause of this?")


def test_each_answer_is_a_row_of_its_question() -> None:
    assert [row["paragraph"] for row in read("multirc")] == [PASSAGE["text"]] * 3
    assert [tuple(row.values())[1:] for row in read("multirc")] == [
        ("What has Ann? a cat", "3-7", 1),
        ("What has Ann?", "3-7", 0),
        ("Who? Ann", "3-8", 1),
    ]


def test_the_hub_has_the_same_answers() -> None:
    assert read("flat") == read("multirc")[2:]


def test_words_are_marked() -> None:
    assert read("wic") == [
        {"sentence1": "Room and * board *.", "sentence2": "He nailed * boards *.", "label": 0}
    ]
    wanted = [{"text": "Water is in * the cup * until # it # is full", "label": 1}]
    assert read("wsc") == wanted
    flat = {"text": WSC["text"], "label": 1, **TARGET}
    assert list(read_wsc(flat, BOOLEAN)) == wanted  # as the Hub has it


# --- wrong lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("pair", {"premise": None}, "must have text as 'premise', got nothing"),
        ("pair", {"premise": 3}, "must have text as 'premise', got 3"),
        ("pair", {"premise": " \n"}, "must have text as 'premise', got none"),
        (
            "pair",
            {"premise": "a\ud800"},
            "must have text as 'premise', got half of a character in ",
        ),
        (
            "pair",
            {"label": "yes"},
            "must have a label of entailment, contradiction, neutral, got 'y",
        ),
        ("pair", {"label": 3}, "must have a label of entailment, contradiction, neutral, got 3"),
        ("pair", {"label": True}, "must have a label of entailment, contradiction, neutral, got T"),
        ("pair", {"label": None}, "must have a label of entailment, contradiction, neutral, got N"),
        ("wsc", {"label": -1}, "must have a label of False, True, got -1"),
        ("wsc", {"label": 0.0}, "must have a label of False, True, got 0.0"),
        ("copa", {"question": "why"}, "must have cause or effect as its question, got 'why'"),
        ("copa", {"choice2": ""}, "must have text as 'choice2', got none"),
        ("multirc", {"passage": "text"}, "must have an object as 'passage', got 'text'"),
        ("multirc", {"idx": "3"}, "must have an integer as 'idx', got '3'"),
        ("multirc", {"passage": PASSAGE | {"questions": []}}, "must have objects as 'questions', "),
        (
            "multirc",
            {"passage": PASSAGE | {"questions": [1]}},
            "must have objects as 'questions', ",
        ),
        ("flat", {"idx": 3}, "must have an object as 'idx', got 3"),
        ("wic", {"end1": True}, "must have an integer as 'end1', got True"),
        ("wic", {"start2": 11}, "must have whole words from 11 to 16, got 'oards'"),
        ("wsc", {"target": 1}, "must have an object as 'target', got 1"),
        ("wsc", {"target": TARGET | {"span1_index": 0}}, "must have 'The Cup' as word 0, got 'Wat"),
    ],
)
def test_lines_that_are_wrong(case: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as caught:
        read(case, **changes)
    assert "\n" not in str(caught.value)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@pytest.mark.parametrize("case", CASES)
@given(data=st.data())
def test_any_other_value_gives_rows_or_one_line(case: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(CASES[case][2])))
    try:
        rows = read(case, **{name: data.draw(JUNK)})
    except ValueError as error:
        assert str(error).startswith("must have ") and "\n" not in str(error)
    else:
        assert all(row["label"] in (0, 1, 2) for row in rows)


# --- rows ----------------------------------------------------------------------------------------

WRONG = WSC | {"target": TARGET | {"span2_text": "she"}}


def wsc_rows(right: int, wrong: int, *, spare: bool) -> int:
    lines = [("line 1", WRONG)] * wrong + [("line 2", WSC)] * right
    return len(make_rows("here", lines, read_wsc, BOOLEAN, spare))


def test_few_wrong_spans_to_train_on_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert wsc_rows(200, 2, spare=True) == 200
    (record,) = caplog.records
    assert record.getMessage() == (
        "left out 2 rows with a wrong span, the first is line 1: the row must have 'she' as word "
        "6, got 'it'"
    )


@pytest.mark.parametrize(("right", "wrong", "spare"), [(200, 1, False), (199, 2, True)])
def test_other_wrong_spans_are_refused(right: int, wrong: int, spare: bool) -> None:
    with pytest.raises(ValueError, match=r"^line 1: the row must have 'she' as word 6, got 'it'$"):
        wsc_rows(right, wrong, spare=spare)


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^here must hold examples, got none$"):
        wsc_rows(0, 0, spare=False)
    lines = [("line 4", WSC | {"text": ""})]
    with pytest.raises(ValueError, match=r"^line 4: the row must have text as 'text', got none$"):
        make_rows("here", lines, read_wsc, BOOLEAN, spare=True)
