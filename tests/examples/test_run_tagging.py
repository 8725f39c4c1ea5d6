"""run_tagging: a tag for each word."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from examples.run_tagging import encode_words, main
from examples.tasks.base import tag_rows
from tests.examples.conftest import SHORT, Rows, Write, sentences, train


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


@pytest.mark.slow
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
    scores = train("tagging", tiny_model, tmp_path / "run", *words, steps=80)
    assert scores["eval_f1" if spans else "eval_accuracy"] > 0.8
    again = ["--model_name_or_path", str(tmp_path / "run"), "--do_eval", *SHORT, *words[2:4]]
    assert main([*again, "--output_dir", str(tmp_path / "x")])["eval_loss"] == pytest.approx(
        scores["eval_loss"], abs=1e-6
    )


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
