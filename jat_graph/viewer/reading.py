"""What a page shows of texts: a model's heads, those that jump with what their jumps are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from jat_graph.data.reading import attention_heads, check_model
from jat_graph.hf import CapturedLayer, capture_scores
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.capture import jumping_heads
from jat_graph.hf.modules import attention_modules, serves_several_layers
from jat_graph.inspection.calibration import layer_statistics
from jat_graph.inspection.graphs import StoneLinks
from jat_graph.inspection.selection import EncodedText, Indices, choose_heads, encode_text
from jat_graph.inspection.text import strongest_jumps
from jat_graph.inspection.tracing import (
    HeadTrace,
    attention_of,
    evaluating,
    giving_attention,
    model_inputs,
)
from jat_graph.progress import track_progress
from jat_graph.viewer.content import (
    AFTER,
    BEFORE,
    DIFFERENCE,
    GRAPH,
    HeadContent,
    Links,
    ParsedWords,
    TextContent,
)
from jat_graph.viewer.links import jumps_with_room, links_with_room, strongest_links

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
    """Run the model on one text after the other; all of them together fit the file.

    What the model lacks or does not take is refused at once.
    """
    check_model(model)
    known: dict[int, tuple[int, ...]] = {}
    for layer, head in attention_heads(model):
        known[layer] = (*known.get(layer, ()), head)
    chosen, jumping = choose_heads(known, layers, heads, kind=""), enabled_jumps(model)
    encoded = [
        encode_text(model, tokenizer, t if isinstance(t, str) else t.words, tokens, special_tokens)
        for t in texts
    ]
    number = sum(head in jumping.get(layer, ()) for layer, head in chosen)
    kinds = len(chosen) + 3 * number
    room = (
        links_with_room(kinds * sum(len(text.shown) for text in encoded), kinds * len(encoded)),
        jumps_with_room(number * len(encoded)),
    )
    return (
        _read_text(model, text, None if isinstance(given, str) else given, chosen, *room)
        for text, given in zip(encoded, texts, strict=True)
    )


def enabled_jumps(model: PreTrainedModel) -> dict[int, tuple[int, ...]]:
    """Return the heads that jump, of each layer with some; none inside jat_graph.disabled."""
    attachment, jumping = find_attachment(model), jumping_heads(model)
    if attachment is None or not attachment.enabled or not jumping:
        return {}
    if serves_several_layers(
        [entry for entry in attention_modules(model) if entry.left_alone is None]
    ):
        raise ValueError(
            "model must have a module for each layer to show its jumps, got layers that share "
            "one: show it inside jat_graph.disabled"
        )
    return jumping


def run_heads(
    model: PreTrainedModel, inputs: Any, jumps: bool
) -> tuple[tuple[Tensor, ...], dict[int, CapturedLayer]]:
    """Run a model: the attention probabilities of all layers, and what its jump heads saw."""
    captures: Any = capture_scores(model) if jumps else nullcontext([])
    with evaluating(model), giving_attention(model), torch.no_grad(), captures as layers:
        outputs = model(**model_inputs(model, inputs), output_attentions=True)
    return attention_of(outputs), {layer.layer: layer for layer in layers}


def _read_text(
    model: PreTrainedModel,
    text: EncodedText,
    parse: ParsedWords | None,
    chosen: Sequence[tuple[int, int]],
    most_links: int,
    most_jumps: int,
) -> TextContent:
    rows, layers = run_heads(model, text.inputs, bool(enabled_jumps(model)))
    heads = []
    for layer, head in track_progress(chosen, "heads", len(chosen), transient=True):
        if layer in layers and head in layers[layer].heads:
            trace = HeadTrace(layers[layer].of_head(head))
            heads.append(_jump_head(trace, text, most_links, most_jumps))
        else:
            links = _shown_links(rows[layer][0, head], text, most_links)
            heads.append(HeadContent(layer, head, {AFTER: links}))
    if parse is not None:
        words = [-1 if word is None else word for word in text.inputs.word_ids(0)]
        parse = replace(parse, tokens=tuple(words[index] for index in text.shown))
    tokens = tuple(token.text for token in text.shown_tokens)
    return TextContent(text.text, tokens, tuple(heads), text.shown, parse)


def _shown_links(matrix: Tensor, text: EncodedText, most: int) -> Links:
    """Return the strongest links between shown tokens, those hidden counted."""
    shown = list(text.shown)
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
    matrices = {
        AFTER: trace.after,
        BEFORE: trace.before,
        DIFFERENCE: trace.after - trace.before,
        GRAPH: trace.weights,
    }
    return HeadContent(
        measured.layer,
        measured.head,
        {kind: _shown_links(matrix, text, most_links) for kind, matrix in matrices.items()},
        tuple(strongest_jumps(text, trace, most_jumps)),
        int(text.cut(trace.weights).count_nonzero()),
        note,
    )
