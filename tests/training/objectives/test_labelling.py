"""Rows that belong together in groups keep together; choices are read with their prompt."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.hf import attach, detach
from jat_graph.tasks import get_task
from jat_graph.training import TrainingOptions, evaluate, train
from jat_graph.training.data import load_splits
from jat_graph.training.loading import load_for_training, load_trained
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.labelling import Classification, MultipleChoice
from tests.training.conftest import MARK, WORDS
from tests.training.support import JUMP, Options

TASK: Any = get_task("copa")
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
ROW = st.fixed_dictionaries(
    {"prompt": TEXT, "choices": st.lists(TEXT, min_size=2, max_size=2), "label": st.integers(0, 1)}
)


def objective(model: str, **changes: Any) -> MultipleChoice:
    found = objective_for(TASK, TrainingOptions(model, "copa", "unused", **changes))
    assert isinstance(found, MultipleChoice)
    return found


@given(rows=st.lists(ROW, min_size=1, max_size=4))
def test_each_choice_is_a_pair_with_its_prompt(rows: list[dict[str, Any]], tiny_model: str) -> None:
    found = objective(tiny_model)
    split = found.encode(Dataset.from_list(rows), None)
    batch = found.collate(list(split.features))
    assert batch["input_ids"].shape[:2] == (len(rows), 2)
    assert batch["labels"].tolist() == [row["label"] for row in rows]
    for number, row in enumerate(rows):
        for place, choice in enumerate(row["choices"]):
            alone = found.tokenizer(row["prompt"], choice)
            length = len(alone["input_ids"])
            for name, values in alone.items():
                assert batch[name][number, place, :length].tolist() == values
            assert not batch["attention_mask"][number, place, length:].any()
    scores = np.eye(2)[[row["label"] for row in rows]]
    labels = np.array(split.features["labels"])
    assert found.judge(scores, labels, split)[0] == {"accuracy": 1.0}
    answers = found.answers(1 - scores, labels, split)
    assert answers.right == [row["label"] for row in rows]
    assert answers.said == [1 - label for label in answers.right]


def test_the_limit_cuts_pairs(tiny_model: str) -> None:
    row = {"prompt": "the book costs more", "choices": ["a", "a pencil is less"], "label": 0}
    split = objective(tiny_model, max_length=8).encode(Dataset.from_list([row]), None)
    assert [len(ids) for ids in split.features[0]["input_ids"]] == [8, 8]
    assert split.cut is not None and (split.cut.documents, split.cut.tokens) == (1, 3)
    with pytest.raises(ValueError, match="max_length must be at least 5 for task copa and 3 spe"):
        objective(tiny_model, max_length=4).encode(Dataset.from_list([row]), None)


def test_another_number_of_choices_is_refused(tiny_model: str) -> None:
    rows = Dataset.from_list([{"prompt": "a", "choices": ["a", "book", "is"], "label": 0}])
    with pytest.raises(ValueError, match=r"^rows of task copa must have 2 choices, got others$"):
        objective(tiny_model).encode(rows, None)


def test_jump_heads_change_scores_and_padding_does_not(tiny_model: str) -> None:
    found = objective(tiny_model)
    rows = [
        {"prompt": "the book costs more", "choices": ["a pencil is less", "a book"], "label": 0},
        {"prompt": "a " * 20, "choices": ["a " * 20, "the"], "label": 1},
    ]
    features = list(found.encode(Dataset.from_list(rows), None).features)
    model = load_for_training(found).eval()
    with torch.no_grad():
        base = model(**found.collate(features)).logits
        attach(model, JUMP)
        together = model(**found.collate(features)).logits
        alone = torch.cat([model(**found.collate([row])).logits for row in features])
        detach(model)
        assert torch.equal(model(**found.collate(features)).logits, base)
    assert base.shape == (2, 2)
    torch.testing.assert_close(together, alone)
    assert not torch.allclose(base, together, atol=1e-3)


@pytest.fixture
def copa_dir(tmp_path: Path) -> str:
    """Folder with choices of which the right one has a certain word."""
    draw = random.Random(0)
    for stem, count in (("train", 48), ("val", 24)):
        lines = []
        for number in range(count):
            texts = [" ".join(draw.choices(WORDS[:-1], k=draw.randint(1, 4))) for _ in range(3)]
            label = number % 2
            texts[label] = f"{texts[label]} {MARK}"
            row = {"choice1": texts[0], "choice2": texts[1], "premise": texts[2]}
            lines.append(json.dumps({**row, "question": "cause", "label": label}))
        (tmp_path / f"{stem}.jsonl").write_text("\n".join(lines))
    return str(tmp_path)


def test_a_model_learns_to_choose(options: Options, copa_dir: str) -> None:
    chosen = options(task="copa", data_dir=copa_dir, max_length=24, epochs=6, learning_rate=1e-2)
    result = train(chosen, JUMP, progress=False)
    assert result.primary is not None and result.primary > 0.9
    model = str(Path(chosen.output_dir, "model"))
    found = evaluate(model, "copa", copa_dir, max_length=24, device="cpu", progress=False)
    assert found == result.metrics
    written = json.loads(Path(chosen.output_dir, "answers.json").read_text())["validation"]
    assert TASK.measure(written["said"], written["right"]) == result.metrics["validation"]
    with pytest.raises(ValueError, match=r"must be a trained classifier .* got BertForMultipleCh"):
        load_trained(objective_for(get_task("cola"), options(model=model)))


def test_real_choices(options: Options, data_dir: Path) -> None:
    chosen = options(
        task="copa",
        data_dir=str(data_dir / "superglue"),
        max_length=32,
        max_train_samples=16,
        max_eval_samples=16,
        epochs=1,
        group_by_length=True,
    )
    metrics = train(chosen, progress=False).metrics
    assert 0 <= (metrics["validation"]["accuracy"] or 0) <= 1


@pytest.fixture
def multirc_dir(tmp_path: Path) -> str:
    """Folder with questions whose answers are right unless they have a certain word."""
    for stem, count in (("train", 12), ("val", 6)):
        lines = []
        for number in range(count):
            questions = []
            for question in range(2):
                answers = [
                    {
                        "text": WORDS[place] if place % 2 else f"{MARK} {WORDS[place]}",
                        "label": place % 2,
                    }
                    for place in range(2 + (number + question) % 3)
                ]
                questions.append({"question": "the book", "idx": question, "answers": answers})
            passage = {"text": f"a {WORDS[number % 8]} costs more", "questions": questions}
            lines.append(json.dumps({"idx": number, "passage": passage}))
        (tmp_path / f"{stem}.jsonl").write_text("\n".join(lines))
    return str(tmp_path)


def test_right_scores_give_right_answers(options: Options, multirc_dir: str) -> None:
    objective = objective_for(get_task("multirc"), options(task="multirc", data_dir=multirc_dir))
    assert isinstance(objective, Classification)
    split = load_splits(objective, ("validation",))["validation"]
    labels = np.array(split.features["labels"])
    assert objective.judge(np.eye(2)[labels], labels, split)[0] == {"f1": 1.0, "exact_match": 1.0}
    answers = objective.answers(np.eye(2)[1 - labels], labels, split)
    assert answers.right[:3] == [[0, 1], [0, 1, 0], [0, 1, 0]]
    assert answers.said[:3] == [[1, 0], [1, 0, 1], [1, 0, 1]]


def test_subsets_have_whole_questions(options: Options, multirc_dir: str) -> None:
    chosen = options(task="multirc", data_dir=multirc_dir, max_eval_samples=7, max_train_samples=9)
    splits = load_splits(objective_for(get_task("multirc"), chosen), ("train", "validation"))
    task = get_task("multirc")
    whole = {row["question"]: row for row in task.load(Path(multirc_dir))["train"].to_list()}
    assert 9 <= len(splits["train"].features) < len(whole) * 4
    for split in splits.values():
        names = split.rows["question"][:]
        for name in names:
            number, question = map(int, name.split("-"))
            assert names.count(name) == 2 + (number + question) % 3


def test_a_model_learns_and_its_answers_are_written(options: Options, multirc_dir: str) -> None:
    chosen = options(
        task="multirc", data_dir=multirc_dir, max_length=24, epochs=8, learning_rate=1e-2
    )
    result = train(chosen, JUMP, progress=False)
    assert result.primary is not None and result.primary > 0.9
    written = json.loads(Path(chosen.output_dir, "answers.json").read_text())["validation"]
    assert len(written["said"]) == len(written["right"]) == 12
    task: Any = get_task("multirc")
    measured = task.measure(written["said"], written["right"])
    assert measured == result.metrics["validation"]
