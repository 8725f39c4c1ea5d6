import re
import sys
from pathlib import Path

import pytest
import torch

from examples import long_document
from jat_graph import JatConfig, disabled
from models.long_document import LongDocument
from tests.training.conftest import tiny_model

__all__ = ["tiny_model"]

JUMP = JatConfig(
    threshold=8.0, heads=2, key_selection="significance", num_keys=6, pattern="window:8+global:1"
)


def run(monkeypatch: pytest.MonkeyPatch, model: str, data: Path, *words: str) -> None:
    given = ["long_document", "--model", model, "--data-dir", str(data), "--limit", "4", *words]
    monkeypatch.setattr(sys, "argv", given)
    long_document.main()


@pytest.mark.parametrize("words", [(), ("--hop-weights", "1", "--checkpointing", "--bf16")])
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
    assert len(lines) == 4
    assert re.fullmatch(r"epoch 2: loss \d\.\d{3}, validation accuracy [\d.]+%", lines[3])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--pattern", "widow:3"), "widow"),
        (("--hop-weights", "0", "0"), "hop_weights"),
        (("--data-dir", "/nowhere"), "/nowhere"),
        (("--model", "/nowhere"), "/nowhere"),
        (("--max-length", "9"), "max_length must be at least the 64 tokens"),
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


def test_jumps_change_what_the_model_says_and_padding_does_not(tiny_model: str) -> None:
    torch.manual_seed(0)
    model = LongDocument(tiny_model, 3, JUMP, max_length=100).eval()
    tokens = torch.randint(4, 15, (2, 100))
    mask = torch.ones(2, 100)
    mask[1, 70:] = 0
    with torch.no_grad():
        logits = model(tokens, mask)
        assert torch.allclose(model(tokens[1:, :70], mask[1:, :70])[0], logits[1], atol=1e-5)
        with disabled(model.encoder):
            assert not torch.allclose(model(tokens, mask), logits, atol=1e-4)


def test_training_learns_a_few_texts_by_heart(tiny_model: str) -> None:
    torch.manual_seed(0)
    documents = [(torch.randint(4, 15, (70,)).tolist(), label) for label in (0, 1, 2, 0)]
    args = long_document.argparse.Namespace(
        batch_size=2, accumulation=2, learning_rate=5e-3, epochs=30, bf16=False
    )
    model = LongDocument(tiny_model, 3, JUMP, max_length=80)
    *_, loss = long_document.fit(model, documents, args)
    assert loss < 0.2
    logits, labels = long_document.evaluate(model, documents, args)
    assert torch.equal(logits.argmax(-1), labels)
