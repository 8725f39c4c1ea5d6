"""Real decoders: how they are loaded, and the command that measures how they read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from examples import pretrained_decoders, real_decoders
from tests.examples.conftest import Call

TINY = ["--kinds", "python", "--lengths", "256", "--texts", "1", "--key_lengths", "512"]
TINY += ["--depths", "1", "--seeds", "1"]


@pytest.mark.slow
def test_the_same_attention_loses_nothing_and_the_file_goes_on(
    smollm2: Any,
    data_dir: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(real_decoders, "load", lambda name: smollm2)
    file = tmp_path / "a.jsonl"
    words = [real_decoders, "--output", file, *TINY, "--data_dir", data_dir, "--attention", "sdpa"]
    call(*words)
    lines = file.read_text("utf-8").splitlines()
    dense, same, *keys = map(json.loads, lines)
    assert 0.5 < dense["loss"] == same["loss"] < 3
    assert same["more"] == [0.0, 0.0] and same["changed"] == 0
    assert [row["right"] for row in keys] == [5, 5] == [row["digits"] for row in keys]
    said = capsys.readouterr().out
    assert "+0.000 ± 0.000 | 0.0% |" in said and "| 512 | sdpa | 1 of 1 | 1 of 1 | 5 of 5 |" in said
    call(*words, "clustered:keys=2,segment=64,dense_below=0")
    after = file.read_text("utf-8").splitlines()
    assert after[:4] == lines and len(after) == 6
    assert json.loads(after[4])["loss"] != dense["loss"]


def test_tokens_are_said_at_once_or_with_a_cache() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=50, intermediate_size=64, initializer_range=0.5, **sizes)
    model = LlamaForCausalLM(config).eval()
    tokens = torch.randint(50, (400,))
    logits = model(tokens[None]).logits[0, :-1].detach()
    for asked, cached in ((300, False), (5, True), (1, True)):
        losses, said = real_decoders.say(model, tokens.tolist(), asked, cached)
        expected = F.cross_entropy(logits, tokens[1:], reduction="none")[-asked:]
        torch.testing.assert_close(losses, expected)
        assert torch.equal(said, logits.argmax(-1)[-asked:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no-such-package is missing: pip install no-such-package"),
        ("--model nope", "model must be smollm2, gemma3 or a folder with a config.json, got"),
        ("--attention clusterd", "attention must be names that transformers has, such as"),
        ("--attention clustered:nokeys=3", "unknown config field 'nokeys'"),
        ("--lengths 100", "lengths must be multiples of 128, got 100"),
        ("--key_lengths 100", "key_lengths must be 0 or at least 200, got 100"),
        ("--lengths 4096", "lengths must be at most 2048 for this model, got 4096"),
        ("--kinds poems", "kinds must be among wikitext2, qmsum, covidqa, python, got"),
        ("--output none/a.jsonl", "none/a.jsonl must be a file in an existing folder"),
    ],
)
def test_bad_input_is_one_line(
    words: str, message: str, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(pretrained_decoders.PACKAGES, "smollm2", "no-such-package")
    if words not in ("", "--model nope"):
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        tiny = LlamaForCausalLM(LlamaConfig(vocab_size=9, intermediate_size=8, **sizes))
        monkeypatch.setattr(real_decoders, "load", lambda name: (tiny, None))
    with pytest.raises(SystemExit) as caught:
        call(real_decoders, "--output", tmp_path / "a.jsonl", *words.split())
    assert str(caught.value).startswith(f"real_decoders: error: {message}")
