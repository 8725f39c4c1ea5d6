"""What a page shows of texts: a model's heads, those that jump with what their jumps are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from torch import Tensor

from jat_graph.data.reading import attention_heads, check_model, shares_modules
from jat_graph.data.storage import is_jumping
from jat_graph.hf.capture import jumping_heads
from jat_graph.inspection.graphs import StoneLinks
from jat_graph.inspection.selection import EncodedText, Indices, choose_heads, encode_text
from jat_graph.inspection.statistics import layer_statistics
from jat_graph.inspection.text import strongest_jumps
from jat_graph.inspection.tracing import HeadTrace, run_model
from jat_graph.progress import track_progress
from jat_graph.viewer.content import (
    AFTER,
    JUMP_BYTES,
    JUMP_SIZE,
    KINDS,
    MOST_JUMPS,
    HeadContent,
    Links,
    ParsedWords,
    TextContent,
    links_with_room,
    strongest_links,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
    every = groupby(attention_heads(model), lambda pair: pair[0])
    known = {layer: tuple(head for _, head in pairs) for layer, pairs in every}
    chosen, jumping = choose_heads(known, layers, heads, kind=""), enabled_jumps(model)
    encoded = [
        encode_text(model, tokenizer, t if isinstance(t, str) else t.words, tokens, special_tokens)
        for t in texts
    ]
    number = sum(head in jumping.get(layer, ()) for layer, head in chosen)
    kinds = len(chosen) + (len(KINDS) - 1) * number
    most = (
        links_with_room(kinds * sum(len(text.shown) for text in encoded), kinds * len(encoded)),
        min(MOST_JUMPS, JUMP_BYTES // (JUMP_SIZE * max(1, number * len(encoded)))),  # of each head
    )
    return (
        _read_text(model, text, None if isinstance(given, str) else given, chosen, *most)
        for text, given in zip(encoded, texts, strict=True)
    )


def enabled_jumps(model: PreTrainedModel) -> dict[int, tuple[int, ...]]:
    """Return the heads that jump, of each layer with some; none inside jat_graph.disabled."""
    jumping = jumping_heads(model) if is_jumping(model) else {}
    if jumping and shares_modules(model):
        raise ValueError(
            "model must have a module for each layer to show its jumps, got layers that share "
            "one: show it inside jat_graph.disabled"
        )
    return jumping


def _read_text(
    model: PreTrainedModel,
    text: EncodedText,
    parse: ParsedWords | None,
    chosen: Sequence[tuple[int, int]],
    most_links: int,
    most_jumps: int,
) -> TextContent:
    jumps = bool(enabled_jumps(model))
    outputs, captured = run_model(model, text.inputs, attention=True, jumps=jumps)
    layers, heads = {layer.layer: layer for layer in captured}, []
    for layer, head in track_progress(chosen, "heads", len(chosen), transient=True):
        if layer in layers and head in layers[layer].heads:
            trace = HeadTrace(layers[layer].of_head(head))
            heads.append(_jump_head(trace, text, most_links, most_jumps))
        else:
            links = _shown_links(outputs.attentions[layer][0, head], text, most_links)
            heads.append(HeadContent(layer, head, {AFTER: links}))
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
