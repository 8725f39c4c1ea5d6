"""Trees over the keys of heads as PyG graphs, and what tokens that descend them read."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch, HeteroData

from jat_graph.clusters.api import document_tokens
from jat_graph.clusters.attend import choose
from jat_graph.clusters.choice import Choice, Nodes, Rule
from jat_graph.clusters.naive import Read
from jat_graph.clusters.tree import FAN, SINKS, cluster_of_keys
from jat_graph.core.masks import resolve_mask
from jat_graph.core.numbers import check_flag
from jat_graph.core.tensors import check_heads, check_layout, check_scale, clean_padding
from jat_graph.jumps.adjacency.scores import score_dtype
from jat_graph.jumps.config import JatConfig, check_config


def tree_graph(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Batch:
    r"""Return the tree over the keys of every sequence and head, and what tokens read of it.

    Near keys form clusters, near clusters form groups, and so on; a token opens the best groups,
    reads the keys of the best clusters in them, and takes the mean of each node that it did not
    open. All nodes of the tree have the type ``"cluster"``, so that texts of any length have the
    same types of nodes and edges, and fit into one batch.
    :class:`jat_graph.nn.ClusterConv` is this attention as message passing.

    Queries may be those of the last T tokens alone. For what token i alone reads in causal order,
    give ``query[:, :, i : i + 1]`` and ``key[:, :, : i + 1]``. ``dense_below`` plays no part: the
    graph is what tokens choose, at any length.

    Args:
        query: Queries ``[B, H, T, D]`` of the last T ≤ L tokens.
        key: Keys ``[B, Hkv, L, D]``, each for H / Hkv neighbouring heads of queries.
        config: The settings, with a :class:`jat_graph.ClusterGraph`; every head given gets a graph.
        attention_mask: Of all L tokens: bool (True = attend) or additive, ``[B, L]`` or
            ``[B|1, 1, L, L]``; of padding, or of documents that see themselves alone, each of which
            gets graphs of its own. (default: None)
        is_causal: Tokens read what comes before them, and themselves. (default: False)
        scale: Factor of the scores. (default: None, which means 1/√D)

    Returns:
        ``B · H`` ``HeteroData`` of n tokens, the valid ones in their order, and m nodes of the
        tree; sequence by sequence, and document by document.

        - ``["token"]``: ``position`` ``[n]`` in its row, ``key`` ``[n, D]``;
        - ``["cluster"]``: ``level`` ``[m]``, 0 for clusters of keys and 1 for groups of these,
          ``size`` ``[m]``, how many keys it has, and ``key`` ``[m, D]``, their mean;
        - ``["token", "in", "cluster"]``, ``["cluster", "in", "cluster"]``: from child to parent;
        - ``["cluster", "opened_by", "token"]``: nodes of which a token reads the children, or the
          keys, and their ``score``;
        - ``["token", "read_by", "token"]``: keys that a token reads exactly, their ``score``, and
          ``weight``, the share of the token's attention;
        - ``["cluster", "read_by", "token"]``: the same of nodes that stand for their keys; their
          score is that of the mean key, and the logarithm of the size;
        - the graph itself: ``sequence`` and ``head``, in the batch ``[B · H]`` each.

        Gradients flow through ``key``, ``score`` and ``weight``; what is chosen is constant.

    Raises:
        ValueError: If a shape, a value, the mask or the config does not fit.

    Reference:
        This library's own; means of far nodes as in Barnes and Hut, *A hierarchical O(N log N)
        force-calculation algorithm*, 1986, opened by score in place of distance.

    Example:
        >>> import jat_graph, torch
        >>> query, key = torch.randn(1, 4, 600, 8), torch.randn(1, 2, 600, 8)
        >>> graph = jat_graph.tree_graph(query, key, config=jat_graph.JatConfig.clustered())[0]
        >>> graph["token"].num_nodes, graph["cluster"].size[graph["cluster"].level == 0].sum()
        (600, tensor(592))
    """
    check_config(config)
    check_flag("is_causal", is_causal)
    for name, heads in (("query", query), ("key", key)):
        check_layout(name, heads)
    first = key.size(2) - query.size(2)
    check_heads(query, key[:, :, max(first, 0) :], grouped=True)
    scale = check_scale(scale, query.size(-1))
    rules = dict[int, Rule]()
    mask = resolve_mask(attention_mask, is_causal, key)
    for own, members in config.cluster_graph.rules(query.size(1), mask.causal).items():
        rules |= dict.fromkeys(members, own._replace(dense_below=0))
    valid = None if mask.valid is None else mask.valid[..., first:]
    (query,) = clean_padding(valid, query=query)
    (key,) = clean_padding(mask.valid, key=key)
    query, key = (x.to(score_dtype(query, key)) for x in (query, key))
    graphs = []
    for sequence, tokens in document_tokens(mask, key, mask.causal):
        asked = tokens[tokens >= first] - first
        for head, rule in sorted(rules.items()):
            shared = key[sequence, head * key.size(1) // query.size(1), tokens]
            graph = _head_graph(query[sequence, head, asked], shared, rule, scale)
            graph["token"].position = tokens
            graph.sequence, graph.head = sequence, head
            graphs.append(graph)
    return Batch.from_data_list(graphs)


def _head_graph(query: Tensor, key: Tensor, rule: Rule, scale: float) -> HeteroData:
    """Return the graph of one head on a sequence without padding, [T, D] and [n, D]."""
    query, keys = query[None], key[None]
    choice = choose(query, keys, rule, scale)
    nodes = Nodes.of(choice.tree, keys, keys, rule)
    counts = key.new_tensor([own.size(1) for own in nodes.keys], dtype=torch.long)
    starts = [0, *counts.cumsum(0).tolist()]  # of each level among all nodes
    graph = HeteroData()
    graph["token"].num_nodes = len(key)
    graph["token"].key = key
    graph["cluster"].num_nodes = starts[-1]
    graph["cluster"].level = torch.arange(len(counts), device=key.device).repeat_interleave(counts)
    graph["cluster"].size = choice.tree.size * FAN ** graph["cluster"].level
    graph["cluster"].key = torch.cat([mean[0] for mean in nodes.keys])
    (owner,) = cluster_of_keys(choice.tree)
    steps = torch.arange(len(key), device=key.device)
    graph["token", "in", "cluster"].edge_index = torch.stack([steps[: len(owner)] + SINKS, owner])
    rows = [counts.new_zeros(2, 0)]  # (child, parent) of each level
    for child, parent, number in zip(starts, starts[1:], counts[1:].tolist(), strict=False):
        own = steps[: FAN * number]
        rows.append(torch.stack([own + child, own // FAN + parent]))
    graph["cluster", "in", "cluster"].edge_index = torch.cat(rows, dim=1)
    _add_opened(graph, query[0] * scale, choice, starts)
    _add_read(graph, (query * scale, keys, keys, choice, nodes), starts)
    return graph


def _add_opened(graph: HeteroData, query: Tensor, choice: Choice, starts: list[int]) -> None:
    """Add the nodes that tokens open; the query is scaled."""
    found = [choice.seen.new_zeros(2, 0, dtype=torch.long)]
    for part, start in zip((choice.read[0], *choice.opened[0].unbind(1)), starts, strict=False):
        token, slot = (part >= 0).nonzero(as_tuple=True)
        found.append(torch.stack([part[token, slot] + start, token]))
    node, token = torch.cat(found, dim=1)
    size = graph["cluster"].size[node].to(query)
    store = graph["cluster", "opened_by", "token"]
    store.score = (query[token] * graph["cluster"].key[node]).sum(-1) + size.log()
    store.edge_index = torch.stack([node, token + graph["token"].num_nodes - len(query)])


def _add_read(
    graph: HeteroData, own: tuple[Tensor, Tensor, Tensor, Choice, Nodes], starts: list[int]
) -> None:
    """Add what tokens read: keys, and nodes that stand for others."""
    query, key, _, choice, _ = own
    length = graph["token"].num_nodes
    found = []
    for rows, seen in choice.runs():
        read = Read(*own, rows, seen)
        parts = zip([0, *(length + start for start in starts)], read.sizes, strict=False)
        names = [torch.arange(start, start + size, device=key.device) for start, size in parts]
        scores = read.scores[0, 0]
        weights = scores.softmax(-1)
        row, column = (scores > -torch.inf).nonzero(as_tuple=True)
        target = row + length - query.size(1) + rows.start
        found.append((torch.cat(names)[column], target, scores[row, column], weights[row, column]))
    empty = query.new_zeros(0)
    found.append((empty.long(), empty.long(), empty, empty))  # where nobody reads
    source, target, score, weight = map(torch.cat, zip(*found, strict=True))
    exact = source < length
    for kind, some, less in (("token", exact, 0), ("cluster", ~exact, length)):
        store = graph[kind, "read_by", "token"]
        store.edge_index = torch.stack([source - less, target])[:, some]
        store.score, store.weight = score[some], weight[some]
