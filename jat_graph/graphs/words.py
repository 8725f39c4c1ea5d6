"""Graphs of words as graphs of their tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_geometric.data import Data

from jat_graph.attention.external_graphs import edges_of


def token_graph(graph: Data, word_ids: Sequence[int | None]) -> Data:
    r"""Return a graph of words as one of the tokens that a tokenizer cut them into.

    An edge from word u to word v becomes one from each token of u to each of v, and its weight is
    shared among the tokens of u: what reaches a token of v is the mean over u. Tokens of one word
    are not joined, special tokens not at all, and a word that was cut off has no edges.

    Args:
        graph: A graph of n words: ``edge_index`` with rows (source, target), ``edge_weight`` or 1
            each, and ``num_nodes`` n; or as transforms leave it, weights in ``edge_attr`` or all in
            ``adj_t``.
        word_ids: The word of each token, from 0, or None for special tokens, as
            ``encoding.word_ids(i)`` of a tokenizer says.

    Returns:
        ``edge_index`` ``[2, E']``, ``edge_weight`` ``[E']`` and ``num_nodes`` of the tokens, and
        ``token`` ``[L]``, their positions.

    Raises:
        ValueError: If a token is of a word that the graph lacks, or weights do not fit the edges.
    """
    words = [-1 if word is None else word for word in word_ids]
    if max(words, default=-1) >= graph.num_nodes:
        raise ValueError(
            f"graph must have a node for each word, got {graph.num_nodes} for word {max(words)}"
        )
    (source, target), weight = edges_of(graph)
    device = weight.device
    word = torch.tensor(words, device=device)
    order = word.argsort(stable=True)  # special tokens first, then word after word
    size = (word + 1).bincount(minlength=graph.num_nodes + 1)
    first, size = size.cumsum(0)[:-1], size[1:]  # of each word
    copies = size[source] * size[target]
    edge = torch.arange(len(copies), device=device).repeat_interleave(copies)
    number = torch.arange(len(edge), device=device) - (copies.cumsum(0) - copies)[edge]
    across = size[target][edge]
    from_token = order[first[source][edge] + number.div(across, rounding_mode="floor")]
    to_token = order[first[target][edge] + number % across]
    return Data(
        edge_index=torch.stack([from_token, to_token]),
        edge_weight=(weight / size[source])[edge],
        num_nodes=len(words),
        token=torch.arange(len(words), device=device),
    )
