"""The classifier and the tokenizer that a run starts from."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks import Task
from jat_graph.training.storage import reason

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


def load_tokenizer(path: str, max_length: int) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model.

    Args:
        path: Folder or Hub name.
        max_length: Tokens wanted per sequence.

    Returns:
        The tokenizer; one without a padding token pads with its end token, as GPT-2 users do.

    Raises:
        ValueError: If there is none, if it cannot pad, or if the model takes fewer tokens.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, **_offline(path))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"no tokenizer for model {path!r}: {reason(error)}") from None
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError(f"the tokenizer of model {path!r} has no padding and no end token")
        tokenizer.pad_token = tokenizer.eos_token
    if max_length > tokenizer.model_max_length:
        raise ValueError(
            f"max_length must be at most {tokenizer.model_max_length} for model {path!r}, "
            f"got {max_length}"
        )
    return tokenizer


def load_config(path: str) -> PreTrainedConfig:
    """Load a model's configuration.

    Args:
        path: Folder or Hub name.

    Returns:
        The configuration.

    Raises:
        ValueError: If there is no model, in one line that names it.
    """
    from transformers import AutoConfig

    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(path, **_offline(path))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"model must be a folder or a Hub name to load, got {path!r}: {reason(error)}"
        ) from None
    return config


def has_jump_heads(config: PreTrainedConfig) -> bool:
    """Tell whether a model was saved with jump heads.

    Args:
        config: The model's configuration.

    Returns:
        True if it was.
    """
    return getattr(config, "jat", None) is not None


def load_for_training(path: str, task: Task, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Load a pretrained model with a new classification head for a task.

    The head is drawn from torch's global generator: seed it first. A head that the folder
    already has is kept if it fits the task.

    Args:
        path: Folder or Hub name; a folder saved with jump heads keeps them.
        task: The task, whose labels the model's configuration gets.
        tokenizer: The model's tokenizer.

    Returns:
        The model.

    Raises:
        ValueError: If there is no such model, or its weights do not fit its configuration.
    """
    config = load_config(path)
    for name, value in (_label_settings(task) | {"pad_token_id": tokenizer.pad_token_id}).items():
        setattr(config, name, value)
    return _load(path, config)


def load_trained(path: str, task: Task) -> PreTrainedModel:
    """Load a classifier that was trained for a task.

    Args:
        path: Folder or Hub name.
        task: The task.

    Returns:
        The model, with its jump heads if it was saved with some.

    Raises:
        ValueError: If there is no such model, it is no classifier, or its labels are not the
            task's.
    """
    config = load_config(path)
    names = config.architectures or ["a model without architecture"]
    if not names[0].endswith("ForSequenceClassification"):
        raise ValueError(
            f"model {path!r} must be a trained classifier (train it first), got {names[0]}"
        )
    wanted = 1 if task.labels is None else len(task.labels)
    if config.num_labels != wanted:
        raise ValueError(
            f"model {path!r} must have {wanted} labels for task {task.name}, "
            f"got {config.num_labels}"
        )
    return _load(path, config)


def _label_settings(task: Task) -> dict[str, Any]:
    """Return what a model's configuration says about a task's labels."""
    if task.labels is None:
        return {"num_labels": 1, "problem_type": "regression"}
    return {
        "num_labels": len(task.labels),
        "problem_type": "single_label_classification",
        "id2label": dict(enumerate(task.labels)),
        "label2id": {label: i for i, label in enumerate(task.labels)},
    }


def _load(path: str, config: PreTrainedConfig) -> PreTrainedModel:
    """Load a classifier; a new head is expected, a new body is not."""
    from safetensors import SafetensorError
    from transformers import AutoModelForSequenceClassification

    from jat_graph.hf import from_pretrained

    load: Callable[..., Any] = partial(from_pretrained, AutoModelForSequenceClassification)
    if not has_jump_heads(config):
        load = AutoModelForSequenceClassification.from_pretrained
    try:
        model, found = load(
            path,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **_offline(path),
        )
    except (OSError, KeyError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"model {path!r} cannot be loaded: {reason(error)}") from error
    _check_body(path, model.base_model_prefix, found)
    loaded: PreTrainedModel = model
    return loaded


def _check_body(path: str, prefix: str, found: dict[str, Any]) -> None:
    """Refuse weights of another shape below the head, and name those that are new."""
    misfits = sorted(key for key, *_ in found["mismatched_keys"] if key.startswith(f"{prefix}."))
    if misfits:
        raise ValueError(f"model {path!r} has weights of another shape: {misfits[0]}")
    new = sorted(key for key in found["missing_keys"] if key.startswith(f"{prefix}."))
    if new:
        logger.warning("model %r lacks weights, which start random: %s", path, ", ".join(new))


def _offline(path: str) -> dict[str, Any]:
    """Return the argument that keeps the loader of a local folder off the network."""
    return {"local_files_only": True} if Path(path).is_dir() else {}
