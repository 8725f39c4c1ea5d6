"""run_classification, and with it what all run scripts share."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForSequenceClassification, Trainer

import jat_graph
from examples.data import draw_groups
from examples.run_classification import main
from jat_graph import JatConfig
from jat_graph.hf import attached_config
from tests.examples.conftest import SHORT, Rows, Write, sentences, train

ROOT = Path(__file__).resolve().parents[2]
JUMPS = ("--jat_set", "threshold=4.0", "heads=2", "layers=[0]")


def rows(count: int, seed: int = 0, label: str = "label") -> Rows:
    """Draw sentences; those that say "not" are of another class."""
    return [
        {"text": text, label: "no" if "not" in text else "yes"} for text in sentences(count, seed)
    ]


@pytest.fixture
def files(write: Write) -> tuple[str, ...]:
    """Return the options of small files of our own."""
    train, dev = write("train.csv", rows(48)), write("dev.csv", rows(24, seed=1))
    return ("--train_file", train, "--validation_file", dev)


def run(model: str, output: Path, *words: str, steps: int = 6) -> dict[str, float]:
    return train("classification", model, output, "--save_steps", "2", *words, steps=steps)


def without_dropout(model: str, folder: Path) -> str:
    """Copy a model, so that the copy drops nothing."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    changes = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config | changes))
    return str(folder)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def told(weights: dict[str, torch.Tensor]) -> list[str]:
    """Leave out biases of keys: they change no probability, and learn from rounding alone."""
    return [name for name in weights if not name.endswith("key.bias")]


def same_weights(one: Path, other: Path) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "pair"), [("csv", False), ("tsv", True), ("jsonl", True)])
def test_it_learns_from_files_of_ones_own(
    ending: str, pair: bool, write: Write, tiny_model: str, tmp_path: Path
) -> None:
    own = [row | {"other": "the book"} for row in rows(96, label="verdict")]
    train, dev = write(f"train.{ending}", own), write(f"dev.{ending}", own[:24])
    words = ["--train_file", train, "--validation_file", dev, "--label_column", "verdict"]
    words += ["--text_pair_column", "other"] if pair else []
    scores = run(tiny_model, tmp_path / "run", *words, steps=60)
    assert scores["eval_accuracy"] > 0.85 and scores["train_samples"] == 96
    assert json.loads((tmp_path / "run/all_results.json").read_text()).items() >= {
        (name, scores[name]) for name in ("eval_accuracy", "eval_macro_f1", "train_loss")
    }
    answers = json.loads((tmp_path / "run/answers.json").read_text())["validation"]
    hits = [one == other for one, other in zip(answers["said"], answers["right"], strict=True)]
    assert sum(hits) / len(hits) == pytest.approx(scores["eval_accuracy"])
    words = ["--model_name_or_path", str(tmp_path / "run"), "--do_eval", *words[2:], *SHORT]
    again = main([*words, "--output_dir", str(tmp_path / "again")])
    assert again["eval_accuracy"] == scores["eval_accuracy"]


@pytest.mark.slow
def test_evaluating_alone_cuts_where_training_did(
    write: Write, tiny_model: str, tmp_path: Path
) -> None:
    own = [row | {"text": " ".join([str(row["text"])] * 4)} for row in rows(24)]
    files = ("--train_file", write("train.csv", own), "--validation_file", write("dev.csv", own))
    scores = run(tiny_model, tmp_path / "run", *files)
    words = ["--model_name_or_path", str(tmp_path / "run"), "--do_eval", *files[2:], *SHORT[2:]]
    again = main([*words, "--output_dir", str(tmp_path / "again")])
    assert again["eval_loss"] == pytest.approx(scores["eval_loss"], abs=1e-6)
    other = main([*words, "--output_dir", str(tmp_path / "other"), "--max_length", "32"])
    assert other["eval_loss"] != pytest.approx(scores["eval_loss"], abs=1e-6)


@pytest.mark.slow
def test_numbers_are_a_regression(write: Write, tiny_model: str, tmp_path: Path) -> None:
    own = [{"text": text, "label": text.count("not") + 0.5} for text in sentences(48)]
    files = ("--train_file", write("n.csv", own), "--validation_file", write("m.csv", own))
    scores = run(tiny_model, tmp_path / "run", *files, steps=40)
    assert scores["eval_pearson"] > 0.5 and "eval_mse" in scores


