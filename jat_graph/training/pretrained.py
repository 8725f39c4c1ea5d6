"""What a pretrained model's folder says of it, and loading without noise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.files import check_model_name
from jat_graph.training.storage import reason

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

# Logger, and words of its messages that are no news to someone who trains:
# a new classification head is new, and checkpoints of one second are sorted by number.
_NOISE = {
    "transformers.modeling_utils": "LOAD REPORT",
    "transformers.trainer_utils": "mtime may not be reliable",
}


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model; one without a padding token pads with its end, as for GPT-2."""
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, **offline(path))
    except (OSError, ValueError, KeyError) as error:
        why = reason(error)
        if why.rstrip().endswith(":"):  # a list of what it may be made from follows
            why = "it has no files of one"
        raise ValueError(f"no tokenizer for model {path!r}: {why}") from None
    # Where a folder has none, transformers makes one up that knows no word.
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        raise ValueError(f"no tokenizer for model {path!r}: it has no vocabulary")
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError(f"the tokenizer of model {path!r} has no padding and no end token")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_config(path: str) -> PreTrainedConfig:
    """The configuration of a model, or one line that says why there is none."""
    check_model_name(path)
    from transformers import AutoConfig

    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(path, **offline(path))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"model must be a folder or a Hub name to load, got {path!r}: {reason(error)}"
        ) from None
    return config


def has_own_heads(config: PreTrainedConfig) -> bool:
    """Whether a model was saved with heads of this library, of whatever kind."""
    from jat_graph.hf.adapter import KINDS

    return any(getattr(config, kind.name, None) is not None for kind in KINDS)


def offline(path: str) -> dict[str, Any]:
    """The argument that keeps the loader of a local folder off the network."""
    return {"local_files_only": True} if Path(path).is_dir() else {}


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the bars that show weights being loaded and saved, and messages that are no news."""
    from transformers.utils import logging as bars

    had_bars = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # type: ignore[no-untyped-call]
    for name in _NOISE:
        logging.getLogger(name).addFilter(_is_news)
    try:
        yield
    finally:
        for name in _NOISE:
            logging.getLogger(name).removeFilter(_is_news)
        if had_bars:
            bars.enable_progress_bar()  # type: ignore[no-untyped-call]


def _is_news(record: logging.LogRecord) -> bool:
    return _NOISE[record.name] not in record.getMessage()
