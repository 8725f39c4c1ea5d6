"""Clusters as PyG graphs: which cluster a token joined, the keys it names, and what is read."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch, HeteroData
from torch_geometric.utils import coalesce

from jat_graph.adjacency.clusters import best_keys, choose_clusters
from jat_graph.adjacency.scores import score_dtype
from jat_graph.attention.clustered import document_tokens
from jat_graph.checks.tensors import check_heads, check_scale, clean_padding
from jat_graph.config import JatConfig, check_config
from jat_graph.graph_config import ClusterGraph, ClusterRule
from jat_graph.masks.tokens import resolve_mask


def cluster_graph(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    scale: float | None = None,
) -> Batch:
    r"""Return what clusters choose in every sequence and head as a PyG batch.

    A graph has nodes of two types and edges of three: a ``"token"`` joined a ``"cluster"``, a
    cluster names its best keys, and a token reads some keys exactly. All that clustered attention
    needs is in it; :class:`jat_graph.nn.ClusterConv` is that attention as message passing.
    ``graph["token", "joined", "cluster"].edge_index`` is what ``HypergraphConv`` takes: its
    propagation is P, the mean over clusters. ``graph["token", "read_by", "token"].edge_index`` has
    rows (source k, target i), as :func:`attention_graph` has, for any layer of PyG.

    ``dense_below`` and ``propagate`` play no part: the graph is what clusters choose, at any
    length.

    Args:
        query, key, scale: As for :func:`attention_graph`.
        config: The settings, with a :class:`jat_graph.ClusterGraph`; every head given gets a graph.
        attention_mask: Bool (True = attend) or additive, ``[B, L]`` or ``[B|1, 1, L, L]``; of
            padding, or of documents that see themselves alone, each of which gets graphs of its
            own. (default: None)

    Returns:
        ``B · H`` ``HeteroData`` of n tokens, the valid ones in their order, and m clusters that
        somebody joined; sequence by sequence, and document by document. Scores are of centred keys:
        k̄, the mean key, is subtracted, which softmax does not see.

        - ``["token"]``: ``position`` ``[n]`` in its row, ``key`` ``[n, D]``, centred;
        - ``["cluster"]``: ``query`` ``[m, D]``, its mean query times the scale: the products with
          ``key`` are its row of scores;
        - ``["token", "joined", "cluster"]``: ``edge_index`` ``[2, n]``, and ``likeness`` ``[n]``,
          the cosine of the token's row of scores and the cluster's, both less the mean row;
        - ``["cluster", "best", "token"]``: ``edge_index`` ``[2, m · keys]``, and ``score``
          ``[m · keys]``, what the cluster scores these keys;
        - ``["token", "read_by", "token"]``: ``edge_index`` ``[2, E]``, from the key that is read to
          the token that reads it, and ``score`` ``[E]``, exact;
        - the graph itself: ``sequence`` and ``head``, in the batch ``[B · H]`` each.

        Gradients flow through ``key``, ``query`` and ``score``; what is chosen is constant.

    Raises:
        ValueError: If a shape, a value, the mask or the config does not fit.

    Reference:
        This library's own; "improved clustered attention" of Vyas, Katharopoulos and Fleuret,
        *Fast Transformers with Clustered Attention*, NeurIPS 2020, chooses keys in the same way.

    Example:
        >>> import jat_graph, torch
        >>> query, key = torch.randn(2, 1, 4, 100, 8)  # each [B, H, L, D]
        >>> config = jat_graph.JatConfig.clustered(clusters=10, keys=4, block=8)
        >>> graphs = jat_graph.cluster_graph(query, key, config=config)
        >>> graphs.num_graphs, graphs[0]["token"].num_nodes, graphs[0]["best"].score.numel()
        (4, 100, 40)
    """
    check_config(config)
    if not isinstance(config.graph, ClusterGraph):
        other = {"pairs": "attention_graph", "stones": "stone_graph"}[config.graph.kind]
        raise ValueError(f"graph must be 'clusters' here, got {config.graph.kind!r}; use {other}")
    check_heads(query, key)
    scale = check_scale(scale, query.size(-1))
    groups = config.graph.rules(query.size(1))
    rules = {head: rule.settled() for rule, heads in groups.items() for head in heads}
    mask = resolve_mask(attention_mask, False, query)
    both, graphs = clean_padding(mask.valid, query=query, key=key), []
    query, key = (x.to(score_dtype(query, key)) for x in both)
    for sequence, tokens in document_tokens(mask, query):
        for head, rule in sorted(rules.items()):
            own = sequence, head, tokens
            graph = _head_graph(query[own], key[own], rule, scale)
            graph["token"].position = tokens
            graph.sequence, graph.head = sequence, head
            graphs.append(graph)
    return Batch.from_data_list(graphs)


def _head_graph(query: Tensor, key: Tensor, rule: ClusterRule, scale: float) -> HeteroData:
    """Return the graph of one head on a sequence without padding, ``[n, D]``."""
    length, joined = len(query), torch.zeros(len(query), dtype=torch.long, device=query.device)
    centres = query[:0]
    if length:
        key = key - key.mean(0)
        own = choose_clusters(query[None], key[None], rule.clusters)
        joined, centres = own[0][0], own[1][0]
        used, joined = torch.unique(joined, return_inverse=True)
        centres = centres[used]
    rows = (centres * scale) @ key.mT  # [m, n]
    with torch.no_grad():
        (best,), _ = best_keys((centres * scale)[None], key[None], min(rule.keys or 0, length))
    read = _read_pairs(joined, best, rule.block)
    clusters = torch.arange(len(best), device=key.device).repeat_interleave(best.size(1))
    tokens = torch.arange(length, device=key.device)
    graph = HeteroData()
    graph["token"].num_nodes, graph["token"].key = length, key
    graph["cluster"].num_nodes, graph["cluster"].query = len(centres), centres * scale
    graph["token", "joined", "cluster"].edge_index = torch.stack([tokens, joined])
    graph["token", "joined", "cluster"].likeness = _likeness(query, key, centres, joined)
    graph["cluster", "best", "token"].edge_index = torch.stack([clusters, best.flatten()])
    graph["cluster", "best", "token"].score = rows.gather(1, best).flatten()
    graph["token", "read_by", "token"].edge_index = read
    graph["token", "read_by", "token"].score = (query[read[1]] * key[read[0]]).sum(-1) * scale
    return graph


def _read_pairs(joined: Tensor, best: Tensor, block: int) -> Tensor:  # rows (key, token), [2, E]
    """Return the keys in the three blocks around each token, and those its cluster names."""
    token = torch.arange(len(joined), device=joined.device).unsqueeze(1)
    block = min(block, len(joined))
    around = torch.arange(-block, 2 * block, device=token.device)
    near = token // max(block, 1) * block + around  # [n, 3 · block]
    keys = torch.cat([near, best[joined]], 1)
    pairs = torch.stack([keys, token.expand_as(keys)])[:, (keys >= 0) & (keys < len(joined))]
    read: Tensor = coalesce(pairs, num_nodes=len(joined), sort_by_row=False)
    return read


@torch.no_grad()
def _likeness(query: Tensor, key: Tensor, centres: Tensor, joined: Tensor) -> Tensor:  # [n]
    """Return the cosine of each token's row of scores and its cluster's, less the mean row."""
    mean = query.sum(0) / max(len(query), 1)
    query, centres = query - mean, (centres - mean)[joined]
    covariance = key.mT @ key
    towards = query @ covariance
    norms = (towards * query).sum(-1) * (centres @ covariance * centres).sum(-1)
    return (towards * centres).sum(-1) / norms.sqrt().clamp(min=1e-12)
