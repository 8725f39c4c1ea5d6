"""What all run scripts do: they train on named tasks, and say what does not fit."""

import json
from pathlib import Path

import pytest

from examples.tasks import get_task
from tests.examples.conftest import Rows, Write, sentences, train
from tests.examples.test_run_question_answering import rows as questions

WORDS = {
    "classification": "",
    "tagging": "--max_length 64",
    "question_answering": "--max_length 128 --doc_stride 16",
    "language_modelling": "--from_scratch",
}
NAMED = [
    ("classification", "rte", "eval_accuracy"),
    ("classification", "stsb", "eval_pearson eval_spearman"),
    ("classification", "cola", "eval_matthews"),
    ("classification", "copa", "eval_accuracy"),
    ("classification", "multirc", "eval_f1 eval_exact_match"),
    ("classification", "wic", "eval_accuracy"),
    ("classification", "agreement", "eval_accuracy eval_accuracy_1 eval_accuracy_3"),
    ("classification", "listops", "eval_accuracy test_accuracy"),
    ("tagging", "wnut17", "eval_f1 eval_precision"),
    ("tagging", "ewtpos", "eval_accuracy"),
    ("question_answering", "squad", "eval_f1 eval_exact_match"),
    ("question_answering", "covidqafarhalf", "eval_f1 eval_exact_match"),
    ("language_modelling", "tinyshakespeare", "eval_perplexity eval_bits_per_character"),
    ("language_modelling", "choralesquarter", "eval_perplexity eval_bits_per_token"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "metrics"), NAMED)
def test_named_tasks_are_trained_and_measured(
    kind: str,
    name: str,
    metrics: str,
    tiny_model: str,
    tiny_decoder: str,
    data_dir: Path,
    tmp_path: Path,
) -> None:
    few = ("--max_train_samples", "16", "--max_eval_samples", "16", *WORDS[kind].split())
    words = ("--task_name", name, "--data_dir", str(data_dir), *few)
    words += ("--do_predict",) if "test" in metrics else ()
    model = tiny_decoder if kind == "language_modelling" else tiny_model
    scores = train(kind, model, tmp_path, *words, steps=1)
    assert scores.keys() >= {*metrics.split()}
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert ("validation" in answers) == (kind != "language_modelling")
    measured = get_task(name).measure(**answers["validation"]) if answers else {}
    for metric, value in measured.items():
        assert scores[f"eval_{metric}"] == pytest.approx(value, nan_ok=True)


TEXTS = [{"text": text} for text in sentences(4)]
TAGGED = [{"tokens": ["the", "book"], "tags": ["O"]}]
WRONG = [
    ("question_answering", questions(4), "--max_length 8", "max_length must be at least"),
    ("question_answering", questions(4), "--answer_column label", "must have a column 'label'"),
    ("question_answering", questions(4), "--answer_column question", "must have answers with text"),
    ("tagging", TAGGED, "", "must have a tag a word, got 2 and 1"),
    ("tagging", TAGGED, "--label_column pos", "must have a column 'pos'"),
    ("tagging", None, "--task_name rte", "task of run_tagging, got rte"),
    ("language_modelling", TEXTS, "", "must be a decoder"),
    ("language_modelling", TEXTS, "--text_column words", "must have a column 'words'"),
]


@pytest.mark.parametrize(("kind", "rows", "words", "message"), WRONG)
def test_bad_input_is_named(
    kind: str,
    rows: Rows | None,
    words: str,
    message: str,
    write: Write,
    tiny_model: str,
    tmp_path: Path,
) -> None:
    file = "" if rows is None else write("own.jsonl", rows)
    files = ("--train_file", file, "--validation_file", file) if file else ()
    with pytest.raises(ValueError, match=message):
        train(kind, tiny_model, tmp_path / "run", *files, *words.split())
