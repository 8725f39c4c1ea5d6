"""run_language_modelling: the next token of texts."""

import math
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.run_language_modelling import encode_blocks, judge, main, token_losses
from examples.training import Encoded
from tests.examples.conftest import SHORT, Write, sentences, train

CAUSAL = ("--jat_set", "threshold=0.3", "heads=2", "key_selection=strided", "key_step=4")


@pytest.mark.slow
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
    first = train("language_modelling", tiny_decoder, tmp_path / "first", *words, steps=1)
    scores = train("language_modelling", tiny_decoder, tmp_path / "run", *words, *CAUSAL, steps=60)
    assert scores["eval_perplexity"] < 0.7 * first["eval_perplexity"]
    assert "eval_bits_per_character" in scores


def test_each_token_but_the_first_is_said_once(
    write: Write, tiny_decoder: str, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_decoder)
    texts = sentences(6)
    encoded = encode_blocks(Dataset.from_dict({"text": texts}), "train", tokenizer, 4, None)
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


def test_an_encoder_learns_masked_tokens(write: Write, tiny_model: str, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.mask_token = "[UNK]"
    tokenizer.save_pretrained(masking := str(tmp_path / "masking"))
    file = write("mine.csv", [{"text": "the book costs more than the pencil"}] * 40)
    words = ("--train_file", file, "--validation_file", file, "--masked", "0.3")
    named = (*words, "--tokenizer_name", masking)
    first = train("language_modelling", tiny_model, tmp_path / "first", *named, steps=1)
    scores = train("language_modelling", tiny_model, tmp_path / "run", *named, steps=60)
    assert 1 < scores["eval_perplexity"] < 0.5 * first["eval_perplexity"]
    assert "eval_bits_per_character" not in scores
    with pytest.raises(ValueError, match="masked needs a tokenizer with a token for what is"):
        train("language_modelling", tiny_model, tmp_path / "no", *words)
    with pytest.raises(ValueError, match=r"masked must be from 0 on and below 1, got 1\.0"):
        train("language_modelling", tiny_model, tmp_path / "no", *words, "--masked", "1")


def test_losses_are_those_of_labelled_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 7, generator=generator)
    labels = torch.randint(7, (2, 5), generator=generator).masked_fill(torch.eye(2, 5) > 0, -100)
    losses = -logits.log_softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    losses[labels < 0] = 0
    torch.testing.assert_close(token_losses(logits, labels, shift=0), losses)
    torch.testing.assert_close(token_losses(logits[labels >= 0], labels, shift=0), losses)
    after = torch.cat([labels[:, :1], labels[:, :-1]], 1)
    torch.testing.assert_close(token_losses(logits, after, shift=1)[:, :-1], losses[:, :-2])
    encoded = Encoded(Dataset.from_dict({}), Dataset.from_dict({}))
    found, _ = judge(losses.numpy(), labels.numpy(), encoded, ["perplexity"])
    assert found["perplexity"] == pytest.approx(math.exp(losses.sum() / (labels >= 0).sum()))
