"""A task whose rows belong together in groups, from its files to its answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jat_graph.tasks import get_task
from jat_graph.training import train
from jat_graph.training.data import load_splits
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.classification import Classification
from tests.training.conftest import MARK, WORDS
from tests.training.support import JUMP, Options


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
