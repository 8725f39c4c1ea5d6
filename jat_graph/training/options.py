"""What a training run is told: one frozen dataclass, checked once."""

from __future__ import annotations

import hashlib
import json
import math
import os
from argparse import ArgumentError
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.checks.numbers import check_choice, check_flag, is_integer
from jat_graph.training.trainer_names import argument_names

if TYPE_CHECKING:
    from transformers import HfArgumentParser

    from jat_graph.training.heads import Heads

# Where a run is written and how it is started say nothing about its result.
_NOT_IN_FINGERPRINT = ("output_dir", "resume")

# What runs were not told at first: left out where nothing is said, as it was then.
_LATER = ("trainer", "strength_lr")

# Tokens of one batch in evaluation, if nothing else is said: 64 sequences of 128.
_EVAL_TOKENS = 8192

_CHOICES = {"mixed_precision": ("no", "auto", "bf16", "fp16"), "device": ("auto", "cpu")}
_SHARES = ("warmup", "attention_dropout", "held_out")

# With these of the Trainer's arguments examples would go unscored, or nothing could be scored.
_SCORING = (
    *("batch_eval_metrics", "dataloader_drop_last", "eval_do_concat_batches", "label_names"),
    "prediction_loss_only",
)


def _option(default: Any, help_text: str, *trainers: str) -> Any:
    """A field that is an option of ``jat-graph train``, and the Trainer's arguments it settles."""
    return field(default=default, metadata={"help": help_text, "trainers": trainers})


