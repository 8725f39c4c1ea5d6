"""run_question_answering: answers as pieces of texts that are read in windows."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from examples.data import draw_rows
from examples.run_question_answering import encode_windows, find_best
from examples.tasks import get_task
from tests.examples.conftest import WORDS, Rows, Write, sentences, train

SHORT = ("--max_length", "24", "--doc_stride", "8")


def rows(count: int, lack: bool = False) -> Rows:
    """Draw questions for what stands behind the one "not"; some ask where there is none."""
    found = []
    for number, text in enumerate(sentences(count, words=WORDS[:-1])):
        missing = lack and number % 3 == 0
        context = f"{text} not pencil {text}" if not missing else f"{text} {text}"
        start = context.find("not") + 4
        answers = {
            "text": [] if missing else ["pencil"],
            "answer_start": [] if missing else [start],
        }
        found.append({"question": "what is not", "context": context, "answers": answers})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("lack", [False, True], ids=["all answered", "some without"])
def test_it_learns_from_files_of_ones_own(
    lack: bool, write: Write, tiny_model: str, tmp_path: Path
) -> None:
    file = write("questions.jsonl", rows(96, lack))
    words = ("--train_file", file, "--validation_file", file, "--jat_preset", "stones")
    scores = train("question_answering", tiny_model, tmp_path / "run", *SHORT, *words, steps=100)
    assert scores["eval_f1"] > 0.7 and ("eval_best_f1" in scores) == lack
    answers = json.loads((tmp_path / "run/answers.json").read_text())["validation"]
    assert len(answers["said"]) == len(answers["right"]) == 96


@pytest.mark.slow
def test_a_question_is_seen_by_all(write: Write, tiny_model: str, tmp_path: Path) -> None:
    file, output = write("questions.jsonl", rows(96)), tmp_path / "run"
    words = ["--train_file", file, "--validation_file", file, "--global_question"]
    with pytest.raises(
        ValueError, match=r"^model must have encoder heads that read by clusters, or"
    ):
        train("question_answering", tiny_model, output, *SHORT, *words)
    words += ["--jat_set", "pattern=window:4+global", "hop_weights=[1]"]
    scores = train("question_answering", tiny_model, output, *SHORT, *words, steps=100)
    assert scores["eval_f1"] > 0.7
    settings = json.loads((output / "config.json").read_text())["jat"]
    assert settings["pattern"] == "window:4+global"


def test_windows_hold_every_answer(tiny_model: str, data_dir: Path) -> None:
    rows = draw_rows(get_task("squad").load(data_dir, ["validation"])["validation"], 64)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    encoded = encode_windows(rows, tokenizer, max_length=96, stride=32)
    owners, spans = encoded.notes
    held = set()
    features = encoded.features.to_dict()
    for window, owner in enumerate(owners):
        first, last = (features[f"{side}_positions"][window] for side in ("start", "end"))
        if first:
            row = rows[owner]
            start, text = row["answers"]["answer_start"][0], row["answers"]["text"][0]
            said = row["context"][spans[window][first, 0] : spans[window][last, 1]]
            assert text in said and spans[window][first, 0] <= start
            held.add(owner)
    assert held == set(range(len(rows)))


def test_the_best_piece_is_in_the_context_and_no_longer_than_asked() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        starts, ends = rng.normal(size=(2, 12))
        context = rng.random(12) < 0.7
        context[0] = True
        wanted = max(
            (starts[i] + ends[j], i, j)
            for i in range(12)
            for j in range(i, min(12, i + 3))
            if context[i] and context[j]
        )
        assert find_best(starts, ends, context, 3) == pytest.approx(wanted)
