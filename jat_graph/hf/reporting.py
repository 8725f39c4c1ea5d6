"""Say which heads of a model jump, how, and how strongly."""

from __future__ import annotations

import re
import textwrap
import warnings
from itertools import groupby

from torch import nn
from transformers import PreTrainedModel

from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.by_name import saved_configs
from jat_graph.hf.describing import numbers
from jat_graph.hf.state import layer_state

WIDTH = 80  # of a terminal
_NO_BREAK = "\u00a0"  # a space that textwrap leaves


def summary(model: nn.Module) -> str:
    """Say which layers and heads of a model jump, how, and with which strengths.

    Args:
        model: A model of transformers, or a wrapper around it, with heads of ours or without.

    Returns:
        A line on the model, and one for each layer with such heads; neighbours that are alike
        share one. Lines are broken at 80 characters. A model without heads whose configuration has
        settings for some is warned of.

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
        warn_of_silent_settings(model)
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
        kept = re.sub(r"\([^()]*\)", lambda found: found[0].replace(" ", _NO_BREAK), row)
        rows += textwrap.wrap(
            kept,
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    return "\n".join(rows).replace(_NO_BREAK, " ")


def warn_of_silent_settings(model: nn.Module) -> None:
    """Warn of a model that was loaded without the heads that its configuration is about."""
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and saved_configs(part.config):
            if find_attachment(model) is None:
                warnings.warn(
                    f"{type(part).__name__} was saved with heads of jat_graph, and runs without "
                    "them: jat_graph.from_pretrained loads them",
                    stacklevel=3,
                )
            return
