"""The model that a command looks into, with its tokenizer and the jump heads asked for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.cli.options import read_settings, read_values
from jat_graph.files import check_model_name

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from jat_graph.config import JatConfig

KINDS = ("jat", "triplet", "attention_filter")  # of heads that a model may be saved with


def load_model(
    path: str,
    config: str | None = None,
    changes: list[str] | None = None,
    default: JatConfig | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder or decoder, its tokenizer, and the jump heads of ``--config`` and ``--set``.

    A model that was saved with heads starts from those, another one from ``default``.
    """
    check_model_name(path)
    read_settings(config, None)
    read_values("--set", changes)
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModel, AutoTokenizer
    from transformers.utils import logging

    from jat_graph.config import JatConfig
    from jat_graph.hf import attached_config, from_pretrained
    from jat_graph.hf.adapter import attach_again, learned_by_heads

    offline: dict[str, Any] = {"local_files_only": True} if Path(path).is_dir() else {}
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        saved = AutoConfig.from_pretrained(path, **offline)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"model must be a folder or a Hub name to load, got {path!r}: {_reason(error)}"
        ) from None
    own = getattr(saved, "jat", None)
    # Refused before weights are read.
    wanted = read_settings(config, changes, JatConfig.from_dict(own) if own else default)
    has_heads = any(getattr(saved, kind, None) is not None for kind in KINDS)
    load = partial(from_pretrained, AutoModel) if has_heads else AutoModel.from_pretrained
    try:
        model: PreTrainedModel = load(path, **offline).eval()
        tokenizer = AutoTokenizer.from_pretrained(path, **offline)
    except (OSError, KeyError, RuntimeError, SafetensorError, ValueError) as error:
        raise ValueError(f"model {path!r} cannot be loaded: {_reason(error)}") from None
    # Where a folder has none, transformers makes one up that knows no word.
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        raise ValueError(f"model {path!r} must have a tokenizer, got one without a vocabulary")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    if wanted is not None and wanted != attached_config(model):
        attach_again(model, wanted, learned_by_heads(model), tokenizer)
    return model, tokenizer


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
