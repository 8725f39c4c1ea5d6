"""What a page shows of texts: a model's heads, their jumps or clusters, and names for these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.progress import track_progress
from jat_graph.graphs import tree_graph
from jat_graph.hf import CapturedLayer
from jat_graph.hf.capture import heads_by_layer
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import AttachedHeads
from jat_graph.jumps.config import ClusterGraph
from jat_graph.looking.data.reading import attention_heads, check_model, is_jumping, shares_modules
from jat_graph.looking.inspection.clusters import READ_DENSELY, READ_EXACTLY
from jat_graph.looking.inspection.graphs import StoneLinks
from jat_graph.looking.inspection.selection import (
    EncodedText,
    Indices,
    Places,
    choose_heads,
    encode_text,
)
from jat_graph.looking.inspection.statistics import pooled_statistics
from jat_graph.looking.inspection.text import remarks, strongest_jumps
from jat_graph.looking.inspection.tracing import HeadTrace, run_model
from jat_graph.looking.viewer.content import (
    AFTER,
    JUMP_BYTES,
    JUMP_SIZE,
    KINDS,
    MOST_JUMPS,
    MOST_NODES,
    NODE_SIZE,
    HeadContent,
    ParsedWords,
    TextContent,
    TreeContent,
    links_with_room,
    shown_links,
)
from jat_graph.nn.convs import ClusterConv, node_means


def read_texts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[Any],  # strings, or words with their tree, as a treebank's Sentence
    *,
    layers: Indices = None,
    heads: Indices = None,
    tokens: Places = None,
    special_tokens: bool = False,
) -> Iterator[TextContent]:
    """Run the model on one text after the other; what it lacks is refused before."""
    # All texts together fit the file.
    check_model(model)
    jumping = enabled_heads(model)
    clustered = enabled_heads(model, AttachedClusters)
    # Beside heads on clusters nobody gives attention but the heads that are looked into.
    pairs = sorted(jumping + clustered) if clustered else attention_heads(model)
    known: dict[int, tuple[int, ...]] = {}
    for layer, head in pairs:
        known[layer] = (*known.get(layer, ()), head)
    chosen = choose_heads(known, layers, heads, kind="cluster " if clustered else "")
    encoded = [
        encode_text(model, tokenizer, t if isinstance(t, str) else t.words, tokens, special_tokens)
        for t in texts
    ]
    jumps, clusters = (sum(pair in kind for pair in chosen) for kind in (jumping, clustered))
    kinds = len(chosen) + 3 * jumps + 2 * clusters
    most_links = links_with_room(kinds * sum(len(t.shown) for t in encoded), kinds * len(encoded))
    room = JUMP_BYTES // max(1, (jumps + clusters) * len(encoded))  # of a head
    return (
        _read_text(model, text, given, chosen, most_links, room)
        for text, given in zip(encoded, texts, strict=True)
    )


def enabled_heads(
    model: PreTrainedModel, kind: type[AttachedHeads] = AttachedJumps
) -> list[tuple[int, int]]:
    """Return layer and head of all heads of a kind; of none inside jat_graph.disabled."""
    found = heads_by_layer(model, kind) if is_jumping(model) else {}
    if found and shares_modules(model):
        wanted = f"a module for each layer to show its {kind.word}s"
        got = "layers that share one: show it inside jat_graph.disabled"
        raise ValueError(f"model must have {wanted}, got {got}")
    return [(layer, head) for layer, heads in found.items() for head in heads]


def _read_text(
    model: PreTrainedModel,
    text: EncodedText,
    given: Any,
    chosen: Sequence[tuple[int, int]],
    most_links: int,
    room: int,
) -> TextContent:
    kind = AttachedJumps if enabled_heads(model) else None
    clusters = enabled_heads(model, AttachedClusters)
    outputs, captured = run_model(model, text.inputs, attention=not clusters, kind=kind)
    if clusters:
        captured = [*captured, *run_model(model, text.inputs, kind=AttachedClusters)[1]]
    layers = {(layer.layer, head): layer for layer in captured for head in layer.heads}
    heads = []
    for layer, head in track_progress(chosen, "heads", len(chosen), transient=True):
        if (layer, head) not in layers:
            links = shown_links(outputs.attentions[layer][0, head], text, most_links)
            heads.append(HeadContent(layer, head, {AFTER: links}))
            continue
        own = layers[layer, head].of_head(head)
        look = _tree_head if isinstance(own.config.graph, ClusterGraph) else _jump_head
        heads.append(look(own, text, most_links, room))
    positions = tuple(token.index for token in text.shown)
    parse = None
    if not isinstance(given, str):
        words = [-1 if word is None else word for word in text.inputs.word_ids(0)]
        places = tuple(words[index] for index in positions)
        parse = ParsedWords(given.words, given.tags, given.heads, given.relations, places)
    tokens = tuple(token.text for token in text.shown)
    return TextContent(text.text, tokens, tuple(heads), positions, parse)


def _jump_head(layer: CapturedLayer, text: EncodedText, most_links: int, room: int) -> HeadContent:
    trace = HeadTrace(layer)
    (measured,) = pooled_statistics([(layer, trace.graph)])
    share = f"{100 * measured.density:.1f} %"
    note = f"{share} of the possible pairs are joined."
    if isinstance(trace.graph, StoneLinks):
        note = f"{share} of the possible links between tokens and stones exist."
    theta = trace.strengths()
    strengths = [] if theta is None else theta.flatten().tolist()
    note = " ".join([note, *remarks(layer.config, [measured.density], strengths)])
    matrices = trace.after, trace.before, trace.after - trace.before, trace.weights
    links = [shown_links(matrix, text, most_links) for matrix in matrices]
    jumps = tuple(strongest_jumps(text, trace, min(MOST_JUMPS, room // JUMP_SIZE)))
    edges = int(text.cut(trace.weights).count_nonzero())
    by_kind = dict(zip(KINDS, links, strict=True))
    head = measured.layer, measured.head
    return HeadContent(*head, by_kind, jumps, edges, note, change=trace.change)


def _tree_head(layer: CapturedLayer, text: EncodedText, most_links: int, room: int) -> HeadContent:
    """Return what the one head of a layer does, and of each token the nodes of most attention."""
    causal = layer.mask.causal
    length = layer.query.size(2)
    given: Any = {"config": layer.config, "scale": layer.scale, "is_causal": causal}
    graph = tree_graph(layer.query, layer.key, **given)[0]
    size, level = graph["cluster"].size, graph["cluster"].level
    keys = torch.eye(length).to(layer.query)
    attention = ClusterConv()(keys, graph)
    inside = node_means(keys, graph) > 0
    scores = layer.scale * (layer.query @ layer.key.mT)[0, 0]
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
    before = scores.softmax(-1)
    attention = attention if len(size) else before  # or rounding would be seen as a change
    shares = attention @ inside.to(attention).mT
    shown = [token.index for token in text.shown]
    most = min(MOST_NODES, room // (2 * NODE_SIZE * len(shown)), len(size))
    numbers = dict[int, int]()
    parts = list[Any]()
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
    sizes = size[[*numbers]].tolist()
    tree = TreeContent(members, sizes, exact[shown].tolist(), read=parts[0], means=parts[1])
    (rule,) = layer.config.cluster_graph.rules(1, causal, layer.query.device.type)
    few = f" {READ_DENSELY}" * (length <= rule.first) if len(size) else f" {READ_EXACTLY}"
    matrices = (attention, before, attention - before)
    change = (attention - before).abs().sum(-1)
    return HeadContent(
        layer.layer,
        layer.heads[0],
        {k: shown_links(x, text, most_links) for k, x in zip(KINDS, matrices, strict=False)},
        note=f"{100 * float(exact.mean()):.1f} % of the attention is exact.{few}",
        tree=tree,
        change=float(change.mean()) / 2,
    )
