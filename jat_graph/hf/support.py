"""What heads of a kind will do in each attention module of a model, before it reads anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from torch import nn

from jat_graph.hf.adapter import kinds_of
from jat_graph.hf.inputs import window_of
from jat_graph.hf.modules import HeadsByModule, attention_modules, find_attention, transformer_of
from jat_graph.hf.reasons import NO_NAME, WITHIN
from jat_graph.jumps.config import JatConfig, check_config

LEFT_OUT = "the settings leave its layer out"


class LayerSupport(NamedTuple):
    """What heads will do in one attention module.

    Args:
        name: The module's path in the model.
        attention: Its class.
        reads: ``"cluster heads"`` or ``"jump heads"``; ``"SDPA"`` where these leave it alone; or
            ``"its own attention"``, which not even SDPA can take the place of.
        why: Why it has no such heads; None if it has.
    """

    name: str
    attention: str
    reads: str
    why: str | None


def supports(model: nn.Module, config: JatConfig | None = None) -> list[LayerSupport]:
    """Say what heads will do in each attention module of a model, and why; nothing is changed.

    Args:
        model: A model of transformers, or a wrapper around it.
        config: The heads, as :func:`attach` takes them. (default: None, ``JatConfig.clustered()``,
            which also answers for ``attn_implementation="clustered"``)

    Returns:
        One row for each module that computes attention, in ``named_modules`` order; none for a
        model without attention. ``pandas.DataFrame`` makes a table of it.

    Raises:
        ValueError: If there is no model of transformers in it, or it lacks a layer or a head.

    Example:
        >>> import jat_graph
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(num_hidden_layers=1))
        >>> for row in jat_graph.supports(model):
        ...     print(row.name, row.reads)
        encoder.layer.0.attention.self cluster heads
    """
    base = transformer_of(model)
    config = JatConfig.clustered() if config is None else config
    check_config(config)
    (kind,) = kinds_of(type(config.graph))
    found = find_attention(base)
    served = [entry.num_heads for entry in found if entry.left_alone is None]
    if served:
        config.layer_indices(len(served))
    for number in served:
        config.head_indices(number)
    heads: HeadsByModule = {}
    refused = LEFT_OUT
    try:
        heads = kind.in_modules(attention_modules(base), config)
    except ValueError as error:
        refused = str(error)
    rows = []
    for entry in found:
        why = entry.left_alone
        reads = "its own attention" if why in NO_NAME else "SDPA"
        if entry.module in heads:
            reads = f"{kind.word} heads"
        elif why is None:
            within = kind.word == "cluster" and window_of(entry.module) is not None
            why = WITHIN if within else refused
        rows.append(LayerSupport(entry.name, type(entry.module).__name__, reads, why))
    return rows


def support_lines(rows: Iterable[LayerSupport]) -> list[str]:
    """Return a line for all modules of a class that do alike: ``6 BertSelfAttention: SDPA, …``."""
    counts = Counter(row[1:] for row in rows if row.why != LEFT_OUT)
    return [
        f"{count} {attention}: {reads}" + (f", because {why}" if why else "")
        for (attention, reads, why), count in counts.items()
    ]
