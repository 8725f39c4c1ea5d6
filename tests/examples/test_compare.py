"""compare: whether two variants differ, over the seeds and rows of runs that have finished."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples import compare, run_classification, run_language_modelling
from tests.examples.conftest import Write, sentences

SHORT = ("--max_length", "16", "--use_cpu", "--disable_tqdm", "true", "--report_to", "none")
Compare = Callable[..., list[str]]


@pytest.fixture
def compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Compare:
    """Return what gives the lines that the command prints about folders."""

    def run(base: list[str], other: list[str], *words: str) -> list[str]:
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        monkeypatch.setattr("sys.argv", ["compare", "--base", *base, "--other", *other, *words])
        compare.main()
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def train(tmp_path: Path, write: Write, tiny_model: str) -> Callable[..., dict[str, Any]]:
    """Return what trains on sentences, and gives the answers to those that are held out."""
    own = [{"text": text, "label": "not" in text} for text in sentences(120)]
    common = ["--train_file", write("train.jsonl", own), "--model_name_or_path", tiny_model, *SHORT]

    def run(name: str, seed: int, steps: int) -> dict[str, Any]:
        words = ["--held_out", "0.5", "--max_steps", str(steps), "--do_train", "--do_eval"]
        words += ["--seed", str(seed), "--output_dir", str(tmp_path / name), "--learning_rate"]
        run_classification.main([*common, *words, "3e-3"])
        answers: dict[str, Any] = json.loads((tmp_path / name / "answers.json").read_text())
        return answers["held_out"]

    return run


@pytest.mark.slow
def test_two_variants_are_compared_over_seeds_and_rows(
    train: Callable[..., dict[str, Any]], compared: Compare
) -> None:
    found = {(side, seed): train(f"{side}-{seed}", seed, steps)
             for side, steps in (("base", 1), ("other", 40)) for seed in (0, 1)}  # fmt: skip
    base, other = ([f"{side}-{seed}" for seed in (1, 0)] for side in ("base", "other"))
    first, options, second, third, _, fourth, *_ = compared(base, other)
    hits = {place: [x == y for x, y in zip(own["said"], own["right"], strict=True)]
            for place, own in found.items()}  # fmt: skip
    theirs, ours = (sum(sum(hits[x, n]) for n in (0, 1)) / 1.2 for x in ("base", "other"))
    assert first == f"accuracy of held_out, seeds 0, 1: base {theirs:.2f}, other {ours:.2f}"
    assert options == "They differ in max_steps 1 and 40."
    assert second.startswith(f"other less base: {ours - theirs:+.1f}, 95 %")
    both = [pair for n in (0, 1) for pair in zip(hits["base", n], hits["other", n], strict=True)]
    share = sum(one != two for one, two in both) / len(both)
    assert third == f"On {100 * share:.1f} % of the 60 rows one of the two alone is right."
    z = 1.959964 * math.sqrt(share) + 0.841621 * math.sqrt(share - 0.02**2)
    assert fourth.startswith(f"{(z / 0.02) ** 2:,.0f} rows show a true difference of 0.02")
    one = compared(base[:1], other[:1])
    assert "one seed shows nothing" in one[2] and "95 %" in one[2]
    same = compared(base, base)
    assert same[1] == "They differ in no option." and "same answer on every row" in same[3]
    assert "macro_f1" in compared(base, other, "--metric", "macro_f1")[0]


@pytest.mark.slow
def test_what_cannot_be_compared_is_refused_in_one_line(
    train: Callable[..., dict[str, Any]], compared: Compare, tmp_path: Path
) -> None:
    train("base-0", 0, 1)
    shutil.copytree(tmp_path / "base-0", tmp_path / "copy")
    shutil.copytree(tmp_path / "base-0", tmp_path / "broken")
    (tmp_path / "broken/all_results.json").unlink()
    answers = json.loads((tmp_path / "copy/answers.json").read_text())
    answers["held_out"]["right"][0] ^= 1
    (tmp_path / "copy/answers.json").write_text(json.dumps(answers))
    run = json.loads((tmp_path / "base-0/run.json").read_text())
    shutil.copytree(tmp_path / "base-0", tmp_path / "base-1")
    (tmp_path / "base-1/run.json").write_text(json.dumps(run | {"seed": 1}))
    wrong: dict[str, tuple[list[str], list[str], list[str]]] = {
        "other must be folders of finished runs, got broken": (["base-0"], ["broken"], []),
        "other must be folders of finished runs, got no": (["base-0"], ["no"], []),
        r"must have the same seeds, got \[0\] and \[1\]": (["base-0"], ["base-1"], []),
        "base must have one run a seed, got two of seed 0": (["base-0", "copy"], ["base-0"], []),
        "evaluated on the same rows of held_out": (["base-0"], ["copy"], []),
        "all runs must have eval_f2": (["base-0"], ["base-0"], ["--metric", "f2"]),
    }
    for message, (base, other, words) in wrong.items():
        with pytest.raises(SystemExit, match=message):
            compared(base, other, *words)


@pytest.mark.slow
def test_language_models_are_compared_by_their_perplexity(
    tiny_decoder: str, write: Write, tmp_path: Path, compared: Compare
) -> None:
    own = [{"text": text} for text in sentences(40)]
    files = ["--train_file", write("train.csv", own), "--validation_file", write("dev.csv", own)]
    for seed in (0, 1):
        for steps in (1, 8):
            words = ["--model_name_or_path", tiny_decoder, *files, *SHORT, "--do_train"]
            words += ["--do_eval", "--max_steps", str(steps), "--seed", str(seed)]
            words += ["--output_dir", str(tmp_path / f"{steps}-{seed}"), "--learning_rate", "1e-3"]
            run_language_modelling.main(words)
    first, _, second = compared(["1-0", "1-1"], ["8-0", "8-1"])
    assert first.startswith("perplexity of validation") and "less base: -" in second
