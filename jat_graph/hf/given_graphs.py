"""Run an attached model on graphs from outside: one for each sequence, of its tokens or words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from jat_graph.hf.interface import find_attachment
from jat_graph.hf.jump_layer import JumpLayer

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from jat_graph.attention.given_graphs import Graph

ModelT = TypeVar("ModelT", bound=nn.Module)


@contextmanager
def using_graphs(
    model: ModelT,
    graphs: Graph,
    word_ids: Sequence[Sequence[int | None]] | None = None,
) -> Iterator[ModelT]:
    """Let all jump heads of a model jump along graphs from outside, inside the ``with``.

    Backward belongs inside, too, where gradient checkpointing runs layers again.

    Args:
        model: A model with jump heads on pairs, or a wrapper around it.
        graphs: A for the sequences of the batch, in any form that :func:`jat_graph.jump_attention`
            takes as ``graph``, or a list of a PyG ``Data`` for each.
        word_ids: The word of each token, or None, for each sequence, as ``encoding.word_ids(i)`` of
            a tokenizer says: the graphs are then those of words, with as many nodes as words, a
            list or ``Batch`` of them. :func:`jat_graph.graphs.token_graph` says what becomes of
            their edges. (default: None, nodes are tokens)

    Yields:
        The same model.

    Raises:
        ValueError: If the model has no jump heads on pairs, or the graphs do not fit the words. The
            model's forward raises if they do not fit the tokens, or a causal model would look
            ahead.
    """
    attachment = find_attachment(model)
    config = None if attachment is None else attachment.configs.get(JumpLayer)
    if attachment is None or config is None or config.graph != "pairs":
        got = "none" if config is None else f"graph={config.graph!r}"
        raise ValueError(f"model must have jump heads on pairs for graphs from outside, got {got}")
    previous = attachment.graphs
    attachment.graphs = graphs if word_ids is None else _token_graphs(graphs, word_ids)
    try:
        yield model
    finally:
        attachment.graphs = previous


def _token_graphs(graphs: Any, word_ids: Sequence[Sequence[int | None]]) -> list[Data]:
    graphs = graphs.to_data_list() if hasattr(graphs, "to_data_list") else graphs
    if not isinstance(graphs, list | tuple) or len(graphs) != len(word_ids):
        got = len(graphs) if isinstance(graphs, list | tuple) else type(graphs).__name__
        raise ValueError(
            f"graphs must be one of words for each of {len(word_ids)} sequences, got {got}"
        )
    from jat_graph.graphs.words import token_graph  # PyG takes seconds to load

    return [token_graph(graph, words) for graph, words in zip(graphs, word_ids, strict=True)]
