"""Runs: what they write, what they share, and how they fail."""

import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard

from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import TripletConfig, attach, attached_config, keep_graphs
from jat_graph.inspection.calibration import graph_statistics
from jat_graph.tasks import get_task
from jat_graph.training import BothHeads, RunResult, evaluate, train
from jat_graph.training.arguments import precision_of
from jat_graph.training.data import load_splits
from jat_graph.training.loading import load_for_training, load_trained
from jat_graph.training.objectives import objective_for
from jat_graph.training.trainer import TaskTrainer
from tests.training.support import JUMP, Options, same_weights, weights, without_dropout


def test_the_jump_heads_of_these_tests_jump(options: Options) -> None:
    objective = objective_for(get_task("cola"), options())
    rows = load_splits(objective, ("train",))["train"].features.remove_columns("labels")
    batch = objective.collate(list(rows.select(range(16))))
    model = load_for_training(objective).eval()
    with torch.no_grad():
        base = model(**batch).logits
        jumping = attach(model, JUMP)(**batch).logits
    found = graph_statistics(model, [batch])
    assert len(found) == 2
    assert all(0.1 < head.density < 0.9 for head in found)
    assert not torch.allclose(base, jumping, atol=1e-3)


def test_a_run_that_cannot_begin_leaves_the_folder_to_the_next(options: Options) -> None:
    chosen = options(epochs=1)
    taken = Path(chosen.output_dir, "tensorboard")
    taken.parent.mkdir(parents=True)
    taken.write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(OSError):
        train(chosen, progress=False)
    taken.unlink()
    assert train(chosen, progress=False).steps > 0  # not refused as a run that is there already


def test_a_run_writes_its_model_and_results(
    options: Options, capfd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "jat_graph")  # as where no command of ours has set it
    chosen = options(epochs=6, mixed_precision="auto")
    result = train(chosen, progress=False)
    folder = Path(chosen.output_dir)
    assert sorted(path.name for path in folder.iterdir()) == [
        "answers.json",
        "model",
        "results.json",
        "tensorboard",
    ]
    stored = json.loads((folder / "results.json").read_text())
    assert RunResult.from_dict(stored) == result
    assert result.primary is not None and result.primary > 0
    assert result.mixed_precision in ("no", "bf16")
    assert result.mixed_precision == precision_of(chosen)
    assert [row["step"] for row in result.history] == [3, 6, 9, 12, 15, 18]
    assert all(row["loss"] > 0 for row in result.history)
    best = max(row["validation_matthews"] for row in result.history)
    assert result.primary == best
    assert {"python", "torch", "torch-geometric", "transformers", "jat_graph"} <= set(
        result.versions
    )
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.parametrize("heads", [None, JUMP], ids=["base", "jump"])
def test_the_model_has_a_card(options: Options, heads: JatConfig | None) -> None:
    chosen = options(epochs=1)
    result = train(chosen, heads, progress=False)
    folder = Path(chosen.output_dir, "model")
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "transformers"
    assert card.data.base_model is None  # a folder is none of the Hub's
    assert ("jat_graph" in card.data.tags) == (heads is not None)
    scores = {(found.dataset_split, found.metric_type) for found in card.data.eval_results}
    assert ("validation", "matthews") in scores
    for found in card.data.eval_results:
        assert result.metrics[found.dataset_split][found.metric_type] == found.metric_value
    settings = json.loads(re.findall(r"```json\n(.*?)```", card.text, re.DOTALL)[0])
    assert settings["heads"] == result.config
    name = Path(chosen.model).name
    assert f"that began as the model in the folder `{name}` and was trained" in card.text
    assert settings["training"]["learning_rate"] == chosen.learning_rate
    assert chosen.output_dir not in card.content and str(chosen.model) not in card.content
    (loading,) = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
    found_names: dict[str, Any] = {}
    exec(loading.replace("FOLDER", str(folder)), found_names)
    assert attached_config(found_names["model"]) == heads


