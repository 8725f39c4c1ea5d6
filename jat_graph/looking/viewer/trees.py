"""What a page shows of a head whose tokens descend a tree over their keys."""

from __future__ import annotations

from typing import Any

import torch

from jat_graph.graphs import tree_graph
from jat_graph.hf import CapturedLayer
from jat_graph.looking.inspection.clusters import READ_DENSELY, READ_EXACTLY
from jat_graph.looking.inspection.selection import EncodedText
from jat_graph.looking.viewer.content import (
    KINDS,
    MOST_NODES,
    NODE_SIZE,
    HeadContent,
    TreeContent,
    shown_links,
)
from jat_graph.nn.convs import ClusterConv, node_means


def tree_head(layer: CapturedLayer, text: EncodedText, most_links: int, room: int) -> HeadContent:
    """Return what the one head of a layer does, and of each token the nodes of most attention."""
    causal, length = layer.mask.causal, layer.query.size(2)
    given: Any = {"config": layer.config, "scale": layer.scale, "is_causal": causal}
    graph = tree_graph(layer.query, layer.key, **given)[0]
    size, level = graph["cluster"].size, graph["cluster"].level
    keys = torch.eye(length).to(layer.query)
    attention, inside = ClusterConv()(keys, graph), node_means(keys, graph) > 0
    scores = layer.scale * (layer.query @ layer.key.mT)[0, 0]
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
    before = scores.softmax(-1)
    attention = attention if len(size) else before  # or rounding would be seen as a change
    shares, shown = attention @ inside.to(attention).mT, [token.index for token in text.shown]
    most = min(MOST_NODES, room // (2 * NODE_SIZE * len(shown)), len(size))
    numbers, parts = dict[int, int](), list[Any]()
    for kind, own in (("opened_by", level == 0), ("read_by", level >= 0)):
        node, token = graph["cluster", kind, "token"].edge_index
        met = torch.zeros_like(shares).index_put_((token, node), shares[token, node]) * own
        part = list[Any]()
        for row in torch.stack(met[shown].topk(most), -1).tolist():
            heaviest = [(int(n), round(share, 3)) for share, n in row if share > 0]
            part.append([(numbers.setdefault(n, len(numbers)), share) for n, share in heaviest])
        parts.append(part)
    read = graph["token", "read_by", "token"]
    exact = torch.zeros_like(keys[0]).index_add_(0, read.edge_index[1], read.weight.to(keys))
    members = [inside[node, shown].nonzero().flatten().tolist() for node in numbers]
    tree = TreeContent(members, size[[*numbers]].tolist(), exact[shown].tolist(), *parts)
    (rule,) = layer.config.cluster_graph.rules(1, causal)
    few = f" {READ_DENSELY}" * (length <= rule.first) if len(size) else f" {READ_EXACTLY}"
    matrices, change = (attention, before, attention - before), (attention - before).abs().sum(-1)
    return HeadContent(
        layer.layer,
        layer.heads[0],
        {k: shown_links(x, text, most_links) for k, x in zip(KINDS, matrices, strict=False)},
        note=f"{100 * float(exact.mean()):.1f} % of the attention is exact.{few}",
        tree=tree,
        change=float(change.mean()) / 2,
    )
