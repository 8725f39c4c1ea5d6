"""Save a model with heads of ours, and say beside it which they are, and how to load it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from jat_graph.files import write_text
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.loading import HEADS_FILE
from jat_graph.hf.modules import transformer_of
from jat_graph.hf.reporting import summary

if TYPE_CHECKING:
    pass

CARD_FILE = "README.md"
NOTE = """\
Once `jat_graph.hf` is imported, `from_pretrained` of transformers, its pipelines and
sentence-transformers load it, too, if its heads have no weights of their own. Where it is not
imported, its attention is "not supported". `attn_implementation="sdpa"` loads the weights without
the heads."""
ADAPTER_NOTE = """\
This loads the base model, attaches the heads and adds the adapter. Loaded by PEFT alone the adapter
sits on a model without the heads, and says other things."""
TAGS = ("jat_graph", "jump-self-attention")

# By which a card is known that may be replaced: whoever writes another one leaves it out.
_MARK = "<!-- written by jat_graph, and replaced by the next save -->"
# Lines of the template that PEFT writes, which nobody has filled in.
_EMPTY = ("# Model Card for Model ID", "[More Information Needed]")
_TEXT = """\
---
{header}
---

# {title}

```text
{summary}
```

## Load it

```python
{loading}
```

{note}

## Settings

```json
{settings}
```

{mark}
"""


def save_pretrained(model: nn.Module, folder: str | Path, **kwargs: Any) -> None:
    """Save a model or an adapter of PEFT, its heads and a README.md about them.

    A model says in its own config.json which heads it has, whoever saves it. An adapter does not:
    saved by PEFT alone, or by a Trainer, it wants :func:`save_heads` in its folder.

    Args:
        model: A model of transformers with heads of ours, or a PEFT model around one.
        folder: Where to; a README.md that somebody else wrote there stays.
        kwargs: Arguments of the model's own ``save_pretrained``.

    Raises:
        ValueError: If the model has no heads of ours.

    Example:
        >>> import jat_graph
        >>> from tempfile import TemporaryDirectory
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model, jat_graph.JatConfig())
        >>> with TemporaryDirectory() as folder:
        ...     jat_graph.save_pretrained(model, folder)
        ...     loaded = jat_graph.from_pretrained(BertModel, folder)
    """
    _settings(model)
    saver: Any = model
    saver.save_pretrained(str(folder), **kwargs)
    if kwargs.get("is_main_process", True):
        save_heads(model, folder)


def save_heads(model: nn.Module, folder: str | Path) -> None:
    """Write beside a saved model or adapter which heads it has; a Trainer's callback may call it.

    Args:
        model: A model of transformers with heads of ours, or a PEFT model around one.
        folder: Where it was saved. An adapter gets a ``jat_config.json``, and both a README.md.

    Raises:
        ValueError: If the model has no heads of ours.
    """
    settings, path = _settings(model), Path(folder, CARD_FILE)
    adapter = Path(folder, "adapter_config.json").is_file()
    if adapter:
        write_text(Path(folder, HEADS_FILE), json.dumps(settings, indent=2) + "\n")
    found = path.read_text(encoding="utf-8", errors="replace") if path.exists() else _MARK
    if _MARK in found or all(line in found for line in _EMPTY):
        write_text(path, model_card_text(model, adapter=adapter))


def model_card_text(model: nn.Module, *, adapter: bool = False) -> str:
    """Return a README.md for a saved model: its heads, how to load it, and their settings.

    Args:
        model: A model of transformers with heads of ours, or a PEFT model around one.
        adapter: Whether an adapter of PEFT is saved, and not the model. (default: False)

    Returns:
        Markdown, with what the Hub reads at its top.

    Raises:
        ValueError: If the model has no heads of ours.
    """
    settings, architecture = _settings(model), type(transformer_of(model)).__name__
    what = f"{architecture} with heads of jat_graph"
    return _TEXT.format(
        header=header(library_name="peft" if adapter else "transformers"),
        title=f"An adapter of PEFT for a {what}" if adapter else f"A {what}",
        summary=summary(transformer_of(model)),
        loading=loading(architecture),
        note=ADAPTER_NOTE if adapter else NOTE,
        settings=settings_text(settings),
        mark=_MARK,
    )


def header(*, jumps: bool = True, library_name: str = "transformers", **known: Any) -> str:
    """Return what the Hub reads at the top of a card."""
    from huggingface_hub import ModelCardData

    tags = list(TAGS) if jumps else []
    text: str = ModelCardData(library_name=library_name, tags=tags, **known).to_yaml()
    return text.strip()


def loading(architecture: str, *, jumps: bool = True) -> str:
    """Return the lines that load a model of some class of transformers."""
    imports = f"from transformers import {architecture}\n\n"
    if not jumps:
        return f'{imports}model = {architecture}.from_pretrained("FOLDER")'
    call = f'model = jat_graph.from_pretrained({architecture}, "FOLDER")'
    return f"{imports}import jat_graph\n\n{call}"


def settings_text(settings: Any) -> str:
    """Return settings as a card shows them."""
    return json.dumps(settings, indent=2)


def _settings(model: nn.Module) -> dict[str, Any]:
    """Return the settings of a model's heads, by kind."""
    attachment = find_attachment(model)
    if attachment is None:
        raise ValueError(
            f"model must have heads of jat_graph to save, got a {type(model).__name__}"
        )
    return {kind.name: config.to_dict() for kind, config in attachment.configs.items()}
