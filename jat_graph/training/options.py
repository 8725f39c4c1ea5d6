"""What a training run is told: one frozen dataclass, checked once."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from jat_graph.config import JatConfig
from jat_graph.hf.triplet_config import TripletConfig

# Settings of the heads that a run places.
Heads: TypeAlias = JatConfig | TripletConfig

PRECISIONS = ("no", "bf16", "fp16")
DEVICES = ("auto", "cpu")

# Where a run is written and how it is started say nothing about its result.
_NOT_IN_FINGERPRINT = ("output_dir", "resume")

# Tokens of one batch in evaluation, if nothing else is said: 64 sequences of 128.
_EVAL_TOKENS = 8192


_SWITCHES = (
    "from_scratch",
    "gradient_checkpointing",
    "select_best",
    "group_by_length",
    "fully_sharded",
    "resume",
)


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
        learning_rate: Peak of the linear schedule. (default: 2e-5)
        weight_decay: Of AdamW. (default: 0.01)
        warmup: Share of the steps in which the learning rate rises, in [0, 1). (default: 0.1)
        max_length: Tokens of a sequence: kept of a text or pair; of a block in language modelling;
            of a window in question answering. A learned table of positions that is shorter is
            stretched. (default: 128)
        stride: Tokens that neighbouring windows of a long context share. (default: 128)
        attention_dropout: Dropout of attention probabilities. On the CPU anything but 0 keeps SDPA
            from its fused kernel: time and memory become quadratic. (default: None, the model's)
        from_scratch: Draw all weights from the seed, by the model's configuration. (default: False)
        mixed_precision: ``"no"``, ``"bf16"`` or ``"fp16"``. (default: "no")
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

    Raises:
        ValueError: If a field is out of its range; the message names field, wanted and got.

    Reference:
        Devlin et al., *BERT*, NAACL 2019, appendix A.3 (batch 32, learning rate 2e-5, warmup 10 %).
    """

    model: str
    task: str
    output_dir: str
    data_dir: str | None = None
    seed: int = 0
    epochs: int = 5
    batch_size: int = 32
    eval_batch_size: int | None = None
    learning_rate: float = 2e-5
    weight_decay: float = 0.01
    warmup: float = 0.1
    max_length: int = 128
    stride: int = 128
    attention_dropout: float | None = None
    from_scratch: bool = False
    mixed_precision: str = "no"
    gradient_checkpointing: bool = False
    gradient_accumulation: int = 1
    select_best: bool = True
    save_steps: int | None = None
    group_by_length: bool = False
    max_train_samples: int | None = None
    max_eval_samples: int | None = None
    held_out: float = 0.0
    depth: int | None = None
    fully_sharded: bool = False
    device: str = "auto"
    resume: bool = False

    def __post_init__(self) -> None:
        self._check_text()
        self._check_counts()
        self._check_rates()
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")

    @property
    def sequences_per_evaluation(self) -> int:
        """Sequences per device in evaluation."""
        return self.eval_batch_size or max(1, _EVAL_TOKENS // self.max_length)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types.

        Returns:
            A dictionary; ``TrainingOptions(**d)`` is equal to this.
        """
        return asdict(self)

    def fingerprint(self, config: Heads | None) -> str:
        """Return what two runs share exactly if they must give the same result.

        Args:
            config: The settings of jump or triplet heads, or None for the base model.

        Returns:
            Hexadecimal digest of the options (less ``output_dir`` and ``resume``) and the config.
        """
        described = {k: v for k, v in asdict(self).items() if k not in _NOT_IN_FINGERPRINT}
        if Path(self.model).is_dir():
            described["model"] = str(Path(self.model).resolve())
        if self.data_dir is not None:
            described["data_dir"] = str(Path(self.data_dir).resolve())
        described["config"] = None if config is None else config.to_dict()
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def _check_text(self) -> None:
        for name in ("model", "task", "output_dir", "data_dir"):
            value = getattr(self, name)
            if name == "data_dir" and value is None:
                continue
            if not isinstance(value, str | os.PathLike) or not str(value):
                raise ValueError(f"{name} must be a name or a path, got {value!r}")
            object.__setattr__(self, name, os.fspath(value))
        for name, choices in (("mixed_precision", PRECISIONS), ("device", DEVICES)):
            if getattr(self, name) not in choices:
                wanted = ", ".join(choices)
                raise ValueError(f"{name} must be one of {wanted}, got {getattr(self, name)!r}")

    def _check_counts(self) -> None:
        optional = (
            "eval_batch_size",
            "save_steps",
            "max_train_samples",
            "max_eval_samples",
            "depth",
        )
        counts = ("epochs", "batch_size", "max_length", "stride", "gradient_accumulation")
        for name in (*counts, *optional):
            value = getattr(self, name)
            if not (value is None and name in optional) and not (_is_integer(value) and value >= 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if not _is_integer(self.seed) or not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be an integer from 0 to 2**32 - 1, got {self.seed!r}")

    def _check_rates(self) -> None:
        for name in ("learning_rate", "weight_decay", "warmup", "attention_dropout", "held_out"):
            value = getattr(self, name)
            if name == "attention_dropout" and value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
            object.__setattr__(self, name, float(value))
        if self.learning_rate == 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}")
        for name in ("warmup", "attention_dropout", "held_out"):
            if (getattr(self, name) or 0) >= 1:
                raise ValueError(f"{name} must be a share below 1, got {getattr(self, name)}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