def test_the_trained_folder_scores_the_same(options: Options) -> None:
    chosen = options()
    result = train(chosen, JUMP, progress=False)
    model = str(Path(chosen.output_dir, "model"))
    found = evaluate(model, "cola", chosen.data_dir, max_length=16, device="cpu", progress=False)
    assert found == result.metrics


@pytest.mark.parametrize("by_length", [False, True])
def test_answers_stand_beside_what_is_right(options: Options, by_length: bool) -> None:
    chosen = options(epochs=1, max_eval_samples=20, group_by_length=by_length, eval_batch_size=3)
    result = train(chosen, JUMP, progress=False)
    answers = json.loads(Path(chosen.output_dir, "answers.json").read_text())
    said, right = (answers["validation"][side] for side in ("said", "right"))
    task = get_task("cola")
    rows = load_splits(objective_for(task, chosen), ("validation",))["validation"].rows
    assert right == list(rows["label"]) and len(said) == 20 and set(said) <= {0, 1}
    assert task.measure(said, right) == result.metrics["validation"]
    model = load_trained(objective_for(task, replace(chosen, model=f"{chosen.output_dir}/model")))
    objective = objective_for(task, chosen)
    for row, answer in zip(rows["sentence"], said, strict=True):  # each on its own
        with torch.no_grad():
            logits = model.eval()(**objective.tokenizer(row, return_tensors="pt")).logits
        assert int(logits.argmax()) == answer


def test_a_part_of_the_training_data_in_place_of_the_dev_set(options: Options) -> None:
    chosen = options(epochs=1, held_out=0.25)
    result = train(chosen, JUMP, progress=False)
    assert list(result.metrics) == ["held_out"]
    assert result.best_step is not None  # chosen on it, too
    assert result.steps == 3  # of 36 sentences
    answers = json.loads(Path(chosen.output_dir, "answers.json").read_text())
    assert list(answers) == ["held_out"] and len(answers["held_out"]["said"]) == 12


@pytest.mark.parametrize("depth", [1, 4])
def test_another_depth_is_trained_and_evaluated(options: Options, depth: int) -> None:
    chosen = options(epochs=1, depth=depth)
    result = train(chosen, replace(JUMP, layers=(depth - 1,)), progress=False)
    model = str(Path(chosen.output_dir, "model"))
    names = {name.split(".")[3] for name in weights(chosen.output_dir) if ".layer." in name}
    assert names == {str(layer) for layer in range(depth)}
    found = evaluate(model, "cola", chosen.data_dir, max_length=16, device="cpu", progress=False)
    assert found == result.metrics


@pytest.mark.parametrize("pairs", ["partner", "max"])
def test_triplet_heads_train(options: Options, pairs: str) -> None:
    config = TripletConfig(pairs=pairs, layers=(1,))
    chosen = options(epochs=1)
    result = train(chosen, config, progress=False)
    assert result.config == config.to_dict()
    new = [name for name in weights(chosen.output_dir) if ".key2." in name]
    assert bool(new) == (pairs == "partner")
    model = str(Path(chosen.output_dir, "model"))
    found = evaluate(model, "cola", chosen.data_dir, max_length=16, device="cpu", progress=False)
    assert found == result.metrics


def test_heads_of_both_kinds_train_and_are_saved(options: Options) -> None:
    heads = BothHeads(
        JatConfig(PairGraph(threshold=0.0), heads=1, strength="learned"), TripletConfig()
    )
    chosen = options(epochs=1)
    result = train(chosen, heads, progress=False)
    assert result.config == heads.to_dict()
    folder = Path(chosen.output_dir, "model")
    saved = json.loads((folder / "config.json").read_text())
    assert {name: saved[name] for name in ("jat", "triplet")} == heads.to_dict()
    learned = weights(chosen.output_dir)
    assert any(".key2." in name for name in learned)
    thetas = [tensor for name, tensor in learned.items() if name.endswith("strength.theta")]
    assert len(thetas) == 2 and all(bool(theta.any()) for theta in thetas)
    found = evaluate(
        str(folder), "cola", chosen.data_dir, max_length=16, device="cpu", progress=False
    )
    assert found == result.metrics
    assert train(options(epochs=1, resume=True), heads, progress=False) == result
    with pytest.raises(ValueError, match="holds a run with"):
        train(options(epochs=1, resume=True), heads.jump, progress=False)


