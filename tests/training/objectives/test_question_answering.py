"""Windows hold the answers, and the best piece is found again."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from jat_graph.tasks import get_task
from jat_graph.training import TrainingOptions, evaluate, train
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives import question_answering as module
from tests.training.conftest import WORDS
from tests.training.support import JUMP, Options

TASK = get_task("covidqa")


def rows_of(*cases: tuple[str, str, int]) -> Dataset:
    """Return questions from (question, context, place of the answer's first word)."""
    rows = []
    for number, (question, context, place) in enumerate(cases):
        words = context.split()
        start = len(" ".join([*words[:place], ""]))
        answer = " ".join(words[place : place + 2])
        answers = {"text": [answer], "answer_start": [start]}
        rows.append(
            {"id": str(number), "question": question, "context": context} | {"answers": answers}
        )
    return Dataset.from_list(rows)


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, str, int]:
    context = draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=40))
    return "the book", " ".join(context), draw(st.integers(0, len(context) - 2))


@given(cases=st.lists(questions(), min_size=1, max_size=4), room=st.integers(3, 20))
def test_right_pointers_give_the_right_answers(
    cases: list[tuple[str, str, int]], room: int, tiny_model: str
) -> None:
    options = TrainingOptions(tiny_model, "covidqa", "unused", max_length=room + 5, stride=2)
    objective = objective_for(TASK, options)
    split = objective.encode(rows_of(*cases), None)
    assert all(len(ids) <= room + 5 for ids in split.features["input_ids"])
    width = max(len(ids) for ids in split.features["input_ids"])
    pointers = []
    for name in ("start_positions", "end_positions"):
        places = np.array(split.features[name])
        scores = np.where(np.arange(width) == places[:, None], 1.0, 0.0)
        pointers.append(np.where(places[:, None] > 0, scores, -1.0))
    owners, places = np.array(split.notes["owners"]), np.array(split.features["start_positions"])
    assert all((places[owners == number] > 0).any() for number in range(len(cases)))
    found = objective.judge(tuple(pointers), None, split)[0]
    assert found == {"f1": 1.0, "exact_match": 1.0}


def test_padding_moves_no_pointer(tiny_model: str) -> None:
    options = TrainingOptions(tiny_model, "covidqa", "unused", max_length=24, stride=2)
    objective = objective_for(TASK, options)
    objective.tokenizer.padding_side = "left"
    cases = (("the book", "a pencil costs more", 2), ("the book", "a pencil", 0))
    rows = objective.encode(rows_of(*cases), None).features.to_list()
    batch = objective.collate(rows)
    assert batch["input_ids"].size(1) == len(rows[0]["input_ids"]) > len(rows[1]["input_ids"])
    for row, ids, start in zip(rows, batch["input_ids"], batch["start_positions"], strict=True):
        assert int(ids[start]) == row["input_ids"][row["start_positions"]]


@given(
    scores=arrays.arrays(np.float32, (2, 9), elements=st.floats(-5, 5, width=32)),
    context=arrays.arrays(bool, 7),
    longest=st.integers(1, 9),
)
def test_the_best_piece_is_that_of_all_pairs(scores: Any, context: Any, longest: int) -> None:
    starts, ends = scores
    pairs = [
        (float(starts[i]) + float(ends[j]), i, j)
        for i in range(7)
        for j in range(i, min(7, i + longest))
        if context[i] and context[j]
    ]
    found = module._best_piece(starts, ends, context, longest)
    if not pairs:
        assert found[0] == -np.inf
    else:
        assert found[0] == pytest.approx(max(pairs)[0], abs=1e-6)
        assert any(found[1:] == pair[1:] for pair in pairs)


def test_answers_have_a_longest_length() -> None:
    starts, ends = np.array([3.0, 0.0, 1.0]), np.array([0.0, 0.5, 3.0])
    assert module._best_piece(starts, ends, np.ones(3, bool), 2) == (4.0, 2, 2)
    assert module._best_piece(starts, ends, np.ones(3, bool), 3) == (6.0, 0, 2)


@pytest.mark.parametrize(("task", "longest"), [("covidqa", 128), ("squad", 30), ("squad2", 30)])
def test_each_task_has_its_longest_answer(options: Options, task: str, longest: int) -> None:
    objective = objective_for(get_task(task), options(task=task))
    assert objective.task.longest_answer == longest


def test_windows_need_room(options: Options) -> None:
    objective = objective_for(TASK, options(task="covidqa", max_length=10, stride=5))
    with pytest.raises(ValueError, match="at least 11 for questions of 2 tokens and stride=5, got"):
        objective.encode(rows_of(("the book", "a pencil costs more", 0)), None)


