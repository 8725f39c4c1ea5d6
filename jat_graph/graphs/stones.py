"""Stepping stones as PyG hypergraphs: one graph per sequence and head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from jat_graph.adjacency.stones import StoneIncidence
from jat_graph.checks.tensors import check_heads, check_scale, clean_padding
from jat_graph.config import JatConfig, check_config
from jat_graph.graphs.pairs import node_rows
from jat_graph.masks.tokens import exclude_tokens, resolve_mask


class StoneHypergraph(Data):  # type: ignore[misc]  # PyG is not typed
    """A hypergraph of tokens, its nodes, on stones, its hyperedges; batches number both on."""

    @property
    def num_stones(self) -> int:
        """Number of stones."""
        return len(self.stone)

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        if key == "hyperedge_index":
            return torch.tensor([[self.num_nodes], [self.num_stones]])
        return super().__inc__(key, value, *args, **kwargs)


def stone_graph(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    excluded: Tensor | None = None,
) -> Batch:
    r"""Return how the tokens of every sequence and head stand on stones, as a PyG batch.

    Nodes are the valid tokens in their order, hyperedges the stones that somebody stands on, those
    of unusually high scores first. ``hyperedge_index`` has rows (token, stone), each link the
    weight b in ``hyperedge_weight``. Sums over it give P: :math:`s_j = \sum_i b_{ij}`,
    :math:`d_i = \sum_j b_{ij}` and, for two tokens, :math:`P_{ik} = \frac1{d_i + \varepsilon}
    \sum_j b_{ij} b_{kj} / s_j`. A causal graph has the links of all tokens: for token i the sums
    end at i. PyG's ``to_torch_csr_tensor``, or torch-sparse's ``SparseTensor.from_edge_index``,
    makes B of ``hyperedge_index``, ``hyperedge_weight`` and ``(num_nodes, num_stones)``.

    PyG's ``HypergraphConv`` gives P for hard links and ε = 0. It knows no weights of links: leave
    its ``hyperedge_weight``, a number for each hyperedge, alone.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        config: The settings, with a :class:`jat_graph.StoneGraph`; every head given gets a graph.
        attention_mask: Bool (True = attend) or additive, ``[B, L]`` or ``[B|1, H|1, L, L]``, that
            says which tokens are padding. (default: None)
        is_causal: No token stands on a later one. (default: False)
        scale: Factor of the scores. (default: None, which means 1/√D)
        excluded: Tokens that are never stones, bool ``[B, L]``. (default: None)

    Returns:
        ``B · H`` graphs of n nodes and m stones, sequence by sequence, with ``hyperedge_index``
        ``[2, E]``, ``hyperedge_weight`` ``[E]``, ``num_nodes``, ``num_stones``, ``token`` ``[n]``
        and ``stone`` ``[m]`` (positions in the row of each node and each stone's key), ``side``
        ``[m]`` (1 for stones of unusually high scores, -1 for those of unusually low ones), and, in
        the batch ``[B · H]`` each, ``sequence`` and ``head``. Gradients flow through the weights.

    Raises:
        ValueError: If a shape, a value, the mask or the config does not fit.

    Reference:
        Bai, Zhang and Torr, *Hypergraph Convolution and Hypergraph Attention*, 2021. Stones are
        this library's own.

    Example:
        >>> import jat_graph, torch
        >>> query, key = torch.randn(2, 1, 4, 12, 8)  # each [B, H, L, D]
        >>> graphs = jat_graph.stone_graph(query, key, config=jat_graph.JatConfig.stones())
        >>> graphs.num_graphs, graphs[0].num_nodes
        (4, 12)
        >>> layer = jat_graph.nn.StoneConv(8)
        >>> out = layer(query.view(48, 8), graphs.hyperedge_index, graphs.hyperedge_weight)
    """
    check_config(config)
    if config.jump_graph.kind != "stones":
        raise ValueError("graph must be 'stones' here, got 'pairs'; use attention_graph")
    check_heads(query, key)
    scale = check_scale(scale, query.size(-1))
    mask = exclude_tokens(resolve_mask(attention_mask, is_causal, query), excluded, query)
    query, key = clean_padding(mask.valid, query=query, key=key)
    config.jump_graph.thresholds(query.size(1))
    return _split_graphs(StoneIncidence.of_heads(config, query, key, scale, mask))


def _split_graphs(incidence: StoneIncidence) -> Batch:
    """Cut the links of all sequences and heads into a batch, padding and empty stones taken out."""
    links, source = incidence.links().flatten(0, 1), incidence.source  # [BH, L, m]
    positions, sides = incidence.stones()
    valid, used = node_rows(source, incidence.mask), (links > 0).any(-2)
    graph, row, column = links.nonzero(as_tuple=True)
    token, stone = valid.cumsum(-1) - 1, used.cumsum(-1) - 1
    index = torch.stack([token[graph, row], stone[graph, column]])
    sizes = graph.bincount(minlength=len(links)).tolist()
    edges = index.split_with_sizes(sizes, dim=1)
    weights = links[graph, row, column].split_with_sizes(sizes)
    heads, keys = source.shape[1], positions.flatten(0, 1)
    graphs = [
        StoneHypergraph(
            hyperedge_index=edges[number],
            hyperedge_weight=weights[number],
            num_nodes=int(valid[number].sum()),
            token=valid[number].nonzero().squeeze(-1),
            stone=keys[number, used[number]],
            side=sides[used[number]],
            sequence=number // heads,
            head=number % heads,
        )
        for number in range(len(links))
    ]
    return Batch.from_data_list(graphs)