@pytest.mark.parametrize("strength_lr", [None, 0.0, 0.01])
def test_strengths_learn_at_their_own_rate(options: Options, strength_lr: float | None) -> None:
    # One step, all of it at the peak of the schedule: Adam moves each parameter by its rate.
    chosen = options(
        epochs=1,
        batch_size=64,
        learning_rate=1e-4,
        weight_decay=0.5,
        warmup=0.0,
        strength_lr=strength_lr,
    )
    result = train(chosen, JatConfig.stones(heads=2), progress=False)
    assert result.steps == 1
    learned = [found for name, found in weights(chosen.output_dir).items() if "strength" in name]
    assert learned and all(found.shape == (3, 1, 2) for found in learned)
    rate = 0.01 if strength_lr is None else strength_lr
    for found in learned:
        torch.testing.assert_close(found.abs(), torch.full_like(found, rate), rtol=0.05, atol=0)
    model = str(Path(chosen.output_dir, "model"))
    found = evaluate(model, "cola", chosen.data_dir, max_length=16, device="cpu", progress=False)
    assert found == result.metrics


def test_stones_are_saved_with_the_silent_tokens_of_the_tokenizer(options: Options) -> None:
    for config, silent in (
        (JatConfig.stones(), (0, 2, 3)),
        (JatConfig(PairGraph(standardize=True)), ()),
    ):
        chosen = options(epochs=1, output_dir=f"{options().output_dir}-{config.graph}")
        result = train(chosen, config, progress=False)
        assert result.config == config.to_dict()
        saved = json.loads(Path(chosen.output_dir, "model", "config.json").read_text())["jat"]
        assert JatConfig.from_dict(saved) == replace(config, excluded_token_ids=silent)


def test_labels_and_jump_heads_are_stored(options: Options) -> None:
    chosen = options(epochs=1)
    train(chosen, JUMP, progress=False)
    config = json.loads(Path(chosen.output_dir, "model", "config.json").read_text())
    assert config["id2label"] == {"0": "unacceptable", "1": "acceptable"}
    assert JatConfig.from_dict(config["jat"]) == JUMP


def test_one_hop_of_weight_one_trains_the_base_model(options: Options, tmp_path: Path) -> None:
    base, same = options(), options(output_dir=str(tmp_path / "same"))
    stock = JatConfig(hop_weights=(1.0,))
    assert train(base, progress=False).metrics == train(same, stock, progress=False).metrics
    assert same_weights(base.output_dir, same.output_dir)


