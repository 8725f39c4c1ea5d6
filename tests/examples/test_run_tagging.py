"""run_tagging: a tag for each word."""

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from examples.run_tagging import encode_words, main
from examples.tasks import get_task
from examples.tasks.base import tag_rows
from tests.examples.conftest import Rows, Write, sentences

SHORT = ("--max_length", "24", "--use_cpu", "--disable_tqdm", "true", "--learning_rate", "3e-3")


def rows(count: int, spans: bool) -> Rows:
    """Draw sentences: books are things, and pencils right after them are their ends."""
    found = []
    for text in sentences(count):
        words = text.split()
        tags = []
        for before, word in zip(["", *words], words, strict=False):
            inside = word == "pencil" and before == "book"
            tags.append("I-THING" if inside else "B-THING" if word == "book" else "O")
        found.append({"tokens": words, "tags": tags if spans else [tag[-5:] for tag in tags]})
    return found


def run(model: str, output: Path, *words: str, steps: int = 2) -> dict[str, float]:
    given = ["--model_name_or_path", model, "--output_dir", str(output), "--do_train", "--do_eval"]
    return main([*given, *SHORT, "--max_steps", str(steps), *words])


@pytest.mark.parametrize("spans", [True, False], ids=["spans", "words"])
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_it_learns_from_files_of_ones_own(
    ending: str, spans: bool, write: Write, tiny_model: str, tmp_path: Path
) -> None:
    own = rows(96, spans)
    if ending == "csv":
        own = [{name: " ".join(values) for name, values in row.items()} for row in own]
    file = write(f"tagged.{ending}", own)
    words = ("--train_file", file, "--validation_file", file, "--jat_preset", "stones")
    scores = run(tiny_model, tmp_path / "run", *words, steps=80)
    assert scores["eval_f1" if spans else "eval_accuracy"] > 0.8
    again = ["--model_name_or_path", str(tmp_path / "run"), "--do_eval", *SHORT, *words[2:4]]
    assert main([*again, "--output_dir", str(tmp_path / "x")])["eval_loss"] == pytest.approx(
        scores["eval_loss"], abs=1e-6
    )


@pytest.mark.parametrize("name", ["wnut17", "ewtpos", "steppingstonesboth"])
def test_named_tasks_are_trained_and_measured(
    name: str, tiny_model: str, data_dir: Path, tmp_path: Path
) -> None:
    few = ("--max_train_samples", "8", "--max_eval_samples", "8", "--max_length", "64")
    scores = run(
        tiny_model, tmp_path / "run", "--task_name", name, "--data_dir", str(data_dir), *few
    )
    answers = json.loads((tmp_path / "run/answers.json").read_text())["validation"]
    for metric, value in get_task(name).measure(**answers).items():
        assert scores[f"eval_{metric}"] == pytest.approx(value)


def test_the_first_token_of_a_word_is_told_its_tag(minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    sentence = (["Unbelievable", "!", "Anna"], ["O", "O", "B-P"])
    encoded = encode_words(tag_rows([sentence], ["O", "B-P"]), tokenizer, 32)
    row = encoded.features[0]
    told = [
        (token, label)
        for token, label in zip(
            tokenizer.convert_ids_to_tokens(row["input_ids"]), row["labels"], strict=True
        )
        if label >= 0
    ]
    assert told == [("unbelievable", 0), ("!", 0), ("anna", 1)]


def test_bad_input_is_named(write: Write, tiny_model: str, tmp_path: Path) -> None:
    file = write("tagged.jsonl", [{"tokens": ["the", "book"], "tags": ["O"]}])
    words = ("--train_file", file, "--validation_file", file)
    with pytest.raises(ValueError, match="must have a tag a word, got 2 and 1"):
        run(tiny_model, tmp_path / "run", *words)
    with pytest.raises(ValueError, match="must have a column 'pos'"):
        run(tiny_model, tmp_path / "other", *words, "--label_column", "pos")
    with pytest.raises(ValueError, match="task of run_tagging, got rte"):
        run(tiny_model, tmp_path / "third", "--task_name", "rte")
