"""The model that a run starts from, or that is scored."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.training.heads import Heads, kinds_of
from jat_graph.training.objectives.base import Objective
from jat_graph.training.pretrained import has_own_heads, load_config, offline
from jat_graph.training.storage import reason

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

logger = logging.getLogger(__name__)

# Where a model's configuration keeps the tokens of a sequence that it was trained with.
TRAINED_LENGTH = "trained_length"

_WEIGHTS = (".safetensors", ".bin")

# What configurations of transformers call the dropout of attention probabilities.
_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")


def load_for_training(objective: Objective[Any]) -> PreTrainedModel:
    """Load a pretrained model for a task, with a new head, or draw all of its weights.

    New weights are drawn from torch's global generator: seed it first. A head that the folder
    already has is kept if it fits the task. A table of positions that is too short is stretched.
    """
    from jat_graph.hf import change_depth

    options = objective.options
    config = load_config(options.model)
    for name, value in objective.model_settings().items():
        setattr(config, name, value)
    if options.attention_dropout is not None:
        _set_attention_dropout(config, options.model, options.attention_dropout)
    objective.check_config(config)
    if options.from_scratch:
        model = _draw(config, objective)
    else:
        model = _load(config, objective)
    if options.depth is not None:
        change_depth(model, options.depth)
    objective.check_model(model)
    _fit_length(model, objective)
    return model


def trained_length(path: str) -> int | None:
    """The tokens of a sequence in a model's training; None of a model that was not trained here."""
    found: int | None = getattr(load_config(path), TRAINED_LENGTH, None)
    return found


def check_heads(objective: Objective[Any], heads: Heads | None) -> None:
    """Refuse heads that a model has no room for, before its weights and data are read."""
    from jat_graph.hf.trial import try_heads

    options = objective.options
    config = load_config(options.model)
    if heads is not None and not has_own_heads(config):  # which say why they stay alone
        kinds = tuple(kind for kind in kinds_of(heads) if kind is not None)
        try_heads(_auto_class(objective), config, kinds, options.depth)


def load_trained(objective: Objective[Any]) -> PreTrainedModel:
    """Load a model that was trained for a task, with the heads that it was saved with."""
    from transformers.models.auto import modeling_auto

    path = objective.options.model
    config = load_config(path)
    names = config.architectures or ["a model without architecture"]
    if names[0] not in getattr(modeling_auto, objective.architectures).values():
        raise ValueError(
            f"model {path!r} must be a trained {objective.wanted} (train it first), got {names[0]}"
        )
    objective.check_config(config)
    model = _load(config, objective)
    objective.check_model(model)
    limit, wanted = _length(model), objective.options.max_length
    if limit is not None and wanted > limit:
        raise ValueError(f"max_length must be at most {limit} for model {path!r}, got {wanted}")
    return model


def _set_attention_dropout(config: PreTrainedConfig, path: str, rate: float) -> None:
    names = [name for name in _ATTENTION_DROPOUT if hasattr(config, name)]
    if not names:
        raise ValueError(
            f"attention_dropout must be None for model {path!r}, whose configuration has none, "
            f"got {rate}"
        )
    for name in names:
        setattr(config, name, rate)


def _draw(config: PreTrainedConfig, objective: Objective[Any]) -> PreTrainedModel:
    """Draw all weights of a model that is as long as it has to be."""
    path = objective.options.model
    if has_own_heads(config):
        raise ValueError(f"from_scratch needs a model without jump heads, got {path!r}")
    from jat_graph.hf.positions import most_positions

    limit = most_positions(config)
    if limit is not None and limit < objective.options.max_length:
        config.max_position_embeddings = objective.options.max_length
    try:
        model: PreTrainedModel = _auto_class(objective).from_config(config)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"model {path!r} cannot be made: {reason(error)}") from error
    return model


def _fit_length(model: PreTrainedModel, objective: Objective[Any]) -> None:
    """Let model and tokenizer take as many tokens as the run has in a sequence; it is saved."""
    from jat_graph.hf import resize_position_embeddings
    from jat_graph.hf.positions import position_tables

    wanted, limit = objective.options.max_length, _length(model)
    if limit is not None and limit < wanted:
        if not any(position_tables(model)):
            raise ValueError(
                f"max_length must be at most {limit} for model {objective.options.model!r}, which "
                f"has no learned table of positions to stretch, got {wanted}"
            )
        resize_position_embeddings(model, wanted)
    tokenizer = objective.saved_tokenizer
    if tokenizer is not None:
        tokenizer.model_max_length = max(wanted, tokenizer.model_max_length)
    setattr(model.config, TRAINED_LENGTH, wanted)


def _length(model: PreTrainedModel) -> int | None:
    """How many tokens a model takes; None if it has no limit."""
    from jat_graph.hf.positions import most_positions, position_tables

    tables = [table.length for table in position_tables(model)]
    return min(tables) if tables else most_positions(model.config)


def _auto_class(objective: Objective[Any]) -> Any:
    import transformers

    return getattr(transformers, objective.auto_class)


def _load(config: PreTrainedConfig, objective: Objective[Any]) -> PreTrainedModel:
    """Load a model; a new head is expected, a new body is not."""
    from safetensors import SafetensorError

    from jat_graph.hf import from_pretrained

    path, auto_class = objective.options.model, _auto_class(objective)
    if Path(path).is_dir() and not any(file.suffix in _WEIGHTS for file in Path(path).iterdir()):
        raise ValueError(f"model {path!r} has no weights: from_scratch draws them")
    load: Callable[..., Any] = partial(from_pretrained, auto_class)
    if not has_own_heads(config):
        load = auto_class.from_pretrained
    try:
        model, found = load(
            path,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **offline(path),
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