def test_blanks_around_a_question_take_no_room(options: Options) -> None:
    tokenizer = Tokenizer(models.BPE({letter: place for place, letter in enumerate("abĠ")}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    objective = objective_for(TASK, options(task="covidqa", max_length=12, stride=2))
    # as in GPT-2, where each blank is a token
    objective.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="a")
    plain, blank = (
        objective.encode(rows_of((question, "a b a b", 2)), None)
        for question in ("ab", f"{' ' * 50}ab\n")
    )
    assert blank.features.to_list() == plain.features.to_list()


# --- questions without an answer -----------------------------------------------------------------


def windows(options: Options, max_length: int, *cases: tuple[str, str, int]) -> tuple[Any, Any]:
    """Return SQuAD 2.0's objective and encoded questions, of which the last has no answer."""
    chosen = options(task="squad2", max_length=max_length, stride=1)
    objective = objective_for(get_task("squad2"), chosen)
    *rows, last = rows_of(*cases).to_list()
    last["answers"] = {"text": [], "answer_start": []}
    return objective, objective.encode(Dataset.from_list([*rows, last]), None)


COSTS, LESS = ("the", "a pencil costs more", 2), ("the", "a book is less", 0)


def test_a_question_without_answer_points_at_the_first_token(options: Options) -> None:
    _, split = windows(options, 9, COSTS, LESS)
    assert split.notes["owners"] == [0, 1]
    assert split.features["start_positions"] == [5, 0]
    assert split.features["end_positions"] == [6, 0]


def test_doubts_are_of_the_window_that_doubts_least(options: Options) -> None:
    # [CLS] the [SEP] and two words [SEP], of which windows share one
    cases = ("the", "a pencil costs", 1), ("the", "book", 0)
    objective, split = windows(options, 6, *cases)
    assert split.notes["owners"] == [0, 0, 1]
    starts, ends = np.zeros((2, 3, 6), np.float32)
    starts[:, 0], ends[:, 0] = [3.0, 1.0, 5.0], [0.5, 0.5, 0.5]  # nothing: 3.5, 1.5 and 5.5
    starts[0, 3], ends[0, 4] = 2.0, 0.25
    starts[1, 4], ends[1, 4] = 4.0, 1.0
    answers = objective.answers((starts, ends), None, split)
    assert answers.said == [["costs", 1.5 - 5.0], ["book", 5.5]]
    assert answers.right == [["pencil costs"], []]
    # The first text is not the right one; to the second question it says nothing, which is right.
    assert objective.judge((starts, ends), None, split)[0]["exact_match"] == 0.5


@pytest.mark.parametrize("place", [0, 3])
def test_scores_must_be_numbers(options: Options, place: int) -> None:
    objective, split = windows(options, 9, COSTS, LESS)
    starts, ends = np.zeros((2, 2, 9), np.float32)
    ends[1, place] = np.nan
    with pytest.raises(ValueError, match=r"^the model's scores of tokens must be finite, got nan$"):
        objective.judge((starts, ends), None, split)[0]


def test_a_model_learns_when_to_say_nothing(options: Options, tmp_path: Path) -> None:
    draw = random.Random(0)
    for split, count in (("train", 80), ("dev", 24)):
        entries = []
        for number in range(count):
            words = draw.choices(["book", "pencil", "computer", "more", "less"], k=10)
            if number % 2:
                words[draw.randrange(10)] = "costs"
            text = " ".join(words)
            answers = [{"text": "costs", "answer_start": text.index("costs")}] if number % 2 else []
            entry = {"id": number, "question": "the pencil", "answers": answers}
            entry["is_impossible"] = not answers
            entries.append({"context": text, "qas": [entry]})
        content = {"version": "v2.0", "data": [{"title": "x", "paragraphs": entries}]}
        (tmp_path / f"{split}-v2.0.json").write_text(json.dumps(content))
    chosen = options(
        task="squad2",
        data_dir=str(tmp_path),
        epochs=8,
        learning_rate=1e-2,
        warmup=0.0,
        stride=4,
    )
    scores = train(chosen, JUMP, progress=False).metrics["validation"]
    assert scores["f1"] is not None and scores["best_f1"] is not None
    assert scores["best_f1"] >= scores["f1"] > 0.9
    answers = json.loads(Path(chosen.output_dir, "answers.json").read_text())["validation"]
    assert get_task("squad2").measure(answers["said"], answers["right"]) == scores


# --- runs ----------------------------------------------------------------------------------------


@pytest.fixture
def covid_dir(tmp_path: Path) -> str:
    """Folder with articles whose answers follow the word "costs"."""
    data = []
    for number in range(14):
        words = [
            WORDS[(number * 7 + place * 3) % 8 if place != 20 + number else 3]
            for place in range(50)
        ]
        words = [
            word if word != "costs" or place == 20 + number else "a"
            for place, word in enumerate(words)
        ]
        text = " ".join(words)
        start = text.index("costs")
        answer = {"text": text[start:].split()[0], "answer_start": start}
        entry = {"id": number, "question": "the pencil", "answers": [answer]}
        data.append({"paragraphs": [{"context": text, "qas": [entry]}]})
    (tmp_path / "COVID-QA.json").write_text(json.dumps({"data": data}))
    return str(tmp_path)


def test_a_model_learns_where_answers_are(options: Options, covid_dir: str) -> None:
    chosen = options(
        task="covidqa",
        data_dir=covid_dir,
        max_length=24,
        stride=4,
        epochs=8,
        learning_rate=1e-2,
        warmup=0.0,
    )
    result = train(chosen, JUMP, progress=False)
    assert list(result.metrics) == ["validation", "test"]
    assert result.primary is not None and result.primary > 0.9
    model = str(Path(chosen.output_dir, "model"))
    found = evaluate(
        model, "covidqa", covid_dir, max_length=24, stride=4, device="cpu", progress=False
    )
    assert found == result.metrics


def test_real_articles(options: Options, data_dir: Path) -> None:
    chosen = options(
        task="covidqa",
        data_dir=str(data_dir),
        max_length=512,
        max_train_samples=1,
        max_eval_samples=1,
        epochs=1,
        batch_size=4,
        select_best=False,
    )
    metrics = train(chosen, progress=False).metrics
    assert all(0 <= value <= 1 for scores in metrics.values() for value in scores.values())
