"""What the texts of stepping stones say, read back from their words."""

import re
from collections import Counter
from functools import cache
from itertools import product
from math import isnan
from typing import Any, NamedTuple

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks import SteppingStonesLesson, SteppingStonesTask
from jat_graph.tasks.comparisons import ADJECTIVES, NOUNS
from jat_graph.tasks.tagging import find_spans

YES, NO, UNKNOWN = range(3)
SIZES = {"train_size": 144, "validation_size": 36, "test_size": 144}


class Parse(NamedTuple):
    """What a text says, found again from its words."""

    costs_more: networkx.DiGraph
    one: str
    other: str


def parse(row: dict[str, Any]) -> Parse:
    asked = re.search(r" does (\w+ \w+) cost more than (\w+ \w+)\?$", row["text"])
    assert asked is not None
    said = row["text"][: asked.start()]
    facts = re.findall(r"(\w+ \w+) costs more than (\w+ \w+)\.", said)
    assert " ".join(f"{more} costs more than {less}." for more, less in facts) == said
    return Parse(networkx.DiGraph(facts), asked[1], asked[2])


def follow(found: Parse, links: int) -> int:
    """Answer by following so many links from either thing, and no more."""
    for answer, (top, bottom) in enumerate(((found.one, found.other), (found.other, found.one))):
        reached = networkx.single_source_shortest_path_length(found.costs_more, top, links)
        if bottom in reached:
            return answer
    return UNKNOWN


@cache
def load(**settings: Any) -> dict[str, list[dict[str, Any]]]:
    task = SteppingStonesTask(**(SIZES | settings))
    return {split: rows.to_list() for split, rows in task.load(None).items()}


# --- labels and balance --------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000), most=st.integers(1, 4), more=st.integers(0, 1))
def test_labels_and_steps_are_those_of_the_graph(seed: int, most: int, more: int) -> None:
    steps = tuple(range(1, most + 1))
    for row in load(seed=seed, steps=steps, things=most + 3 + more)["test"]:
        graph, one, other = parse(row)
        assert row["label"] == follow(Parse(graph, one, other), 99)
        if row["label"] != UNKNOWN:
            both = graph.to_undirected()
            assert networkx.shortest_path_length(both, one, other) == row["steps"]
        chains = list(networkx.weakly_connected_components(graph))
        assert [len(chain) for chain in chains] == [most + 3 + more] * 2
        assert max(degree for _, degree in graph.in_degree) == 1
        assert max(degree for _, degree in graph.out_degree) == 1