@dataclass(frozen=True)
class TrainingOptions:
    """One training run; the defaults are those of GLUE fine-tuning with BERT.

    Args:
        model: Folder or Hub name of a pretrained model; one saved with jump heads keeps them. With
            ``from_scratch`` a folder with ``config.json`` and a tokenizer is enough.
        task: Name of the task, see :data:`jat_graph.tasks.TASK_NAMES`.
        output_dir: Folder for the run: ``model/``, ``results.json``, ``tensorboard/``, and
            ``checkpoints/`` while it is not finished.
        data_dir: Folder with the task's original files; None loads the task by its name.
            (default: None)
        seed: Seed of new weights, the data order and dropout. (default: 0)
        epochs: Passes over the training data. (default: 5, the paper's)
        batch_size: Sequences per process and step, before accumulation. (default: 32)
        eval_batch_size: Sequences per device in evaluation. (default: None, as many as make 8192
            tokens: 64 of length 128, 2 of length 4096)
        learning_rate: Peak of the schedule, which is linear unless ``trainer`` says otherwise.
            (default: 2e-5)
        weight_decay: Of AdamW. (default: 0.01)
        warmup: Share of the steps in which the learning rate rises, in [0, 1). (default: 0.1)
        max_length: Tokens of a sequence: kept of a text or pair; of a block in language modelling;
            of a window in question answering. A learned table of positions that is shorter is
            stretched. (default: 128)
        stride: Tokens that neighbouring windows of a long context share. (default: 128)
        attention_dropout: Dropout of attention probabilities. On the CPU anything but 0 keeps SDPA
            from its fused kernel: time and memory become quadratic. (default: None, the model's)
        from_scratch: Draw all weights from the seed, by the model's configuration. (default: False)
        mixed_precision: ``"no"``, ``"bf16"``, ``"fp16"``, or ``"auto"``: bf16 where the device
            multiplies in it, else no. (default: "no")
        gradient_checkpointing: Recompute activations in the backward pass. (default: False)
        gradient_accumulation: Batches per optimizer step. (default: 1)
        select_best: Evaluate at every save and keep the weights that are best on the task's primary
            metric. The choice is made on the dev set that is then reported, as papers on GLUE do,
            so scores come out slightly too high. (default: True)
        save_steps: Save a checkpoint every so many optimizer steps; None saves after every epoch.
            (default: None)
        group_by_length: Batch sequences of similar length, which pads less. (default: False)
        max_train_samples: Train on this many, drawn once for all seeds. (default: None, all)
        max_eval_samples: Evaluate on this many of each dev set. (default: None, all)
        held_out: Share of the training data that is evaluated on in place of the dev sets, drawn
            once for all seeds and not trained on: what is chosen by such a run owes nothing to the
            dev sets. (default: 0.0, the dev sets)
        depth: Number of layers: those above are removed, or the top one is copied on top.
            (default: None, the model's)
        fully_sharded: Split weights, gradients and optimizer state over the processes of a run on
            GPUs that ``torchrun`` started (FSDP), where otherwise each has them whole (DDP).
            (default: False)
        device: ``"auto"`` takes the accelerator if there is one, ``"cpu"`` does not.
            (default: "auto")
        resume: Continue what ``output_dir`` holds: a finished run is read, an interrupted one goes
            on from its last checkpoint, and without either the run starts. (default: False)
        trainer: Further arguments of transformers' ``TrainingArguments``, by name, as
            ``{"lr_scheduler_type": "cosine", "max_grad_norm": 0.5}``: all but those that another
            option settles, or that would change what is scored. (default: none)
        strength_lr: Learning rate of learned strengths, where a model has some, with the schedule
            of the rest and without weight decay. (default: None, 100 times ``learning_rate``)

    Raises:
        ValueError: If a field is out of its range; the message names field, wanted and got.

    Reference:
        Devlin et al., *BERT*, NAACL 2019, appendix A.3 (batch 32, learning rate 2e-5, warmup 10 %).
    """

    model: str
    task: str
    output_dir: str = field(metadata={"trainers": ("output_dir",)})
    data_dir: str | None = None
    seed: int = _option(0, "Seed; with --compare the first of --seeds.", "seed", "data_seed")
    epochs: int = _option(5, "Passes over the training data.", "num_train_epochs")
    batch_size: int = _option(32, "Sequences per process and step.", "per_device_train_batch_size")
    eval_batch_size: int | None = _option(
        None,
        "Sequences per batch in evaluation. Default: 8192 tokens.",
        "per_device_eval_batch_size",
    )
    learning_rate: float = _option(2e-5, "Peak learning rate.", "learning_rate")
    weight_decay: float = _option(0.01, "Weight decay.", "weight_decay")
    warmup: float = _option(0.1, "Share of the steps in which the rate rises.", "warmup_steps")
    max_length: int = _option(
        128, "Tokens of a text, pair, block or window; short tables are stretched."
    )
    stride: int = _option(128, "Tokens that windows of a long context share.")
    attention_dropout: float | None = _option(
        None, "0 for long inputs on the CPU. Default: the model's."
    )
    from_scratch: bool = _option(
        False, "Draw all weights; a folder with config.json and tokenizer is enough."
    )
    mixed_precision: str = _option(
        "no", "no, bf16, fp16, or auto: bf16 where it is fast.", "bf16", "fp16"
    )
    gradient_checkpointing: bool = _option(
        False,
        "Less memory, more time.",
        *("gradient_checkpointing", "gradient_checkpointing_kwargs"),
        *("activation_checkpointing", "activation_checkpointing_kwargs"),
    )
    gradient_accumulation: int = _option(
        1, "Batches per optimizer step.", "gradient_accumulation_steps"
    )
    select_best: bool = _option(
        True,
        "Keep the weights best on the dev set.",
        *("eval_strategy", "load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
    )
    save_steps: int | None = _option(
        None,
        "Checkpoint interval. Default: an epoch.",
        *("save_steps", "save_strategy", "eval_steps"),
    )
    group_by_length: bool = _option(
        False, "Batch texts of similar length.", "train_sampling_strategy"
    )
    max_train_samples: int | None = _option(None, "Train on this many texts.")
    max_eval_samples: int | None = _option(None, "Evaluate on this many texts.")
    held_out: float = _option(
        0.0, "Evaluate on this share of the training data, not on the dev sets."
    )
    depth: int | None = _option(None, "Number of layers: upper ones go, or the top one is copied.")
    fully_sharded: bool = _option(
        False,
        "Split weights and gradients over the GPUs that torchrun started.",
        *("fsdp", "fsdp_config"),
    )
    device: str = _option("auto", "auto or cpu.", "use_cpu")
    resume: bool = _option(
        False,
        "Go on with the run in the output folder.",
        *("resume_from_checkpoint", "save_only_model", "ignore_data_skip"),
    )
    trainer: dict[str, Any] = field(
        default_factory=dict,
        hash=False,  # a dict has none
        metadata={"help": "NAME=VALUE of transformers' TrainingArguments; repeat for several."},
    )
    strength_lr: float | None = _option(
        None, "Learning rate of learned strengths. Default: 100 times the other."
    )

    def __post_init__(self) -> None:
        for entry in fields(self):  # an annotation is a text, as "int | None"
            kind, _, none = str(entry.type).partition(" | ")
            value = getattr(self, entry.name)
            if value is not None or not none:
                check = _check_choice if entry.name in _CHOICES else _CHECKS[kind]
                object.__setattr__(self, entry.name, check(entry.name, value))
        if self.learning_rate == 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}")
        for name in _SHARES:
            if (getattr(self, name) or 0) >= 1:
                raise ValueError(f"{name} must be a share below 1, got {getattr(self, name)}")

    @property
    def sequences_per_evaluation(self) -> int:
        """Sequences per device in evaluation."""
        return self.eval_batch_size or max(1, _EVAL_TOKENS // self.max_length)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types.

        Returns:
            A dictionary, without ``trainer`` and ``strength_lr`` where nothing is said there;
            ``TrainingOptions(**d)`` is equal to this.
        """
        described = asdict(self)
        for name in _LATER:
            if described[name] in (None, {}):
                del described[name]
        return described

    def fingerprint(self, config: Heads | None) -> str:
        """Return what two runs share exactly if they must give the same result.

        Args:
            config: The settings of jump or triplet heads, or of both, or None for the base model.

        Returns:
            Hexadecimal digest of the options (less ``output_dir`` and ``resume``) and the config.
        """
        described = {k: v for k, v in self.to_dict().items() if k not in _NOT_IN_FINGERPRINT}
        if Path(self.model).is_dir():
            described["model"] = str(Path(self.model).resolve())
        if self.data_dir is not None:
            described["data_dir"] = str(Path(self.data_dir).resolve())
        described["config"] = None if config is None else config.to_dict()
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _check_choice(name: str, value: Any) -> str:
    return check_choice(name, value, _CHOICES[name])


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise ValueError(f"{name} must be a name or a path, got {value!r}")
    return os.fspath(value)


def _check_count(name: str, value: Any) -> int:
    if name == "seed":
        if not is_integer(value) or not 0 <= value < 2**32:
            raise ValueError(f"seed must be an integer from 0 to 2**32 - 1, got {value!r}")
    elif not is_integer(value) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def _check_rate(name: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    return float(value)


def _check_trainer(name: str, value: Any) -> dict[str, Any]:
    """The Trainer's arguments in its types; text is read as on a command line of its own."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be settings by name, got {value!r}")
    if not value:
        return {}
    _check_names(name, value, argument_names())
    from transformers import HfArgumentParser, TrainingArguments

    _check_names(name, value, frozenset(entry.name for entry in fields(TrainingArguments)))
    parser = HfArgumentParser(
        [TrainingArguments],  # type: ignore[list-item]
        exit_on_error=False,
        allow_abbrev=False,
    )
    return {key: _read(parser, name, key, given) for key, given in value.items()}


def _check_names(name: str, given: Iterable[str], known: frozenset[str]) -> None:
    """Refuse what is none of the Trainer's arguments, if these are known, or not open to users."""
    settled = {
        theirs: entry.name
        for entry in fields(TrainingOptions)
        for theirs in entry.metadata.get("trainers", ())
    }
    for key in given:
        if key in settled:
            raise ValueError(f"{name} must leave {key} to the option {settled[key]}")
        if key in _SCORING:
            raise ValueError(f"{name} must leave out {key}: all examples are scored by the task")
        if known and key not in known:
            raise ValueError(
                f"{name} must name arguments of transformers' TrainingArguments, got {key!r}"
            )


def _read(parser: HfArgumentParser, name: str, key: str, given: Any) -> Any:
    """One of the Trainer's arguments, in a type of JSON."""
    if isinstance(given, list | tuple):
        words = [f"--{key}", *map(str, given)]
    else:
        words = [f"--{key}={json.dumps(given) if isinstance(given, Mapping) else given}"]
    try:
        found, rest = parser.parse_known_args(words)
        text = getattr(found, key)
        value = json.loads(text) if isinstance(text, str) and text.startswith("{") else text
        json.dumps(value, allow_nan=False)
    except (ArgumentError, ValueError) as error:
        why = error.message if isinstance(error, ArgumentError) else error
        raise ValueError(f"{name}: {key} got {given!r}: {why}") from None
    if rest:
        raise ValueError(f"{name}: {key} must be one value, got {given!r}")
    if key == "eval_accumulation_steps" and value < 1:  # by which the Trainer divides
        raise ValueError(f"{name}: {key} must be a positive integer, got {given!r}")
    return value


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "str": _check_text,
    "int": _check_count,
    "float": _check_rate,
    "bool": check_flag,
    "dict[str, Any]": _check_trainer,
}
