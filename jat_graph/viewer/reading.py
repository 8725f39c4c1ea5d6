"""What a page shows of texts: a model's heads, with their jumps, or with their clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.config import ClusterGraph
from jat_graph.data.reading import attention_heads, check_model, is_jumping, shares_modules
from jat_graph.hf.capture import cluster_heads, jumping_heads
from jat_graph.inspection.clusters import ClusterTrace
from jat_graph.inspection.graphs import StoneLinks
from jat_graph.inspection.selection import EncodedText, Indices, choose_heads, encode_text
from jat_graph.inspection.statistics import layer_statistics
from jat_graph.inspection.text import strongest_jumps
from jat_graph.inspection.tracing import HeadTrace, run_model
from jat_graph.progress import track_progress
from jat_graph.viewer.content import (
    AFTER,
    CLUSTER_SIZE,
    JUMP_BYTES,
    JUMP_SIZE,
    KEY_SIZE,
    KINDS,
    MOST_JUMPS,
    MOST_KEYS,
    ClusterContent,
    HeadContent,
    Links,
    ParsedWords,
    TextContent,
    links_with_room,
    strongest_links,
)


def read_texts(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str | ParsedWords],
    *,
    layers: Indices = None,
    heads: Indices = None,
    tokens: range | None = None,
    special_tokens: bool = False,
) -> Iterator[TextContent]:
    """Run the model on one text after the other; what it lacks or does not take is refused first.

    All texts together fit the file.
    """
    check_model(model)
    jumping, clustered = enabled_jumps(model), _enabled(model, cluster_heads, "clusters")
    pairs: Iterable[tuple[int, int]] = attention_heads(model)
    if clustered:  # of whose model nobody gives attention but the heads that are looked into
        found = (jumping, clustered)
        pairs = sorted((layer, head) for kind in found for layer in kind for head in kind[layer])
    every = groupby(pairs, lambda pair: pair[0])
    known = {layer: tuple(head for _, head in pairs) for layer, pairs in every}
    chosen = choose_heads(known, layers, heads, kind="cluster " if clustered else "")
    encoded = [
        encode_text(model, tokenizer, t if isinstance(t, str) else t.words, tokens, special_tokens)
        for t in texts
    ]
    jumps, clusters = (
        sum(head in kind.get(layer, ()) for layer, head in chosen) for kind in (jumping, clustered)
    )
    kinds = len(chosen) + 3 * jumps + 2 * clusters
    most_links = links_with_room(kinds * sum(len(t.shown) for t in encoded), kinds * len(encoded))
    room = JUMP_BYTES // max(1, (jumps + clusters) * len(encoded))  # of a head
    return (
        _read_text(model, text, None if isinstance(given, str) else given, chosen, most_links, room)
        for text, given in zip(encoded, texts, strict=True)
    )


def enabled_jumps(model: PreTrainedModel) -> dict[int, tuple[int, ...]]:
    """Return the heads that jump, of each layer with some; none inside jat_graph.disabled."""
    return _enabled(model, jumping_heads, "jumps")


def _enabled(
    model: PreTrainedModel,
    find: Callable[[PreTrainedModel], dict[int, tuple[int, ...]]],
    what: str,  # they show
) -> dict[int, tuple[int, ...]]:
    found = find(model) if is_jumping(model) else {}
    if found and shares_modules(model):
        raise ValueError(
            f"model must have a module for each layer to show its {what}, got layers that share "
            "one: show it inside jat_graph.disabled"
        )
    return found


def _read_text(
    model: PreTrainedModel,
    text: EncodedText,
    parse: ParsedWords | None,
    chosen: Sequence[tuple[int, int]],
    most_links: int,
    room: int,
) -> TextContent:
    jumps, clusters = bool(enabled_jumps(model)), bool(_enabled(model, cluster_heads, "clusters"))
    outputs, captured = run_model(model, text.inputs, attention=not clusters, jumps=jumps)
    if clusters:
        captured = [*captured, *run_model(model, text.inputs, clusters=True)[1]]
    layers = {(layer.layer, head): layer for layer in captured for head in layer.heads}
    heads = []
    for layer, head in track_progress(chosen, "heads", len(chosen), transient=True):
        if (layer, head) not in layers:
            links = _shown_links(outputs.attentions[layer][0, head], text, most_links)
            heads.append(HeadContent(layer, head, {AFTER: links}))
            continue
        own = layers[layer, head].of_head(head)
        if isinstance(own.config.graph, ClusterGraph):
            heads.append(_cluster_head(ClusterTrace.of(own), text, most_links, room))
        else:
            most_jumps = min(MOST_JUMPS, room // JUMP_SIZE)
            heads.append(_jump_head(HeadTrace(own), text, most_links, most_jumps))
    positions = tuple(token.index for token in text.shown)
    if parse is not None:
        words = [-1 if word is None else word for word in text.inputs.word_ids(0)]
        parse = replace(parse, tokens=tuple(words[index] for index in positions))
    tokens = tuple(token.text for token in text.shown)
    return TextContent(text.text, tokens, tuple(heads), positions, parse)


def _shown_links(matrix: Tensor, text: EncodedText, most: int) -> Links:
    """Return the strongest links between shown tokens, those hidden counted."""
    shown = [token.index for token in text.shown]
    others = sorted(set(range(len(matrix))) - set(shown))
    matrix = matrix.detach().cpu().float()
    return strongest_links(matrix[shown][:, shown + others], most, len(shown))


def _jump_head(
    trace: HeadTrace, text: EncodedText, most_links: int, most_jumps: int
) -> HeadContent:
    (measured,) = layer_statistics(trace.layer, trace.graph)
    share = f"{100 * measured.density:.1f} %"
    note = f"Of the pairs that may be joined {share} are."
    if isinstance(trace.graph, StoneLinks):
        note = f"Of the links that tokens may have to stones there are {share}."
    matrices = trace.after, trace.before, trace.after - trace.before, trace.weights
    links = [_shown_links(matrix, text, most_links) for matrix in matrices]
    jumps = tuple(strongest_jumps(text, trace, most_jumps))
    edges = int(text.cut(trace.weights).count_nonzero())
    by_kind = dict(zip(KINDS, links, strict=True))
    return HeadContent(measured.layer, measured.head, by_kind, jumps, edges, note)


def _cluster_head(
    trace: ClusterTrace, text: EncodedText, most_links: int, room: int
) -> HeadContent:
    report = trace.report(text)
    note = (
        f"It has {report.num_clusters} clusters; {100 * report.density:.1f} % of the pairs are "
        f"read exactly, and {100 * report.exact:.1f} % of the attention."
    )
    if report.dense:
        note += " So short a text is read densely: this is what clusters would do."
    matrices = trace.attention, trace.before, trace.attention - trace.before
    links = (_shown_links(matrix, text, most_links) for matrix in matrices)
    rows = {token.index: row for row, token in enumerate(text.shown)}
    of_token = {
        member.token.index: (number, round(member.exact, 2))
        for number, cluster in enumerate(report.clusters)
        for member in cluster.members
    }
    joined, exact = zip(*(of_token[index] for index in rows), strict=True)
    room = (room - CLUSTER_SIZE * len(rows)) // (KEY_SIZE * len(report.clusters))
    most = max(0, min(room, MOST_KEYS))  # keys of a cluster
    shown = [
        tuple((rows[k.token.index], round(k.score, 2)) for k in c.keys if k.token.index in rows)
        for c in report.clusters
    ]
    keys = tuple(own[:most] for own in shown)
    left_out = tuple(len(c.keys) - len(own) for c, own in zip(report.clusters, keys, strict=True))
    sizes = tuple(len(c.members) + c.hidden_members for c in report.clusters)
    clusters = ClusterContent(
        joined, exact, sizes, keys, left_out, list(keys) == shown, report.block
    )
    by_kind = dict(zip(KINDS, links, strict=False))
    return HeadContent(report.layer, report.head, by_kind, note=note, clusters=clusters)
