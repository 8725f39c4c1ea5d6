"""Spans of tags, by hand and by the rules of conlleval; and tags that words have on their own."""

from typing import Any

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks import WordTaggingTask, get_task
from jat_graph.tasks.tagging import find_spans, score_spans, write_tags

TASK = get_task("conll2003")


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", []),
        ("B-PER I-PER O B-LOC", [["PER", 0, 2], ["LOC", 3, 4]]),
        ("B-PER B-PER I-PER", [["PER", 0, 1], ["PER", 1, 3]]),
        ("I-PER I-PER O I-LOC", [["PER", 0, 2], ["LOC", 3, 4]]),  # IOB1
        ("I-PER B-PER O", [["PER", 0, 1], ["PER", 1, 2]]),  # IOB1: one after one of its type
        ("I-PER I-LOC", [["PER", 0, 1], ["LOC", 1, 2]]),
        ("B-LOC I-ORG I-ORG", [["LOC", 0, 1], ["ORG", 1, 3]]),  # of no scheme, but it means this
        ("O I-MISC O I-MISC", [["MISC", 1, 2], ["MISC", 3, 4]]),
    ],
)
def test_hand_read_tags(tags: str, spans: list[Any]) -> None:
    assert find_spans(tags.split()) == spans


@given(st.lists(st.sampled_from(TASK.labels), max_size=12))
def test_what_is_written_is_read_again(tags: list[str]) -> None:
    spans = find_spans(tags)
    written = write_tags(spans, len(tags))
    assert find_spans(written) == spans
    assert [tag[2:] for tag in written] == [tag[2:] for tag in tags]
    assert all(
        tag[0] != "I" or before[2:] == tag[2:]
        for before, tag in zip(["O", *written], written, strict=False)
    )


def test_hand_counted_spans() -> None:
    right = ["B-PER I-PER O B-LOC", "B-ORG O O", "O O"]
    said = ["B-PER I-PER O B-ORG", "O O B-ORG", "B-LOC O"]
    # one of four found ones is right, and one of three right ones is found
    scores = TASK.measure(*([find_spans(s.split()) for s in side] for side in (said, right)))
    assert list(scores) == ["f1", "precision", "recall"]
    assert scores == pytest.approx({"f1": 2 / 7, "precision": 1 / 4, "recall": 1 / 3})


def test_half_of_a_span_counts_nothing() -> None:
    scores = TASK.measure([find_spans(["B-PER", "O"])], [find_spans(["B-PER", "I-PER"])])
    assert scores == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


@pytest.mark.parametrize(
    ("said", "right"),
    [([[]], [[]]), ([], []), ([[]], [[["PER", 0, 1]]]), ([[["PER", 0, 1]]], [[]])],
)
def test_a_share_of_nothing_is_none(said: Any, right: Any) -> None:
    assert set(score_spans(said, right).values()) == {0.0}


def test_the_same_span_of_two_sentences_counts_twice() -> None:
    span = ["PER", 0, 1]
    scores = score_spans([[span], [span], []], [[span], [], [span]])
    assert scores == pytest.approx({"f1": 0.5, "precision": 0.5, "recall": 0.5})


sentences = st.lists(st.sampled_from(TASK.labels), min_size=1, max_size=6)


@given(st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6))
def test_counts_are_those_of_all_pairs(pairs: list[tuple[list[str], list[str]]]) -> None:
    said = [find_spans(one) for one, _ in pairs]
    right = [find_spans(other) for _, other in pairs]
    hits = sum(span in wanted for found, wanted in zip(said, right, strict=True) for span in found)
    found, wanted = sum(map(len, said)), sum(map(len, right))
    scores = TASK.measure(said, right)
    assert scores["precision"] == pytest.approx(hits / found if found else 0.0)
    assert scores["recall"] == pytest.approx(hits / wanted if wanted else 0.0)
    assert scores["f1"] == pytest.approx(2 * hits / (found + wanted) if found + wanted else 0.0)


def test_what_was_said_is_put_beside_what_is_right() -> None:
    rows = Dataset.from_dict({"tokens": [["Ann", "ran"]], "tags": [["B-PER", "O"]]})
    assert TASK.gather([["O", "B-LOC"]], rows) == ([[["LOC", 1, 2]]], [[["PER", 0, 1]]])


def test_labels_have_an_order() -> None:
    assert TASK.labels[:3] == ("O", "B-LOC", "I-LOC") and len(TASK.labels) == 9
    assert TASK.greater_is_better


# --- tags of single words ------------------------------------------------------------------------

OWN = WordTaggingTask(name="own", splits=("train", "validation"), tags=("DET", "NOUN", "VERB"))


@given(
    st.lists(
        st.lists(st.tuples(*[st.sampled_from(("", *OWN.labels))] * 2), min_size=1, max_size=6),
        min_size=1,
    )
)
def test_accuracy_is_the_share_of_all_words(sentences: list[list[tuple[str, str]]]) -> None:
    said = [[one for one, _ in pairs] for pairs in sentences]
    tags = [[other or "DET" for _, other in pairs] for pairs in sentences]
    found, right = OWN.gather(said, Dataset.from_dict({"tokens": tags, "tags": tags}))
    hits = [
        one == other
        for a, b in zip(said, tags, strict=True)
        for one, other in zip(a, b, strict=True)
    ]
    assert OWN.measure(found, right) == {"accuracy": pytest.approx(sum(hits) / len(hits))}


def test_a_word_that_was_cut_off_is_never_right() -> None:
    rows = Dataset.from_dict({"tokens": [["a", "dog"]], "tags": [["DET", "NOUN"]]})
    assert OWN.gather([["DET", OWN.unread]], rows) == ([[0, -1]], [[0, 1]])
    assert OWN.labels == ("DET", "NOUN", "VERB")


def test_sentences_of_other_lengths_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="must have groups of the same lengths"):
        OWN.measure([[0, 1]], [[0]])