def test_arms_share_first_weights_and_order(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    original = TaskTrainer.training_step

    def step(self: TaskTrainer, model: Any, inputs: Any, items: Any = None) -> torch.Tensor:
        seen.append((inputs["input_ids"].clone(), model.classifier.weight.detach().clone()))
        return original(self, model, inputs, items)

    monkeypatch.setattr(TaskTrainer, "training_step", step)
    train(options(epochs=2, group_by_length=True), progress=False)
    base, seen = seen, []
    train(
        options(epochs=2, group_by_length=True, output_dir=str(tmp_path / "jump")),
        JUMP,
        progress=False,
    )
    assert len(seen) == len(base) == 6
    assert all(torch.equal(one, other) for (one, _), (other, _) in zip(base, seen, strict=True))
    assert torch.equal(base[0][1], seen[0][1])
    assert not torch.equal(base[-1][1], seen[-1][1])


def test_accumulation_counts_each_batch_once(
    options: Options, tmp_path: Path, losses: list[float]
) -> None:
    # Without dropout, 1 x 16 and 2 x 8 are the same step; the loss-scaling trap doubles the second.
    plain = {"epochs": 1, "select_best": False, "max_train_samples": 16}
    model = without_dropout(options().model, tmp_path)
    train(options(model=model, **plain), progress=False)
    whole = losses.copy()
    losses.clear()
    halves = options(
        model=model,
        batch_size=8,
        gradient_accumulation=2,
        output_dir=str(tmp_path / "halves"),
        **plain,
    )
    train(halves, progress=False)
    assert sum(losses) == pytest.approx(sum(whole), rel=1e-5)
    one, other = weights(options().output_dir), weights(halves.output_dir)
    assert all(torch.allclose(one[name], other[name], atol=2e-5) for name in one)


def test_a_loss_that_is_not_finite_stops_the_run(options: Options) -> None:
    chosen = options(learning_rate=1e38)
    with pytest.raises(ValueError, match=r"the training loss became \S+ at step \d"):
        train(chosen, progress=False)
    assert [path.name for path in Path(chosen.output_dir).iterdir()] in ([], ["tensorboard"])


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"task": "colour"}, ValueError, "colour"),
        ({"data_dir": "/nowhere"}, OSError, "/nowhere"),
        ({"model": "/nowhere/model"}, ValueError, "/nowhere/model"),
        ({"mixed_precision": "fp16"}, ValueError, "needs a GPU"),
    ],
)
def test_mistakes_are_one_clear_line(
    options: Options, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    chosen = options(**changes)
    with pytest.raises(error, match=words) as caught:
        train(chosen, progress=False)
    assert "\n" not in str(caught.value)
    assert list(Path(chosen.output_dir).glob("*")) == []


def test_an_output_folder_that_cannot_be_one(options: Options, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="must be a folder one can write to: Not a directory"):
        train(options(output_dir=str(tmp_path / "file" / "run")), progress=False)


def test_a_full_disk_leaves_nothing_half_written(options: Options) -> None:
    resource = pytest.importorskip("resource", reason="limits of file sizes are POSIX")
    chosen = options()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
        with pytest.raises(OSError, match=r"cannot write .*checkpoint-3: ") as caught:
            train(chosen, progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    left = {path.name for path in Path(chosen.output_dir).iterdir()}
    assert left <= {"tensorboard"}  # no checkpoint, no results, no run that would be refused


def test_gradient_checkpointing_and_bf16_change_little(options: Options, tmp_path: Path) -> None:
    plain = train(options(epochs=1), JUMP, progress=False)
    frugal = options(
        epochs=1,
        gradient_checkpointing=True,
        mixed_precision="bf16",
        output_dir=str(tmp_path / "frugal"),
    )
    found = train(frugal, JUMP, progress=False).history[-1]["validation_loss"]
    assert found == pytest.approx(plain.history[-1]["validation_loss"], abs=0.02)


@pytest.mark.parametrize("config", [None, JUMP])
def test_gradient_checkpointing_keeps_graphs(
    config: JatConfig | None, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = []

    def spy() -> object:
        layers.append(None)
        return keep_graphs()

    monkeypatch.setattr("jat_graph.training.trainer.keep_graphs", spy)
    result = train(options(epochs=1, gradient_checkpointing=True), config, progress=False)
    assert (len(layers) >= result.steps) == (config is not None)


def write_lines(path: Path, rows: list[tuple[str, ...]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def test_mnli_is_scored_on_both_dev_sets(options: Options, tmp_path: Path) -> None:
    labels = ("entailment", "neutral", "contradiction")
    rows = [("the book", "a pencil is", labels[n % 3]) for n in range(12)]
    for name in ("train", "dev_matched", "dev_mismatched"):
        write_lines(tmp_path / f"{name}.tsv", [("sentence1", "sentence2", "gold_label"), *rows])
    chosen = options(task="mnli", data_dir=str(tmp_path), epochs=1)
    result = train(chosen, progress=False)
    assert list(result.metrics) == ["validation_matched", "validation_mismatched"]
    assert result.primary == result.metrics["validation_matched"]["accuracy"]
    assert set(result.history[0]) == {
        "step",
        "epoch",
        "loss",
        "validation_matched_loss",
        "validation_matched_accuracy",
    }


def test_a_regression_is_scored_by_correlation(options: Options, tmp_path: Path) -> None:
    rows = [("the book", "not " * (n % 6 + 1), f"{n % 6 * 0.8:.1f}") for n in range(24)]
    for name in ("train", "dev"):
        write_lines(tmp_path / f"{name}.tsv", [("sentence1", "sentence2", "score"), *rows])
    chosen = options(task="STS-B", data_dir=str(tmp_path), epochs=2)
    result = train(chosen, JUMP, progress=False)
    assert result.task == result.options["task"] == "stsb"
    assert set(result.metrics["validation"]) == {"pearson", "spearman"}
    assert -1 <= (result.primary or 0) <= 1
    smoothed = replace(chosen, output_dir=str(tmp_path), trainer={"label_smoothing_factor": 0.1})
    with pytest.raises(ValueError, match=r"leave out label_smoothing_factor, .* of task stsb"):
        train(smoothed, progress=False)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"lr_scheduler_kwargs": {"foo": 1}}, "lr_scheduler_kwargs: .* keyword argument 'foo'"),
        ({"optim": "galore_adamw"}, "You need to install `galore_torch`"),
        ({"report_to": "wandb"}, "requires wandb to be installed"),
    ],
)
def test_what_the_trainer_cannot_do_leaves_the_folder_as_it_was(
    said: dict[str, Any], words: str, options: Options
) -> None:
    chosen = options(epochs=1, trainer=said)
    with pytest.raises((ImportError, ValueError), match=words):
        train(chosen, progress=False)
    assert not Path(chosen.output_dir).exists()


def test_agreement_is_scored_by_number_of_attractors(options: Options) -> None:
    chosen = options(
        task="agreement", data_dir=None, epochs=1, max_train_samples=32, max_eval_samples=24
    )
    metrics = train(chosen, progress=False).metrics
    assert list(metrics) == ["validation", "validation_1", "validation_2", "validation_3"]


def test_cola_from_its_original_files(options: Options, data_dir: Path) -> None:
    chosen = options(
        data_dir=str(data_dir / "glue" / "CoLA"),
        epochs=1,
        max_train_samples=64,
        max_eval_samples=64,
    )
    metrics = train(chosen, JUMP, progress=False).metrics["validation"]
    assert list(metrics) == ["matthews"]


def test_training_and_evaluation_on_each_device(options: Options, device: torch.device) -> None:
    choice = "cpu" if device.type == "cpu" else "auto"
    chosen = options(epochs=1, device=choice, mixed_precision="bf16")
    result = train(chosen, JUMP, progress=False)
    model = str(Path(chosen.output_dir, "model"))
    found = evaluate(
        model,
        "cola",
        chosen.data_dir,
        max_length=16,
        mixed_precision="bf16",
        device=choice,
        progress=False,
    )
    assert result.device == device.type
    assert found == result.metrics


def test_without_a_bar_progress_goes_to_the_log_line_by_line(
    options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "jat_graph"):
        train(options(epochs=2), progress=False)
    lines = [text for text in caplog.messages if text.startswith("step ")]
    pattern = r"step (\d+) of 6: loss [\d.]+, rate [\d.e-]+, \d+:\d\d:\d\d left"
    found = [re.fullmatch(pattern, line) for line in lines]
    assert [match and match[1] for match in found] == ["3", "6"]
    assert lines[-1].endswith("0:00:00 left")
