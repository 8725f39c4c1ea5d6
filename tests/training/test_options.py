"""Options: every bad value is named, and a fingerprint tells runs apart."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from jat_graph.config import JatConfig
from jat_graph.hf import TripletConfig
from jat_graph.training.heads import BothHeads
from jat_graph.training.options import TrainingOptions

PLAIN = TrainingOptions(model="some/model", task="cola", output_dir="runs")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("model", "", "model must be a name or a path, got ''"),
        ("task", 3, "task must be a name"),
        ("output_dir", None, "output_dir must be a name or a path, got None"),
        ("epochs", 0, "epochs must be a positive integer, got 0"),
        ("epochs", True, "epochs must be a positive integer, got True"),
        ("batch_size", 1.5, "batch_size must be a positive integer, got 1.5"),
        ("max_train_samples", 0, "max_train_samples must be a positive integer"),
        ("save_steps", -1, "save_steps must be a positive integer"),
        ("seed", -1, "seed must be an integer from 0"),
        ("learning_rate", 0, "learning_rate must be above 0"),
        ("learning_rate", float("nan"), "learning_rate must be a finite number"),
        ("weight_decay", "much", "weight_decay must be a finite number"),
        ("warmup", 1.0, "warmup must be a share below 1, got 1.0"),
        ("stride", 0, "stride must be a positive integer, got 0"),
        ("eval_batch_size", 0, "eval_batch_size must be a positive integer, got 0"),
        ("attention_dropout", 1.0, "attention_dropout must be a share below 1, got 1.0"),
        ("attention_dropout", "none", "attention_dropout must be a finite number"),
        ("from_scratch", 1, "from_scratch must be True or False, got 1"),
        ("mixed_precision", "fp8", "must be one of no, auto, bf16, fp16, got 'fp8'"),
        ("device", "cuda", "device must be one of auto, cpu, got 'cuda'"),
        ("held_out", 1.0, "held_out must be a share below 1, got 1.0"),
        ("held_out", -0.1, "held_out must be a finite number of at least 0, got -0.1"),
        ("held_out", None, "held_out must be a finite number of at least 0, got None"),
        ("depth", 0, "depth must be a positive integer, got 0"),
        ("depth", "-1", "depth must be a positive integer, got '-1'"),
        ("fully_sharded", 2, "fully_sharded must be True or False, got 2"),
        ("resume", "yes", "resume must be True or False, got 'yes'"),
        ("trainer", ["cosine"], r"trainer must be settings by name, got \['cosine'\]"),
        ("trainer", {"max_grad_nrm": 1}, "TrainingArguments, got 'max_grad_nrm'"),
        ("trainer", {"max_grad": 1}, "TrainingArguments, got 'max_grad'"),
        ("trainer", {"max_grad_norm": "high"}, "trainer: max_grad_norm got 'high': invalid float"),
        ("trainer", {"max_grad_norm": "nan"}, "trainer: max_grad_norm got 'nan': Out of range"),
        ("trainer", {"max_steps": 1.5}, "trainer: max_steps got 1.5: invalid int value"),
        ("trainer", {"lr_scheduler_type": "cosin"}, "got 'cosin': invalid choice: .* .?cosine"),
        ("trainer", {"lr_scheduler_kwargs": "{a"}, "trainer: lr_scheduler_kwargs got '{a': Expect"),
        ("trainer", {"report_to": ["a", "b"]}, r"report_to must be one value, got \['a', 'b'\]"),
        ("trainer", {"output_dir": "x"}, "trainer must leave output_dir to the option output_dir"),
        ("trainer", {"data_seed": 1}, "trainer must leave data_seed to the option seed"),
        ("trainer", {"bf16": True}, "trainer must leave bf16 to the option mixed_precision"),
        *(
            (
                "trainer",
                {"eval_accumulation_steps": few},
                f"must be a positive integer, got '{few}'",
            )
            for few in ("0", "-1")
        ),
        ("strength_lr", -0.1, "strength_lr must be a finite number of at least 0, got -0.1"),
        ("trainer", {"label_names": ["x"]}, "trainer must leave out label_names: all examples are"),
    ],
)
def test_bad_values_are_one_clear_line(name: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        replace(PLAIN, **{name: value})
    assert "\n" not in str(caught.value)


def test_options_survive_json() -> None:
    assert TrainingOptions(**json.loads(json.dumps(PLAIN.to_dict()))) == PLAIN


def test_arguments_of_the_trainer_are_read_in_their_types() -> None:
    said = {
        "max_grad_norm": "0.5",
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr": 1e-6},
        "torch_compile": "false",
        "adam_beta2": 1,
        "include_for_metrics": ["loss"],
    }
    options = replace(PLAIN, trainer=said)
    assert options.trainer == said | {
        "max_grad_norm": 0.5,
        "torch_compile": False,
        "adam_beta2": 1.0,
    }
    assert TrainingOptions(**json.loads(json.dumps(options.to_dict()))) == options
    assert hash(options) == hash(PLAIN)
    written = replace(PLAIN, trainer={"lr_scheduler_kwargs": '{"min_lr": 1e-6}'}).trainer
    assert written == {"lr_scheduler_kwargs": {"min_lr": 1e-6}}


def test_what_was_written_before_there_were_further_options_is_the_same() -> None:
    assert not {"trainer", "strength_lr"} & PLAIN.to_dict().keys()
    for rate in (0.0, 0.1):
        said = replace(PLAIN, strength_lr=rate)
        assert TrainingOptions(**json.loads(json.dumps(said.to_dict()))) == said
    assert replace(PLAIN, trainer={}).fingerprint(None) == (
        "b9e1606df51556ec3b3dc66f2ee9eb3a516d5fa00c898068a0248a2662061ce3"
    )


def test_paths_become_text() -> None:
    assert replace(PLAIN, output_dir=Path("runs")) == PLAIN  # type: ignore[arg-type]


def test_only_what_changes_the_result_changes_the_fingerprint() -> None:
    assert replace(PLAIN, output_dir="x", resume=True).fingerprint(None) == PLAIN.fingerprint(None)
    other: dict[str, Any] = {
        "model": "b",
        "task": "rte",
        "data_dir": "x",
        "mixed_precision": "bf16",
        "device": "cpu",
        "select_best": False,
        "gradient_checkpointing": True,
        "group_by_length": True,
        "learning_rate": 1e-3,
        "weight_decay": 0.5,
        "warmup": 0.5,
        "attention_dropout": 0.0,
        "from_scratch": True,
        "held_out": 0.5,
        "fully_sharded": True,
        "trainer": {"max_grad_norm": 0.5},
    }
    names = [f.name for f in fields(PLAIN) if f.name not in ("output_dir", "resume")]
    prints = {replace(PLAIN, **{name: other.get(name, 7)}).fingerprint(None) for name in names} | {
        PLAIN.fingerprint(None),
        PLAIN.fingerprint(JatConfig()),
        PLAIN.fingerprint(TripletConfig()),
        PLAIN.fingerprint(BothHeads(JatConfig(), TripletConfig())),
    }
    assert len(prints) == len(names) + 4


def test_a_folder_is_the_same_by_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    absolute, relative = replace(PLAIN, model=str(tmp_path / "m")), replace(PLAIN, model="m")
    assert absolute.fingerprint(None) == relative.fingerprint(None)


def test_evaluation_takes_as_many_tokens_at_any_length() -> None:
    sizes = {128: 64, 512: 16, 4096: 2, 16384: 1}
    for length, size in sizes.items():
        assert replace(PLAIN, max_length=length).sequences_per_evaluation == size
    assert replace(PLAIN, max_length=4096, eval_batch_size=5).sequences_per_evaluation == 5
