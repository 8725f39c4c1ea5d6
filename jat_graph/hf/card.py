"""The README.md beside a model that was saved with heads of ours: which, and how to load it."""

from __future__ import annotations

import json
from functools import wraps
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from jat_graph.files import write_text
from jat_graph.hf.describing import summary
from jat_graph.hf.interface import find_attachment

CARD_FILE = "README.md"
NOTE = """\
Once `jat_graph.hf` is imported, `from_pretrained` of transformers, its pipelines and
sentence-transformers load the model, too. Where it is not, its attention is "not supported".
`attn_implementation="sdpa"` loads the weights without the heads."""

ADAPTER_NOTE = """\
This loads the base model, attaches the heads and adds the adapter. Loaded by PEFT alone the adapter
sits on a model without the heads, and says other things."""
TAGS = ("jat_graph", "jump-self-attention")

# Lines of the template that PEFT writes, which nobody has filled in.
_EMPTY = ("# Model Card for Model ID", "[More Information Needed]")

# By which a card is known that may be replaced: whoever writes another one leaves it out.
_MARK = "<!-- written by save_pretrained, and replaced by the next one -->"
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
_stock: Any = PreTrainedModel.save_pretrained


def header(*, jumps: bool = True, **known: Any) -> str:
    """Return what the Hub reads at the top of a card."""
    from huggingface_hub import ModelCardData

    tags = list(TAGS) if jumps else []
    text: str = ModelCardData(library_name="transformers", tags=tags, **known).to_yaml()
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


def _card(model: PreTrainedModel, settings: dict[str, Any]) -> str:
    architecture = type(model).__name__
    return _TEXT.format(
        header=header(),
        title=f"A {architecture} with heads of jat_graph",
        summary=summary(model),
        loading=loading(architecture),
        note=NOTE,
        settings=settings_text(settings),
        mark=_MARK,
    )


def write_adapter_card(
    folder: str | Path, architecture: str, told: str, settings: dict[str, Any]
) -> None:
    """Say beside an adapter of PEFT which heads it was trained with; what somebody wrote stays."""
    from huggingface_hub import CardData, ModelCard

    path, data = Path(folder, CARD_FILE), CardData(library_name="peft")
    if path.exists():
        found = path.read_text(encoding="utf-8", errors="replace")
        if _MARK not in found and not all(line in found for line in _EMPTY):
            return
        data = ModelCard(found).data
    data["tags"] = sorted({*(data.get("tags") or ()), *TAGS})
    card = _TEXT.format(
        header=data.to_yaml().strip(),
        title=f"An adapter of PEFT for a {architecture} with heads of jat_graph",
        summary=told,
        loading=loading(architecture),
        note=ADAPTER_NOTE,
        settings=settings_text(settings),
        mark=_MARK,
    )
    write_text(path, card)


@wraps(_stock)
def _save_with_card(
    self: PreTrainedModel,
    save_directory: str | Path,
    is_main_process: bool = True,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Stand for ``PreTrainedModel.save_pretrained``: a folder says which heads its model has."""
    saved = _stock(self, save_directory, is_main_process, *args, **kwargs)
    path = Path(save_directory, CARD_FILE)
    ours = not path.exists() or _MARK in path.read_text(encoding="utf-8", errors="replace")
    if not is_main_process or not ours or not path.with_name("config.json").is_file():
        return saved  # of adapters there is no such file
    attachment = find_attachment(self)
    if attachment is None:
        path.unlink(missing_ok=True)
    else:
        named = {kind.name: config.to_dict() for kind, config in attachment.configs.items()}
        write_text(path, _card(self, named))
    return saved


PreTrainedModel.save_pretrained = _save_with_card  # type: ignore[assignment, method-assign]
