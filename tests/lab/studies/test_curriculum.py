"""What a grid of stepping stones may say, and what is refused."""

import re
from typing import Any

import pytest

from jat_graph.lab.studies.curriculum import (
    Lesson,
    attempts_of,
    has_passed,
    layers_of,
    lessons_of,
)
from jat_graph.lab.studies.grid import Grid, load_grid
from jat_graph.tasks import get_task
from tests.lab.studies.support import made_up, small_grid

SIX = {"heads": 6}


def grid(**changes: Any) -> Grid:
    """Return a grid of this kind, with any key replaced."""
    arms = [{"name": "base"}, {"name": "JAT", "heads": "paper"}]
    content = {"kind": "stepping-stones", "tasks": ["1 layer", "pretrained"], "arms": arms}
    return small_grid(**(content | changes))


@pytest.mark.parametrize(
    ("setting", "layers"),
    [("1 layer", 1), ("4 layers", 4), ("12 layers", 12), ("pretrained", None)],
)
def test_a_setting_says_how_many_layers_an_encoder_has(setting: str, layers: int | None) -> None:
    assert layers_of(setting) == layers


def test_words_are_tagged_by_fewer_layers() -> None:
    words, questions = Lesson("steppingstonesboth", {}), Lesson("steppingstonesone", {})
    for drawn, depths in ((True, [1, 1, 2, 2]), (False, [1, 1, 2, 3])):
        assert [words.depth(layers, drawn=drawn) for layers in (1, 2, 3, 4)] == depths
        assert [questions.depth(layers, drawn=drawn) for layers in (1, 2, 3)] == [1, 2, 3]


def test_lessons_are_read_in_their_order() -> None:
    lessons = [{"task": "stepping-stones-both", "epochs": 2}, {"task": "stepping-stones-one"}]
    found = lessons_of(grid(**{"stepping-stones": {"lessons": lessons}}))
    assert list(found.items()) == [
        ("1-steppingstonesboth", Lesson("steppingstonesboth", {"epochs": 2})),
        ("2-steppingstonesone", Lesson("steppingstonesone", {})),
    ]
    assert lessons_of(grid()) == {}


def test_a_lesson_is_failed_below_its_pass_mark() -> None:
    for name, metric in (("steppingstonesboth", "f1"), ("steppingstonesone", "accuracy")):
        marked = Lesson(name, {}, pass_mark=0.8)
        assert marked.score({"validation": {metric: 0.3}, "test": {metric: 1.0}}) == 0.3
        for score, failed in ((0.79, True), (0.8, False), (None, True)):
            assert marked.is_failed(score) is failed
            assert not Lesson(name, {}).is_failed(score)


def test_an_encoder_from_scratch_may_have_several_attempts() -> None:
    assert attempts_of(grid(), "1 layer") == 1
    asked = grid(**{"stepping-stones": {"attempts": 3}})
    assert [attempts_of(asked, setting) for setting in ("1 layer", "pretrained")] == [3, 1]


def test_an_encoder_has_to_reach_each_pass_mark() -> None:
    first, second = ({"task": "stepping-stones-one", "pass_mark": mark} for mark in (0.6, 0.9))
    free = {"task": "stepping-stones-both"}
    asked = grid(**{"stepping-stones": {"lessons": [first, free, second]}})
    names = [f"{n}-steppingstones{task}" for n, task in ((1, "one"), (2, "both"), (3, "one"))]
    for scores, passes in (
        ((0.6, 0.0, 0.9), True),
        ((0.6, None, 0.9), True),
        ((0.5, 1.0, 0.9), False),
        ((0.6, 1.0, 0.8), False),
        ((0.6, 1.0, None), False),
    ):
        lessons = dict(zip(names, scores, strict=True))
        record = made_up(task="1 layer", scores={"test": {"accuracy": 0.5}, "lessons": lessons})
        assert has_passed(asked, record) is passes
        assert has_passed(grid(), record)
    assert not has_passed(asked, made_up(task="1 layer", scores={"test": {"accuracy": 0.5}}))


def test_the_grid_that_comes_with_the_library_has_lessons_of_its_own_texts() -> None:
    found = load_grid("stepping-stones")
    assert [layers_of(setting) for setting in found.tasks] == [1, 2, 3, 4, None]
    kinds = [get_task(lesson.task) for lesson in lessons_of(found).values()]
    assert all(kind.name.startswith("steppingstones") for kind in kinds)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tasks": ["0 layers"]},
            "must be 'pretrained', '1 layer', '2 layers' …, got '0 layers'",
        ),
        ({"tasks": ["cola"]}, "tasks must be 'pretrained', '1 layer', '2 layers' …, got 'cola'"),
        (
            {"stepping-stones": {"attempt": 1}},
            "unknown 'attempt', wanted one of attempts, lessons",
        ),
        (
            {"stepping-stones": {"attempts": 0}},
            "attempts must be at least 1, got 0",
        ),
        (
            {"stepping-stones": {"lessons": [{"task": "cola", "pass_mark": 80}]}},
            "pass_mark must be a share above 0, got 80.0",
        ),
        (
            {"stepping-stones": {"lessons": [{"task": "cola", "pass_mark": 0}]}},
            "pass_mark must be a share above 0, got 0.0",
        ),
        (
            {"stepping-stones": {"lessons": [{"task": "cola", "pass_mark": "all"}]}},
            "pass_mark must be a valid number, got 'all'",
        ),
        (
            {"stepping-stones": {"lessons": "one"}},
            "[stepping-stones]: lessons must be a valid array, got 'one'",
        ),
        ({"stepping-stones": {"lessons": [{"task": "x"}]}}, "task must be one of"),
        ({"stepping-stones": {"lessons": [{}]}}, "task must be given, got nothing"),
        (
            {"stepping-stones": {"lessons": [{"task": "cola", "epochs": 0}]}},
            "epochs must be a positive integer, got 0",
        ),
        (
            {"stepping-stones": {"lessons": [{"task": "cola", "epoch": 1}]}},
            "unknown 'epoch', wanted one of",
        ),
        (
            {"stepping-stones": {"lessons": [{"task": "cola", "depth": 1}]}},
            "must have no depth, which the size of an encoder and its lessons decide, got 1",
        ),
        ({"training": {"from_scratch": True}}, "[training] must have no from_scratch, which"),
        ({"training": {"1 layer": {"depth": 1}}}, "[training] must have no depth, which"),
        (
            {"arms": [{"name": "base", "options": {"epochs": 2}}]},
            "arm 'base' must have no options: all arms go on from the same lessons",
        ),
        (
            {"arms": [{"name": "base"}, {"name": "JAT", "heads": "paper", "settings": SIX}]},
            "arm 'JAT', encoder of 1 layers: heads=6 needs head 5, but the model has 4 heads",
        ),
        (
            {"arms": [{"name": "base"}, {"name": "JAT", "heads": "paper", "density": 0.1}]},
            "arm 'JAT' must have no density: nothing is measured before its run",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        grid(**changes)
    assert str(caught.value).startswith("grid 'small'")
