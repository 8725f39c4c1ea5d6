import argparse
import dataclasses
import re
import sys
from pathlib import Path

import pytest
import torch

from examples import long_document
from jat_graph import JatConfig
from jat_graph.hf import attached_config
from models.long_document import LongDocument

JUMP = JatConfig.stones(key_selection="sampled", num_keys=6, pattern="window:8+global:1")


def run(monkeypatch: pytest.MonkeyPatch, model: str, data: Path, *words: str) -> None:
    given = ["long_document", "--model", model, "--data-dir", str(data), "--limit", "4", *words]
    monkeypatch.setattr(sys, "argv", given)
    long_document.main()


@pytest.mark.parametrize("words", [(), ("--strength", "0"), ("--checkpointing", "--bf16")])
def test_it_says_what_it_cuts_and_reaches(
    words: tuple[str, ...],
    tiny_model: str,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = ("--max-length", "96", "--pattern", "window:16+global:1", "--epochs", "2")
    run(monkeypatch, tiny_model, data_dir, *short, *words)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines[:2]] == ["4 texts", "4 texts"]
    assert all(re.fullmatch(r"4 texts, 9\d\.\d% of the tokens cut off", line) for line in lines[:2])
    assert re.fullmatch(r"epoch 2: loss \d\.\d{3}, validation accuracy [\d.]+%", lines[3])
    learned = r"mean size of θ: queries 0\.0[1-9]\d, keys 0\.0[1-9]\d, values 0\.0[1-9]\d"
    assert [bool(re.fullmatch(learned, line)) for line in lines[4:]] == [True][: "0" not in words]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--pattern", "widow:3"), "widow"),
        (("--strength", "nan"), "strength"),
        (("--data-dir", "/nowhere"), "/nowhere"),
        (("--model", "/nowhere"), "/nowhere"),
        (("--max-length", "9"), "max_length must be at least"),
        (("--limit", "0"), "limit must be at least 1, got 0"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...],
    message: str,
    tiny_model: str,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, tiny_model, data_dir, *words)
    assert str(caught.value).startswith("long_document: error: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_come_from_beyond_the_window_and_padding_changes_nothing(tiny_model: str) -> None:
    torch.manual_seed(0)
    window = dataclasses.replace(JUMP, pattern="window:8")  # of which two layers carry 14 tokens
    model = LongDocument(tiny_model, 3, window, max_length=100).eval()
    assert attached_config(model.encoder).excluded_token_ids == (0, 2, 3)  # [PAD], [CLS], [SEP]
    tokens = torch.randint(4, 15, (2, 100))
    mask = torch.ones(2, 100)
    mask[1, 70:] = 0
    far = tokens[:1].clone()
    far[:, 60:] = torch.randint(4, 15, (40,))

    def moved() -> torch.Tensor:
        """How far the states of the first tokens depend on those from place 60 on."""
        states = [model.encoder(input_ids=ids).last_hidden_state for ids in (far, tokens[:1])]
        return (states[0] - states[1])[0, :20].abs().max()

    with torch.no_grad():
        assert moved() == 0  # strengths begin at 0
        before = model(tokens, mask)
        for name, theta in model.named_parameters():
            if name.endswith("strength.theta"):
                theta[2] = 0.5  # of values
        assert moved() > 1e-3
        logits = model(tokens, mask)
        assert not torch.allclose(before, logits, atol=1e-4)
        assert torch.allclose(model(tokens[1:, :70], mask[1:, :70])[0], logits[1], atol=1e-5)


def test_training_learns_a_few_texts_by_heart(tiny_model: str) -> None:
    torch.manual_seed(0)
    documents = [(torch.randint(4, 15, (70,)).tolist(), label) for label in (0, 1, 2, 0)]
    args = argparse.Namespace(
        batch_size=2, accumulation=2, learning_rate=5e-3, epochs=45, bf16=False
    )
    model = LongDocument(tiny_model, 3, JUMP, max_length=80)
    *_, loss = long_document.fit(model, documents, args)
    assert loss < 0.2
    logits, labels = long_document.evaluate(model, documents, args)
    assert torch.equal(logits.argmax(-1), labels)
