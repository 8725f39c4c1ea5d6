"""Say which heads of a model jump, how, and how strongly."""

from __future__ import annotations

import re
import textwrap
from functools import partial
from itertools import groupby

from torch import nn

from jat_graph.hf.interface import find_attachment, layer_state
from jat_graph.hf.wording import numbers

WIDTH = 80  # of a terminal
_NO_BREAK = "\u00a0"  # a space that textwrap leaves
DEEP = 20  # of these ``print(model)`` may leave free before what a module says, in a wrapper too


def summary(model: nn.Module) -> str:
    """Say which layers and heads of a model jump, how, and with which strengths.

    ``print(model)`` says the same at each attention module.

    Args:
        model: A model of transformers, or a wrapper around it, with heads of ours or without.

    Returns:
        A line on the model, and one for each layer with such heads; neighbours that are alike
        share one. Lines are broken at 80 characters.

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
        return f"{name} has no jump heads"
    found: dict[int, list[str]] = {}
    for module in model.modules():
        state = layer_state(module)
        for heads in () if state is None else state.heads:
            found.setdefault(heads.index, []).append(heads.describe(module))
    layers = {index: "; ".join(lines) for index, lines in sorted(found.items())}
    off = "" if attachment.enabled else " (switched off)"
    rows = [f"{name} has heads of jat_graph{off}"]
    for line, alike in groupby(layers, key=layers.__getitem__):
        places = tuple(alike)
        row = f"layer{'s' if len(places) > 1 else ''} {numbers(places)}: {line}"
        rows += _lines(row, WIDTH, "  ")
    return "\n".join(rows)


def _lines(text: str, width: int, margin: str = "") -> list[str]:
    """Break a text into lines that fit, the later ones further in, and no brackets apart."""
    kept = re.sub(r"\([^()]*\)", lambda found: found[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        kept,
        width,
        initial_indent=margin,
        subsequent_indent=f"{margin}  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def show_heads(module: nn.Module) -> None:
    """Let ``print`` say which heads of ours an attention module has, if it has some."""
    state = layer_state(module)
    if state is not None and state.heads:
        vars(module)["extra_repr"] = partial(_extra_repr, module)
    else:
        vars(module).pop("extra_repr", None)


def _extra_repr(module: nn.Module) -> str:
    state = layer_state(module)
    said = [] if state is None else [heads.describe(module) for heads in state.heads]
    own = [line for text in said for line in _lines(text, WIDTH - DEEP)]
    return "\n".join(filter(None, (type(module).extra_repr(module), *own)))