@given(seed=st.integers(0, 10_000))
def test_every_combination_is_there_equally_often(seed: int) -> None:
    for split, rows in load(seed=seed).items():
        counts = Counter((row["steps"], row["label"]) for row in rows)
        assert set(counts) == set(product((1, 2, 3, 4), (YES, NO, UNKNOWN)))
        assert set(counts.values()) == {SIZES[f"{split}_size"] // 12}


def test_no_thing_asked_about_is_the_end_of_a_chain() -> None:
    for row in load()["test"]:
        graph, one, other = parse(row)
        assert [graph.in_degree(x) for x in (one, other)] == [1, 1]
        assert [graph.out_degree(x) for x in (one, other)] == [1, 1]


def test_unknown_things_stand_as_far_apart_as_known_ones() -> None:
    places: dict[int, Counter[tuple[int, int]]] = {label: Counter() for label in range(3)}
    for row in load(train_size=12_000)["train"]:
        graph, one, other = parse(row)
        above = sorted(len(networkx.ancestors(graph, x)) for x in (one, other))
        assert above[1] - above[0] == row["steps"]
        places[row["label"]][above[0], above[1]] += 1
    assert len(places[YES]) == 4 + 3 + 2 + 1  # all places that leave both ends alone
    for label, place in product((NO, UNKNOWN), places[YES]):
        assert places[label][place] == pytest.approx(places[YES][place], rel=0.25)


@pytest.mark.parametrize("links", range(5))
def test_a_reader_who_follows_too_few_links_finds_nothing(links: int) -> None:
    rows = load()["test"]
    for steps in (1, 2, 3, 4):
        hits = [follow(parse(r), links) == r["label"] for r in rows if r["steps"] == steps]
        assert np.mean(hits) == (1 if links >= steps else pytest.approx(1 / 3))


def test_to_know_what_stands_higher_is_worth_two_answers_of_three() -> None:
    for steps in (1, 2, 3, 4):
        counts: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
        for row in load()["test"]:
            if row["steps"] == steps:
                graph, one, other = parse(row)
                higher = len(networkx.ancestors(graph, one)) < len(networkx.ancestors(graph, other))
                counts[higher][row["label"]] += 1
        assert counts[True][YES] == 2 * counts[True][UNKNOWN] > counts[True][NO] == 0
        assert counts[False][NO] == 2 * counts[False][UNKNOWN] > counts[False][YES] == 0


# --- names ---------------------------------------------------------------------------------------


def test_names_of_one_split_are_in_no_other_but_all_their_words_are() -> None:
    names = {
        split: {name for row in rows for name in parse(row).costs_more}
        for split, rows in load(train_size=1200, validation_size=360).items()
    }
    assert {split: len(found) for split, found in names.items()} == {
        "train": 240,
        "validation": 80,
        "test": 80,
    }
    assert len(set().union(*names.values())) == 400
    for found in names.values():
        assert {word for name in found for word in name.split()} == {*ADJECTIVES, *NOUNS}


def test_nothing_in_a_text_shares_a_word_of_its_name() -> None:
    for row in load(things=8)["train"]:
        words = [word for name in parse(row).costs_more for word in name.split()]
        assert len(set(words)) == len(words) == 32


# --- lessons -------------------------------------------------------------------------------------


def lesson(**settings: Any) -> list[dict[str, Any]]:
    task = SteppingStonesLesson(name="lesson", **(SIZES | settings))
    return list(task.load(None, ["test"])["test"])


@given(seed=st.integers(0, 10_000), both=st.booleans())
def test_tags_say_what_each_thing_is_to_those_asked_about(seed: int, both: bool) -> None:
    rows = lesson(seed=seed, both=both)
    for row, plain in zip(rows, load(seed=seed)["test"], strict=True):
        assert " ".join(row["tokens"]) == plain["text"]
        graph, first, second = parse(plain)
        asked = {"first": first} | ({"second": second} if both else {})
        seen = []
        for name, start, stop in find_spans(row["tags"]):
            thing = " ".join(row["tokens"][start:stop]).rstrip(".")
            for role in name.split("+"):
                what, which = role.split("-")
                other = asked[which]
                seen.append((what, thing, which))
                if what == "is":
                    assert thing == other
                else:
                    assert graph.has_edge(*((other, thing) if what == "below" else (thing, other)))
        for which, thing in asked.items():  # one neighbour on either side, in a sentence each
            assert sorted(what for what, _, one in seen if one == which) == [
                "above",
                "below",
                "is",
                "is",
            ]
            assert seen.count(("is", thing, which)) == 2


def test_all_tags_of_a_lesson_are_those_of_its_task() -> None:
    for both, count in ((False, 3), (True, 10)):
        task = SteppingStonesLesson(name="lesson", both=both, **SIZES)
        assert len(task.types) == count
        found = {tag for row in lesson(both=both) for tag in row["tags"]}
        assert found <= set(task.labels)


# --- measure -------------------------------------------------------------------------------------


def test_accuracy_by_steps_by_hand() -> None:
    right = [[0, 1], [1, 1], [2, 2], [0, 2], [1, 3]]
    scores = SteppingStonesTask().measure([0, 2, 2, 0, 1], right)
    assert list(scores) == ["accuracy", *(f"accuracy_{step}" for step in (1, 2, 3, 4))]
    assert list(scores.values())[:-1] == [0.8, 0.5, 1.0, 1.0]
    assert isnan(scores["accuracy_4"])


def test_what_is_gathered_is_measured() -> None:
    task = SteppingStonesTask(**SIZES)
    rows = task.load(None, ["test"])["test"]
    said, right = task.gather(list(rows["label"]), rows)
    assert right == [[row["label"], row["steps"]] for row in rows]
    assert set(task.measure(said, right).values()) == {1.0}
    logits = np.eye(3)[said]
    assert task.compute_metrics(logits, np.asarray(said)) == {"accuracy": 1.0}
    assert task.compute_metrics(np.roll(logits, 1, axis=1), np.asarray(said)) == {"accuracy": 0.0}


# --- the task ------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000))
def test_the_seed_decides_and_splits_do_not_depend_on_others_sizes(seed: int) -> None:
    first = load(seed=seed)
    again = SteppingStonesTask(**(SIZES | {"train_size": 36}), seed=seed)
    assert again.load(None, ["test"])["test"].to_list() == first["test"]
    assert load(seed=seed + 1)["test"] != first["test"]


def test_the_text_of_seed_nought_stays_as_it_is() -> None:
    sizes = {"train_size": 120, "validation_size": 12, "test_size": 120}
    row = load(steps=(1,), things=4, **sizes)["test"][0]
    assert row == FIRST


FIRST = {
    "text": "green cup costs more than old shirt. pink door costs more than short clock. "
    "old shirt costs more than new bottle. short clock costs more than grey table. "
    "new bottle costs more than brown lamp. long knife costs more than pink door. "
    "does new bottle cost more than old shirt?",
    "steps": 1,
    "label": 1,
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": ()}, "steps must be different numbers from 1, got ()"),
        ({"steps": (0, 1)}, "steps must be different numbers from 1, got (0, 1)"),
        ({"steps": (2, 2)}, "steps must be different numbers from 1, got (2, 2)"),
        ({"things": 6}, "things must be from 7 to 8 for 4 steps, got 6"),
        ({"things": 9}, "things must be from 7 to 8 for 4 steps, got 9"),
        ({"train_size": 0}, "train_size must be a multiple of 12 above 0, got 0"),
        ({"test_size": 100}, "test_size must be a multiple of 12 above 0, got 100"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SteppingStonesTask(**settings)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SteppingStonesLesson(name="lesson", **settings)
