"""RULER's tasks, written anew, and the command that asks them."""

import json
from pathlib import Path
from typing import Any

import pytest

from examples import real_answers, real_decoders
from examples.tasks.ruler import NOISE, RULER, Prompt, fit, hide
from tests.examples.conftest import Call


def draw_prompt(task: str, length: int, depth: float, data_dir: Path, seed: str = "a") -> Prompt:
    return fit(RULER[task], length, lambda prompt: len(prompt.text.split()), seed, depth, data_dir)


@pytest.mark.parametrize("task", RULER)
def test_a_prompt_fills_its_length_and_holds_what_is_asked_for(task: str, data_dir: Path) -> None:
    short, long = (draw_prompt(task, words, 0.4, data_dir) for words in (500, 900))
    assert len(short.text.split()) <= 500 < len(long.text.split()) <= 900
    assert long == draw_prompt(task, 900, 0.4, data_dir)
    assert long.text != draw_prompt(task, 900, 0.4, data_dir, seed="b").text
    assert all(answer in long.text for answer in long.answers[: len(long.answers) * long.every])
    assert long.score(" ".join(long.answers).upper()) == 1.0 and long.score("nothing") == 0.0
    if long.every and len(long.answers) > 1:
        assert long.score(f"It is {long.answers[0]}.") == 1 / len(long.answers)


@pytest.mark.parametrize("task", ["needle, noise", "needle, name", "keys, all", "keys, 4"])
def test_a_needle_is_as_deep_as_was_asked(task: str, data_dir: Path) -> None:
    for depth in (0.1, 0.5, 0.9):
        prompt = draw_prompt(task, 1000, depth, data_dir)
        (answer,) = prompt.answers
        assert prompt.text.count(answer) == 1
        assert abs(prompt.text.index(answer) / len(prompt.text) - depth) < 0.1


def test_words_that_are_asked_for_are_the_most_frequent(data_dir: Path) -> None:
    for task in ("common words", "frequent words"):
        prompt = draw_prompt(task, 900, 0.5, data_dir)
        words = prompt.text.partition("\n\n")[0].split()
        least = min(map(words.count, prompt.answers))
        assert least >= max(words.count(x) for x in {*words} - {*prompt.answers} if x.isalpha())


def test_variables_are_handed_on_in_the_order_of_the_text(data_dir: Path) -> None:
    prompt = draw_prompt("variables", 600, 0.5, data_dir)
    places = [prompt.text.index(f"VAR {name} =") for name in prompt.answers]
    assert places == sorted(places) and NOISE in prompt.text


def test_sentences_are_put_at_depths() -> None:
    assert hide(["x", "y"], ["a", "b"], [0.5, 1.0]) == "a x b y"
    with pytest.raises(ValueError, match="length must have room for the task, got 3"):
        fit(lambda _: Prompt("a b c d", "", ()), 3, lambda prompt: 4, "", 0.0, None)


@pytest.mark.slow
def test_a_model_is_asked_and_the_file_goes_on(
    smollm2: Any,
    data_dir: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(real_decoders, "load", lambda name: smollm2)
    file = tmp_path / "a.jsonl"
    words = [real_answers, "--output", file, "--data_dir", data_dir, "--lengths", "600"]
    words += ["--tasks", "needle, noise", "--prompts", "1", "--attention"]
    call(*words, "less:best:9999")
    lines = file.read_text("utf-8").splitlines()
    dense, same = map(json.loads, lines)
    assert dense["score"] == same["score"] == 1.0 and dense["said"] == same["said"]
    assert "| needle, noise | 600 | 100% | 100% |" in capsys.readouterr().out
    call(*words, "less:best:9999", "less:window:80")
    after = file.read_text("utf-8").splitlines()
    assert after[:2] == lines and json.loads(after[2])["score"] == 0.0


def test_shares_are_of_the_tasks_that_count() -> None:
    about = {"length": 1024, "depth": 0.5, "attention": real_decoders.DENSE}
    scores = {"variables": [0.2, 0.2, 0.0], "keys, 4": [1.0, 1.0, 0.5], "values, 4": [0.5] * 3}
    rows = [
        about | {"task": task, "number": number, "score": score}
        for task, own in scores.items()
        for number, score in enumerate(own)
    ]
    worse = {"attention": "less:window:80", "score": 0.5}
    rows += [row | worse for row in rows if row["task"] == "keys, 4"]
    *_, keys, values, shares, every = real_answers.table(rows)
    assert keys == "| keys, 4 | 1024 | 83% | 50% |" and values == "| values, 4 | 1024 | 50% |  |"
    half = 4.303 * (1 / 12) ** 0.5 / 3**0.5 / (2.5 / 3)  # Student's, of .5, .5 and 0 less
    assert shares == f"| of dense reading | 1024 | 100% ± 0% | 60% ± {half:.0%} |"
    assert every == shares.replace("1024", "all")


def test_a_task_that_cannot_count_is_asked_no_more() -> None:
    about = {"task": "variables", "length": 1024, "number": 4, "depth": 0.9}
    missed = {"task": "variables", "length": 1024, "attention": real_decoders.DENSE, "score": 0.0}
    others = [missed | {"length": 2048}, missed | {"attention": real_decoders.TREE}]
    assert real_answers.may_count([missed, missed, *others], about, 5)
    assert not real_answers.may_count([missed] * 3, about, 5)
    assert real_answers.may_count([missed] * 3 + [missed | {"score": 0.5}] * 3, about, 9)
    assert not real_answers.may_count([missed] * 5 + [missed | {"score": 0.5}] * 3, about, 9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tasks noses", "tasks must be among needle, noise; needle, prose; "),
        ("--model nope", "model must be smollm2, gemma3 or a folder with a config.json, got"),
        ("--output none/a.jsonl", "none/a.jsonl must be a file in an existing folder"),
    ],
)
def test_bad_input_is_one_line(words: str, message: str, call: Call, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        call(real_answers, "--output", tmp_path / "a.jsonl", *words.split())
    assert str(caught.value).startswith(f"real_answers: error: {message}")