@pytest.mark.slow
def test_one_file_alone_needs_rows_that_are_held_out(
    write: Write, tiny_model: str, tmp_path: Path
) -> None:
    files = ("--train_file", write("all.csv", rows(48)))
    with pytest.raises(ValueError, match=r"got train only: name --validation_file, or --held_out"):
        run(tiny_model, tmp_path / "run", *files)
    scores = run(tiny_model, tmp_path / "run", *files, "--held_out", "0.25")
    answers = json.loads((tmp_path / "run/answers.json").read_text())
    assert scores["train_samples"] == 36 and len(answers["held_out"]["said"]) == 12


@pytest.mark.slow
def test_what_may_not_be_meant_is_said(
    write: Write, tiny_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = [row | {"label": number % 5 + 1} for number, row in enumerate(rows(20))]
    words = ("--train_file", write("stars.csv", own), "--held_out", "0.5", "--max_length", "80")
    run(tiny_model, tmp_path / "run", *words, steps=1)
    said = (
        "labels 1, 2, 3, 4, 5 are classes without an order; --do_regression true predicts numbers"
    )
    assert said in caplog.messages
    assert "the table of 64 positions was made longer, for 80 tokens" in caplog.messages
    card = (tmp_path / "run/README.md").read_text()
    assert f"fine-tuned from {Path(tiny_model).name} on the stars.csv dataset" in card
    caplog.clear()
    run(tiny_model, tmp_path / "numbers", *words, "--do_regression", "true", steps=1)
    assert said not in caplog.messages


HEADS: dict[str, tuple[str, ...]] = {
    "pairs": JUMPS,
    "stones": ("--jat_preset", "stones", "--strength_learning_rate", "0.1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEADS)
def test_heads_are_placed_saved_and_described(
    kind: str, files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    scores = run(tiny_model, tmp_path / "run", *files, *HEADS[kind])
    plain = run(tiny_model, tmp_path / "plain", *files)
    assert scores["train_loss"] != plain["train_loss"]
    card = (tmp_path / "run/README.md").read_text()
    assert "jat_graph.from_pretrained" in card and "Accuracy" in card
    words = ["--model_name_or_path", str(tmp_path / "run"), "--do_eval", *files[2:], *SHORT]
    again = main([*words, "--output_dir", str(tmp_path / "again")])
    assert again["eval_loss"] == pytest.approx(scores["eval_loss"], abs=1e-6)
    with pytest.raises(ValueError, match="has heads already"):
        run(str(tmp_path / "run"), tmp_path / "more", *files, *HEADS[kind])


CLUSTERED: dict[str, tuple[str, ...]] = {
    "by name": ("--attn_implementation", "clustered"),
    "preset": ("--jat_preset", "clustered"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLUSTERED)
def test_texts_too_short_for_clusters_are_no_secret(
    kind: str,
    files: tuple[str, ...],
    tiny_model: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clustered = run(tiny_model, tmp_path / "run", *files, *CLUSTERED[kind])
    plain = run(tiny_model, tmp_path / "plain", *files)
    assert clustered["eval_loss"] == plain["eval_loss"]
    (line,) = [text for text in caplog.messages if "clusters" in text]
    assert re.match(
        r"no text is read by clusters: the longest has \d+ tokens, and below 4096", line
    )


@pytest.mark.slow
def test_texts_long_enough_for_clusters_are_read_by_them(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ("keys=0", "size=2", "segment=4", "dense_below=0")
    words = (*CLUSTERED["preset"], "--jat_set", *settings)
    clustered = run(tiny_model, tmp_path / "run", *files, *words)
    assert clustered["eval_loss"] != run(tiny_model, tmp_path / "plain", *files)["eval_loss"]
    assert not [text for text in caplog.messages if "clusters" in text]


@pytest.mark.slow
def test_a_model_that_does_not_heed_a_name_is_refused(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    config = AutoConfig.for_model("mpnet", hidden_size=32, num_hidden_layers=1, vocab_size=64)
    config.num_attention_heads, config.intermediate_size = 4, 32
    config.save_pretrained(tmp_path / "mpnet")
    words = (*files, "--tokenizer_name", tiny_model, "--from_scratch", "true")
    with pytest.raises(ValueError, match=r"MPNetSelfAttention"):
        run(str(tmp_path / "mpnet"), tmp_path / "run", *words, *CLUSTERED["by name"])
    assert not (tmp_path / "run").exists()
    run(str(tmp_path / "mpnet"), tmp_path / "run", *words)


@pytest.mark.slow
def test_strengths_learn_by_a_rate_of_their_own(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    learned = {}
    for rate in ("0", "0.1"):
        words = ("--jat_preset", "stones", "--strength_learning_rate", rate)
        run(tiny_model, tmp_path / rate, *files, *words)
        found = weights(tmp_path / rate)
        learned[rate] = max(float(found[name].abs().max()) for name in found if "strength" in name)
    assert learned["0"] == 0 and learned["0.1"] > 0.05


@pytest.mark.slow
def test_heads_come_from_a_file(files: tuple[str, ...], tiny_model: str, tmp_path: Path) -> None:
    (tmp_path / "heads.json").write_text(json.dumps({"jat": JatConfig(heads=(0,)).to_dict()}))
    run(tiny_model, tmp_path / "run", *files, "--jat_config", str(tmp_path / "heads.json"))
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["jat"]["heads"] == [0]


@pytest.mark.slow
def test_thresholds_are_calibrated_on_training_rows(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    run(tiny_model, tmp_path / "run", *files, *JUMPS, "--density", "0.2")
    config = JatConfig.load(tmp_path / "run/calibrated.json")
    loaded = jat_graph.from_pretrained(AutoModelForSequenceClassification, tmp_path / "run")
    assert attached_config(loaded) == config and config != JatConfig()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        JUMPS,
        ("--train_sampling_strategy", "group_by_length", "--gradient_accumulation_steps", "2"),
        ("--jat_preset", "stones", "--lr_scheduler_type", "cosine", "--optim", "adafactor"),
        (*JUMPS, "--density", "0.2", "--activation_checkpointing"),
    ],
    ids=["pairs", "by length", "strengths", "calibrated"],
)
@pytest.mark.parametrize("stop", [1, 5])
def test_an_interrupted_run_goes_on_exactly(
    words: tuple[str, ...],
    stop: int,
    files: tuple[str, ...],
    tiny_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    words = (*files, *words, "--resume_from_checkpoint", "last")
    run(tiny_model, whole, *words)
    original = Trainer.training_step

    def interrupt(self: Trainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.state.global_step == stop:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "training_step", interrupt)
        run(tiny_model, cut, *words)
    assert not (cut / "all_results.json").exists()
    (cut / "checkpoint-9").mkdir()
    (cut / "checkpoint-9/trainer_state.json").write_text("{")  # killed while it was written
    scores = run(tiny_model, cut, *words)
    assert same_weights(whole, cut)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train", None)  # a finished run is read
        assert run(tiny_model, cut, *words).items() >= scores.items()
    with pytest.raises(ValueError, match=r"holds a run with max_steps=6, not 7"):
        run(tiny_model, cut, *words, steps=7)


@pytest.mark.slow
def test_a_run_that_was_cut_off_in_its_evaluation_is_not_finished(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*files, "--resume_from_checkpoint", "last")

    def interrupt(self: Trainer, *args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "evaluate", interrupt)
        run(tiny_model, tmp_path / "run", *words)
    assert "eval_accuracy" in run(tiny_model, tmp_path / "run", *words)


def test_an_occupied_folder_is_left_alone(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"run must be empty"):
        run(tiny_model, tmp_path / "run", *files)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_seed_alone_decides_what_is_new_and_in_which_order(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    still = without_dropout(tiny_model, tmp_path / "still")
    heads = [(), ("--jat_preset", "stones", "--strength_learning_rate", "0")]
    for name, words in zip("ab", heads, strict=True):
        by_length = ("--train_sampling_strategy", "group_by_length")
        run(still, tmp_path / name, *files, *words, *by_length)
    ours, theirs = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert all(torch.allclose(theirs[name], ours[name], atol=1e-4) for name in told(ours))


@pytest.mark.slow
def test_depth_length_and_weights_can_be_others(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    words = ("--depth", "3", "--max_length", "80", "--from_scratch", *JUMPS)
    run(tiny_model, tmp_path / "run", *files, *words)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["num_hidden_layers"] == 3 and config["max_position_embeddings"] == 80


BAD = [
    (("--label_column", "verdict"), "must have a column 'verdict', got text, label"),
    (("--task_name", "rte"), "data must be one of"),
    (("--jat_preset", "stone"), "jat_preset must be one of paper, "),
    (("--jat_set", "thresold=3"), "thresold"),
    (("--jat_set", "threshold"), "jat_set must be NAME=VALUE"),
    (("--max_length", "2"), "max_length must be at least 3"),
    (("--held_out", "1"), "held_out must be a share below 1"),
    (("--train_file", "/nowhere.csv"), "/nowhere.csv must be a file"),
    (("--model_name_or_path", "./nowhere"), "no such folder"),
    (("--do_predict",), "there must be rows for test"),
    (("--batch_size", "8"), "unknown option --batch_size, did you mean --per_device_train_batch_"),
    (("--nun_train_epochs", "8"), "unknown option --nun_train_epochs, did you mean --num_train_"),
    (("--qqq", "8"), "unknown option --qqq, --help lists all options"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_named(
    words: tuple[str, ...], message: str, files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, OSError)) as error:
        run(tiny_model, tmp_path / "run", *files, *words)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


BROKEN = [
    ("a.jsonl", b'{"text": "a"', "a.jsonl must be JSON: Expecting ',' delimiter: line 1 column 13"),
    ("a.jsonl", b"", "the train data must have rows, got none"),
    ("a.csv", b"text,label\ncaf\xe9,1\n", "a.csv must be UTF-8, got a bad byte at 14"),
    ("a.csv", b"text,label\na,1\n,1\n", "1 of 2 rows of the train data are bad: row 1: its text"),
    ("a.csv", b"text,label\na,1\nb,1\n", "must be of two classes or more, got '1' alone"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_a_broken_file_is_named(
    name: str, content: bytes, message: str, tiny_model: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        run(tiny_model, tmp_path / "run", "--train_file", f"{file}", "--validation_file", f"{file}")
    assert "\n" not in str(error.value)


def test_a_label_that_was_not_trained_is_named(
    write: Write, files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    other = write("other.csv", [{"text": "the book", "label": "perhaps"}])
    with pytest.raises(ValueError, match="must be among no, yes, got 'perhaps'"):
        run(tiny_model, tmp_path / "run", *files, "--validation_file", other)


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops_the_run(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    with pytest.raises(FloatingPointError, match="lower learning_rate"):
        run(tiny_model, tmp_path / "run", *files, "--learning_rate", "1e30")


@pytest.mark.slow
def test_a_mistake_is_one_line_of_the_command(files: tuple[str, ...], tiny_model: str) -> None:
    words = ["--model_name_or_path", tiny_model, "--output_dir", "x", "--do_eval", *files]
    command = [sys.executable, "-m", "examples.run_classification", *words, "--text_column", "x"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert found.returncode == 1
    last = found.stderr.splitlines()[-1]
    assert last.startswith("run_classification: error: the train data must")


@pytest.mark.slow
def test_two_processes_learn_what_one_does(
    files: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    base = ["--model_name_or_path", tiny_model, "--do_train", "--do_eval", *SHORT, *files, *JUMPS]
    base += ["--max_steps", "4", "--density", "0.2"]
    base[1] = without_dropout(tiny_model, tmp_path / "still")
    one, two = tmp_path / "one", tmp_path / "two"
    main([*base, "--output_dir", str(one), "--per_device_train_batch_size", "8"])
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, *launcher, "-m", "examples.run_classification", *base]
    command += ["--output_dir", str(two), "--per_device_train_batch_size", "4"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr[-2000:]
    ours, theirs = weights(one), weights(two)
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in told(ours))


def test_draws_are_the_same_in_every_run() -> None:
    groups = [0, 0, 1, 1, 1, 2, 3, 3]
    drawn, left = draw_groups(groups, 3)
    assert draw_groups(groups, 3) == (drawn, left)
    assert sorted(drawn + left) == [*range(8)] and len(drawn) >= 3
    assert not {groups[row] for row in drawn} & {groups[row] for row in left}
