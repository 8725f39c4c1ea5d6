"""Question 17's command: texts, answers from one cache, scores."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from examples import real_decoders, real_questions
from examples.tasks.ruler import Prompt
from tests.examples.conftest import Call


@pytest.mark.slow
def test_questions_about_a_text_are_answered_and_the_file_goes_on(
    smollm2: Any,
    data_dir: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(real_decoders, "load", lambda name: smollm2)
    file = tmp_path / "a.jsonl"
    words = [real_questions, "--output", file, "--data_dir", data_dir, "--lengths", "600"]
    words += ["--texts", "2", "--questions", "2", "--kinds", "covidqa", "--attention"]
    call(*words, "less:best:9999")
    lines = file.read_text("utf-8").splitlines()
    rows = [*map(json.loads, lines)]
    dense, same = (
        [x for x in rows if x["attention"] == name] for name in ("dense", "less:best:9999")
    )
    assert [x["said"] for x in dense] == [x["said"] for x in same] and len(dense) == 3
    assert all(x["said"] and 0 <= x["rouge"] <= 100 for x in dense) and any(x["f1"] for x in dense)
    assert "| covidqa | less:best:9999 | 3 | " in capsys.readouterr().out
    call(*words, "less:best:9999", "less:window:80")
    after = file.read_text("utf-8").splitlines()
    assert after[: len(lines)] == lines and len(after) == len(lines) + 3


@pytest.mark.parametrize("kind", real_questions.READERS)
def test_answers_stand_in_what_is_read(kind: str, data_dir: Path) -> None:
    for text, asked in real_questions.READERS[kind](data_dir):
        assert len({x.question for x in asked}) > len(asked) / 2
        for x in asked:
            assert x.answers[0] and all(0 <= a < z <= len(text) for a, z in x.places)
            if kind == "covidqa":
                ((start, end),) = x.places
                assert text[start:end] == x.answers[0]


def test_one_cache_answers_as_a_cache_for_each_prompt_does() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=50, intermediate_size=64, initializer_range=0.5, **sizes)
    model = LlamaForCausalLM(config).eval()

    class Letters:
        chat_template = None

        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            return {"input_ids": [ord(x) % 50 for x in text]}

        def decode(self, ids: Any, **_: Any) -> str:
            return " ".join(map(str, ids.tolist()))

    prompts = [
        Prompt(f"once upon a time {x}", "", ("",), tokens=9) for x in ("abc", "abd", "x", "")
    ]
    together = [*real_questions.answer(model, Letters(), prompts)]
    assert together == [next(real_questions.answer(model, Letters(), [x])) for x in prompts]
    ids = torch.tensor([Letters()(prompts[1].text)["input_ids"]])
    said = model.generate(ids, max_new_tokens=9, do_sample=False)[0, ids.size(1) :]
    assert together[1] == Letters().decode(said) and together[1] != together[2]
    assert [*real_questions.answer(model, Letters(), [])] == []


def test_an_answer_counts_by_the_best_right_one() -> None:
    found = real_questions.score("The cat sat.", Prompt("", "", ("a dog", "the cat sat down")))
    assert found["f1"] == 80.0 and found["rouge"] == pytest.approx(600 / 7, abs=0.01)
