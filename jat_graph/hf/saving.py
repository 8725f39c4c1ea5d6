"""Say which heads a model has, how, and how strongly; save it with a card that says so."""

from __future__ import annotations

import json
import re
import textwrap
import warnings
from itertools import groupby
from pathlib import Path
from typing import Any

from torch import nn

from jat_graph.attention.heads import neighbours
from jat_graph.files import read_object, write_text
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.modules import model_parts, transformer_of
from jat_graph.hf.state import ADAPTER_NOTE, HEADS_FILE, heads_of, saved_configs

_NO_BREAK = "\u00a0"  # a space that textwrap leaves
CARD_FILE = "README.md"
NOTE = """\
Where `jat_graph.hf` is imported, transformers and sentence-transformers load heads without weights
of their own, too; elsewhere they say "not supported", or load `"sdpa"`, without the heads."""
NOTE_OF_ADAPTER = """\
This loads the base model, attaches the heads and adds the adapter; PEFT alone leaves them out."""
# By which a card is known that may be replaced: whoever writes another one leaves it out.
_MARK = "<!-- written by jat_graph, and replaced by the next save -->"
# Lines of the template that PEFT writes, which nobody has filled in.
_EMPTY = ("# Model Card for Model ID", "[More Information Needed]")
_TEXT = """\
---
library_name: {library}
tags:
- jat_graph
- jump-self-attention
---

# {title}

```text
{summary}
```

## Load it

```python
from transformers import {architecture}

import jat_graph

model = jat_graph.from_pretrained({architecture}, "FOLDER")
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
        folder: Where it was saved. An adapter gets a ``jat_config.json``, and a setting of its own
            by which PEFT warns where it loads the adapter alone; both get a README.md.

    Raises:
        ValueError: If the model has no heads of ours.
    """
    settings, path = _settings(model), Path(folder, CARD_FILE)
    adapter = Path(folder, "adapter_config.json")
    if adapter.is_file():
        write_text(Path(folder, HEADS_FILE), json.dumps(settings, indent=2) + "\n")
        noted = read_object(adapter, "settings of an adapter") | {ADAPTER_NOTE: settings}
        write_text(adapter, json.dumps(noted, indent=2) + "\n")
    found = path.read_text(encoding="utf-8", errors="replace") if path.exists() else _MARK
    if _MARK in found or all(line in found for line in _EMPTY):
        write_text(path, model_card_text(model, adapter=adapter.is_file()))


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
    settings, base = _settings(model), transformer_of(model)
    name, what = type(base).__name__, "An adapter of PEFT for a " if adapter else "A "
    return _TEXT.format(
        library="peft" if adapter else "transformers",
        title=f"{what}{name} with heads of jat_graph",
        summary=summary(base),
        architecture=name,
        note=NOTE_OF_ADAPTER if adapter else NOTE,
        settings=json.dumps(settings, indent=2),
        mark=_MARK,
    )


def _settings(model: nn.Module) -> dict[str, Any]:
    """Return the settings of a model's heads, by kind."""
    attachment, name = find_attachment(model), type(model).__name__
    if attachment is None:
        raise ValueError(f"model must have heads of jat_graph to save, got a {name}")
    return {kind.name: config.to_dict() for kind, config in attachment.configs.items()}


def summary(model: nn.Module) -> str:
    """Say which layers and heads of a model jump, how, and with which strengths.

    Args:
        model: A model of transformers, or a wrapper around it, with heads of ours or without.

    Returns:
        A line on the model, and one for each layer with such heads, or for several alike. A model
        whose configuration has settings of heads that it lacks is warned of.

    Example:
        >>> import jat_graph
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model, jat_graph.JatConfig.paper(layers=(2, 5), threshold=4.0))
        >>> print(jat_graph.summary(model))
        BertModel has heads of jat_graph
          layers 2, 5: jump heads 0-3 of 4: pairs, threshold 4, hop weights (0, 1)
    """
    attachment, name = find_attachment(model), type(model).__name__
    if attachment is None:
        warn_of_unused_settings(model)
        return f"{name} has no jump heads"
    found: dict[int, list[str]] = {}
    for module in model.modules():
        for heads in heads_of(module):
            which = f"{heads.word} heads {_numbers(heads.heads)} of {heads.num_heads}"
            found.setdefault(heads.index, []).append(f"{which}: {heads.describe(module)}")
    layers = {index: "; ".join(lines) for index, lines in sorted(found.items())}
    off = "" if attachment.enabled else " (switched off)"
    lines = [f"{name} has heads of jat_graph{off}"]
    wrapper = textwrap.TextWrapper(
        80, "  ", 4 * " ", break_on_hyphens=False, break_long_words=False
    )
    for line, alike in groupby(layers, key=layers.__getitem__):
        indices = tuple(alike)
        row = f"layer{'s' if len(indices) > 1 else ''} {_numbers(indices)}: {line}"
        # Spaces within brackets are none that a line may break at.
        row = re.sub(r"\([^()]*\)", lambda found: found[0].replace(" ", _NO_BREAK), row)
        lines += wrapper.wrap(row)
    return "\n".join(lines).replace(_NO_BREAK, " ")


def warn_of_unused_settings(model: nn.Module) -> None:
    """Warn of a model that was loaded without the heads that its configuration is about."""
    part = next((part for part in model_parts(model) if saved_configs(part.config)), None)
    if part is not None and find_attachment(model) is None:
        warnings.warn(
            f"{type(part).__name__} was saved with heads of jat_graph, and runs without "
            "them: jat_graph.from_pretrained loads them",
            stacklevel=3,
        )


def _numbers(indices: tuple[int, ...]) -> str:
    """Return indices in rising order as few ranges: ``0-3, 6``."""
    runs = neighbours(indices)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
