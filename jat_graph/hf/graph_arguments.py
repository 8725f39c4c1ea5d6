"""Graphs from outside on their way to the layers of a model, as an argument of its forward, too."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import layers_around, layers_get
from jat_graph.hf.state import GRAPHS, Attachment, heads_of
from jat_graph.jumps.external_graphs import found_graph, has_edges


@contextmanager
def hand_graphs(
    attachment: Attachment | None, model: nn.Module, graphs: Any, word_ids: Any
) -> Iterator[None]:
    """Let the layers of a model hand graphs on to their jump heads, inside the ``with``."""
    config = None if attachment is None else attachment.configs.get(AttachedJumps)
    if attachment is None or config is None or config.jump_graph.kind != "pairs":
        got = "none" if config is None else f"graph={config.jump_graph.kind!r}"
        raise ValueError(f"model must have jump heads on pairs for graphs from outside, got {got}")
    hold_graphs(attachment, None, None)
    if word_ids is not None:
        from jat_graph.graphs.pairs import token_graph  # PyG takes seconds to load

        listed = isinstance(word_ids, list | tuple)
        if not listed or not all(isinstance(own, Sequence) for own in word_ids):
            wanted = "a list for each sequence, as [encoding.word_ids(0)]"
            raise ValueError(f"word_ids must be {wanted}, got {repr(word_ids).splitlines()[0]:.40}")
        words = graphs
        if has_edges(graphs):
            words = graphs.to_data_list() if "ptr" in graphs else [graphs]
        known = isinstance(words, list | tuple)
        if not known or len(words) != len(word_ids):
            wanted = f"graphs of words, one for each sequence ({len(word_ids)})"
            found = len(words) if known else found_graph(words)
            raise ValueError(f"graphs must be {wanted}, got {found}")
        graphs = [token_graph(*pair) for pair in zip(words, word_ids, strict=True)]
    previous = (attachment.graphs, attachment.graphs_thread)
    thread = threading.get_ident()
    if previous[1] not in (None, thread):  # one thread is inside, and may go deeper
        raise ValueError("using_graphs must be left before another thread enters, got two in it")
    layers = layers_around(model, [module for module in model.modules() if heads_of(module)])
    attachment.graphs, attachment.graphs_thread = graphs, thread
    try:
        with layers_get(layers, GRAPHS, graphs):
            yield
    finally:
        attachment.graphs, attachment.graphs_thread = previous


def take_graphs(
    attachment: Attachment, module: nn.Module, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Take graphs out of the arguments of a model, which would swallow them, for its layers."""
    rest = {name: value for name, value in kwargs.items() if name not in ("graphs", "word_ids")}
    if kwargs["graphs"] is not None:
        context = hand_graphs(attachment, module, kwargs["graphs"], kwargs.get("word_ids"))
        hold_graphs(attachment, module, context)
    return args, rest


@torch.compiler.disable  # type: ignore[untyped-decorator]  # hooks that come and go are not traced
def hold_graphs(attachment: Attachment, module: nn.Module | None, context: Any) -> None:
    """Enter a context for the forward of a module, or leave what it has; of None, all."""
    thread = threading.get_ident()
    if context is not None and module is not None:
        context.__enter__()
        attachment.entered[thread, module] = context
        return
    for own, known in list(attachment.entered):
        if own == thread and module in (None, known):
            attachment.entered.pop((own, known)).__exit__(None, None, None)
