"""Real decoders: how they are loaded, and the command that measures how they read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from examples import pretrained_decoders, real_decoders
from jat_graph.hf import register_clustered
from tests.examples.conftest import Call

TINY = ["--kinds", "python", "--lengths", "600", "--texts", "1"]


@pytest.mark.slow
def test_the_same_attention_loses_nothing_and_the_file_goes_on(
    smollm2: Any,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(real_decoders, "load", lambda name: smollm2)
    monkeypatch.setattr(real_decoders, "CONTINUED", 8)
    file = tmp_path / "a.jsonl"
    words = [real_decoders, "--output", file, *TINY, "--attention", "less:best:9999"]
    call(*words)
    lines = file.read_text("utf-8").splitlines()
    dense, same = map(json.loads, lines)
    assert len(dense["loss"]) == 2 and 0.5 < dense["loss"][1] < dense["loss"][0] < 4
    assert same["loss"] == pytest.approx(dense["loss"], abs=1e-3)
    assert same["changed"] == dense["changed"] == [0.0, 0.0] and same["same"] == 8 == dense["same"]
    assert "| python | 600 | less:best:9999 | 1 |" in capsys.readouterr().out
    call(*words, "less:window:80", "less:lines:80")
    after = file.read_text("utf-8").splitlines()
    assert after[:2] == lines and len(after) == 4
    assert all(json.loads(line)["loss"] != dense["loss"] for line in after[2:])


@pytest.mark.parametrize("way", ["sdpa", "clustered", "less:bounds:90"])
def test_a_long_text_is_read_as_its_beginnings_are(way: str) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=50, intermediate_size=64, initializer_range=0.5, **sizes)
    model = LlamaForCausalLM(config).eval()
    tokens = torch.randint(50, (401,))
    register_clustered(keys=8, segment=64, dense_below=0)
    model.set_attn_implementation(real_decoders.find_attention(model, way))
    both = real_decoders.read(model, tokens.tolist(), [100, 400], {})
    # A draft is right up to its 20th token.
    drafts = {x: y.after.where(torch.arange(64) != 20, (y.after + 1) % 50) for x, y in both.items()}
    checked = real_decoders.read(model, tokens.tolist(), [100, 400], drafts)
    with torch.no_grad():
        for length, found in both.items():
            (alone,) = real_decoders.read(model, tokens.tolist(), [length], {}).values()
            assert torch.equal(checked[length].after[:21], found.after[:21])
            logits = model(tokens[None, :length]).logits[0]
            expected = F.cross_entropy(logits, tokens[1 : length + 1], reduction="none")
            torch.testing.assert_close(found.losses, expected, rtol=1e-4, atol=1e-4)
            assert torch.equal(found.said, logits.argmax(-1))
            said = model.generate(tokens[None, :length], max_new_tokens=64, eos_token_id=-1)
            assert torch.equal(found.after, alone.after)
            assert torch.equal(found.after, said[0, length:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no-such-package is missing: pip install no-such-package"),
        ("--model nope", "model must be smollm2, gemma3 or a folder with a config.json, got"),
        ("--attention clusterd", "attention must be names that transformers has, clustered"),
        ("--attention clustered:nokeys=3", "unknown config field 'nokeys'"),
        ("--lengths 200 100", "lengths must be rising, got [200, 100]"),
        ("--attention less:nose:9", "attention must be less:METHOD:KEYS with a method of window"),
        ("--lengths 4096", "lengths must be at most 1984 for this model, got 4096"),
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
