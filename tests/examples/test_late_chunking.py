"""Passages read alone and within whole texts."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from examples import late_chunking
from examples.long_inputs import load
from examples.real_questions import Asked
from tests.examples.conftest import Call

PETS = "The cat sleeps on the sofa. The dog barks at the postman. The fish swims in its bowl."


@pytest.fixture
def pets(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[Asked]]]:
    """Two texts, each with questions on some part of it."""
    start = PETS.index("The dog")
    asked = [
        Asked("Who barks?", ("The dog",), [(start, start + 7)]),
        Asked(
            "Who barks, and who swims?", ("both",), [(start, start + 7), (len(PETS) - 9, len(PETS))]
        ),
    ]
    texts = [(PETS, asked), ("Stars are suns far away. " * 9, [Asked("?", ("Stars",), [(0, 5)])])]
    monkeypatch.setitem(late_chunking.READERS, "covidqa", lambda data_dir: iter(texts))
    return texts


def test_passages_hold_what_is_asked_for(pets: Any, minilm_path: str) -> None:
    _, tokenizer = load("all-MiniLM-L6-v2", 512)
    options = SimpleNamespace(length=100, passage=7, data_dir=None)
    text, _ = late_chunking.draw_texts(tokenizer, "covidqa", options)
    assert "".join(text.passages).replace(" ", "") == PETS.replace(" ", "")
    (_, one), (_, two) = text.questions
    assert one == {1} and "dog" in text.passages[1] and two == {1, len(text.passages) - 1}
    options.length = 10
    text, _ = late_chunking.draw_texts(tokenizer, "covidqa", options)
    assert len(text.tokens) == 10 and text.questions[0][1] == {1}


def test_a_vector_is_the_mean_of_a_passage(pets: Any, minilm_path: str) -> None:
    model, tokenizer = load("all-MiniLM-L6-v2", 512)
    options = SimpleNamespace(length=100, passage=7, data_dir=None)
    text, _ = late_chunking.draw_texts(tokenizer, "covidqa", options)
    within = late_chunking.encode(model, tokenizer, text, 7, "dense")
    with torch.no_grad():
        states = model(**tokenizer(PETS, return_tensors="pt")).last_hidden_state[0]
        own = tokenizer(text.passages[1], return_tensors="pt")
        alone = model(**own).last_hidden_state[0].mean(0)
    torch.testing.assert_close(
        within[1], torch.nn.functional.normalize(states[8:15].mean(0), dim=0)
    )
    found = late_chunking.encode(model, tokenizer, text, 7, late_chunking.ALONE)
    torch.testing.assert_close(found[1], torch.nn.functional.normalize(alone, dim=0))
    assert found.shape == within.shape


@pytest.mark.usefixtures("pets")
def test_runs_are_kept_and_tables_compare_them(
    minilm_path: str, call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    words = [late_chunking, "--output", file, "--kinds", "covidqa", "--passage", "7"]
    words += ["--length", "90", "--attention", "less:best:9999"]
    call(*words)
    lines = file.read_text("utf-8").splitlines()
    alone, dense, same = map(json.loads, lines)
    assert alone["attention"] == "alone" and [len(x) for x in alone["scores"]] == [2, 1]
    assert dense["scores"] == same["scores"] and alone["scores"][0][0] == 1.0
    assert "| covidqa | all-MiniLM-L6-v2 | less:best:9999 | 3 | " in capsys.readouterr().out
    call(*words, "less:window:9")
    assert file.read_text("utf-8").splitlines()[:3] == lines
    assert len(file.read_text("utf-8").splitlines()) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--kinds poems", "kinds must be among covidqa, qmsum, got 'poems'"),
        ("--passage 600", "passage must be from 1 to 510, got 600"),
        ("--attention less:nose:9", "attention must be less:METHOD:KEYS with a method of window"),
    ],
)
@pytest.mark.usefixtures("pets", "minilm_path")
def test_bad_input_is_one_line(words: str, message: str, call: Call, tmp_path: Path) -> None:
    kinds = [] if "kinds" in words else ["--kinds", "covidqa"]
    with pytest.raises(SystemExit) as caught:
        call(late_chunking, "--output", tmp_path / "a.jsonl", *kinds, *words.split())
    assert str(caught.value).startswith(f"late_chunking: error: {message}")
