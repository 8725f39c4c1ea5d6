"""run_language_modelling: the next token of texts."""

import math
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.run_language_modelling import encode_blocks, main
from tests.examples.conftest import Write, sentences

SHORT = ("--max_length", "16", "--use_cpu", "--disable_tqdm", "true", "--learning_rate", "3e-3")
CAUSAL = ("--jat_set", "threshold=0.3", "heads=2", "key_selection=strided", "key_step=4")


def run(model: str, output: Path, *words: str, steps: int = 2) -> dict[str, float]:
    given = ["--model_name_or_path", model, "--output_dir", str(output), "--do_train", "--do_eval"]
    return main([*given, *SHORT, "--max_steps", str(steps), *words])


@pytest.mark.parametrize("ending", ["txt", "csv", "jsonl"])
def test_it_learns_from_files_of_ones_own(
    ending: str, write: Write, tiny_decoder: str, tmp_path: Path
) -> None:
    texts = [f"the book costs more than the pencil {text}" for text in sentences(40)]
    if ending == "txt":
        file = str(tmp_path / "mine.txt")
        Path(file).write_text("\n".join(texts))
    else:
        file = write(f"mine.{ending}", [{"text": text} for text in texts])
    words = ("--train_file", file, "--validation_file", file)
    first = run(tiny_decoder, tmp_path / "first", *words, steps=1)
    scores = run(tiny_decoder, tmp_path / "run", *words, *CAUSAL, steps=60)
    assert scores["eval_perplexity"] < 0.7 * first["eval_perplexity"]
    assert "eval_bits_per_character" in scores


def test_each_token_but_the_first_is_said_once(
    write: Write, tiny_decoder: str, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_decoder)
    texts = sentences(6)
    encoded = encode_blocks(Dataset.from_dict({"text": texts}), tokenizer, 4, None)
    blocks = encoded.features["input_ids"]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert sum(len(block) - 1 for block in blocks) == sum(len(own) - 1 for own in ids)
    assert encoded.notes == sum(len(text) - len(text.split()[0]) for text in texts)
    file = write("mine.csv", [{"text": text} for text in texts])
    words = ["--model_name_or_path", tiny_decoder, "--validation_file", file, "--do_eval", *SHORT]
    scores = main([*words, "--output_dir", str(tmp_path / "out")])
    model = AutoModelForCausalLM.from_pretrained(tiny_decoder).eval()
    total = count = 0.0
    for own in ids:  # no text is longer than a block
        with torch.no_grad():
            logits = model(torch.tensor([own])).logits[0, :-1]
        total += float(
            torch.nn.functional.cross_entropy(logits, torch.tensor(own[1:]), reduction="sum")
        )
        count += len(own) - 1
    assert scores["eval_perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)
    assert scores["eval_bits_per_character"] == pytest.approx(total / math.log(2) / encoded.notes)


@pytest.mark.parametrize("name", ["tinyshakespeare", "choralesquarter"])
def test_named_tasks_are_trained(
    name: str, tiny_decoder: str, data_dir: Path, tmp_path: Path
) -> None:
    few = ("--max_train_samples", "8", "--max_eval_samples", "8", "--from_scratch")
    words = ("--task_name", name, "--data_dir", str(data_dir), *few)
    scores = run(tiny_decoder, tmp_path / "run", *words)
    unit = "token" if name.startswith("chorales") else "character"
    assert scores.keys() >= {"eval_perplexity", f"eval_bits_per_{unit}"}


def test_an_encoder_is_refused(write: Write, tiny_model: str, tmp_path: Path) -> None:
    file = write("mine.csv", [{"text": text} for text in sentences(4)])
    words = ("--train_file", file, "--validation_file", file)
    with pytest.raises(ValueError, match="must be a decoder"):
        run(tiny_model, tmp_path / "run", *words)
    with pytest.raises(ValueError, match="must have a column 'words'"):
        run(tiny_model, tmp_path / "run2", *words, "--text_column", "words")
