"""What a page shows of a text: a model's heads, those that jump with what their jumps are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from jat_graph.data.reading import Head, attention_heads, check_model
from jat_graph.hf import CapturedLayer, capture_scores
from jat_graph.hf.capture import jumping_heads
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.modules import attention_modules, serves_several_layers
from jat_graph.inspection.calibration import graph_densities
from jat_graph.inspection.choice import Indices, choose_heads, choose_tokens
from jat_graph.inspection.edges import strongest_edges
from jat_graph.inspection.graphs import StoneLinks
from jat_graph.inspection.reading import check_length, readable
from jat_graph.inspection.tracing import (
    HeadTrace,
    attention_of,
    evaluating,
    giving_attention,
    model_inputs,
)
from jat_graph.progress import watched
from jat_graph.viewer.content import (
    AFTER,
    BEFORE,
    DIFFERENCE,
    GRAPH,
    HeadContent,
    Links,
    PageJump,
    PageStone,
    ParsedWords,
    TextContent,
)
from jat_graph.viewer.links import jumps_with_room, links_with_room, strongest_links

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MOST_STONES = 8  # of a jump


@dataclass(frozen=True)
class ShownText:
    """A text as tokens, and those of them that are shown."""

    title: str
    inputs: Any
    names: tuple[str, ...]
    shown: tuple[int, ...]
    parse: ParsedWords | None


@dataclass(frozen=True)
class HeadReader:
    """A model, its tokenizer, and what of heads and texts is shown."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    heads: tuple[Head, ...]
    tokens: range | None = None
    special_tokens: bool = False

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        layers: Indices,
        heads: Indices,
        tokens: range | None,
        special_tokens: bool,
    ) -> HeadReader:
        """Refuse heads that a model lacks."""
        check_model(model)
        known: dict[int, tuple[int, ...]] = {}
        for layer, head in attention_heads(model):
            known[layer] = (*known.get(layer, ()), head)
        chosen = choose_heads(known, layers, heads, kind="")
        return cls(model, tokenizer, chosen, tokens, special_tokens)

    def encode(self, text: str | Sequence[str], parse: ParsedWords | None = None) -> ShownText:
        """Cut a text, or words, into tokens, and refuse what the model does not take whole."""
        title = text if isinstance(text, str) else " ".join(text)
        if not title.strip():
            raise ValueError(f"text must not be empty, got {title!r}")
        own = text if isinstance(text, str) else list(text)
        inputs = self.tokenizer(
            own,
            is_split_into_words=not isinstance(text, str),
            return_special_tokens_mask=True,
            return_tensors="pt",
            verbose=False,
        )
        special = inputs.pop("special_tokens_mask")[0].bool().tolist()
        check_length(self.model, self.tokenizer, len(special))
        span = choose_tokens(self.tokens, len(special))
        shown = tuple(n for n in span if self.special_tokens or not special[n])
        if not shown:
            raise ValueError("tokens must not all be special, unless special tokens are shown")
        ids = inputs["input_ids"][0].tolist()
        names = self.tokenizer.convert_ids_to_tokens(ids)
        if parse is not None:
            words = [-1 if word is None else word for word in inputs.word_ids(0)]
            parse = replace(parse, tokens=tuple(words[n] for n in shown))
        spoken = tuple(readable(self.tokenizer, name) for name in names)
        return ShownText(title, inputs, spoken, shown, parse)

    def read(self, texts: Sequence[ShownText]) -> Iterator[TextContent]:
        """Run the model on one text after the other; all of them together fit the file."""
        jumping = self.jumping()
        number = sum(head in jumping.get(layer, ()) for layer, head in self.heads)
        kinds = len(self.heads) + 3 * number
        links = links_with_room(kinds * sum(len(t.shown) for t in texts), kinds * len(texts))
        jumps = jumps_with_room(number * len(texts))
        for text in texts:
            yield self._content(text, links, jumps)

    def jumping(self) -> dict[int, tuple[int, ...]]:
        """The heads that jump, of each layer that has some; none inside jat_graph.disabled."""
        attachment = find_attachment(self.model)
        jumping = jumping_heads(self.model)
        if attachment is None or not attachment.enabled or not jumping:
            return {}
        if serves_several_layers(
            [entry for entry in attention_modules(self.model) if entry.left_alone is None]
        ):
            raise ValueError(
                "model must have a module for each layer to show its jumps, got layers that share "
                "one: show it inside jat_graph.disabled"
            )
        return jumping

    def _content(self, text: ShownText, links: int, jumps: int) -> TextContent:
        rows, layers = run_heads(self.model, text.inputs, bool(self.jumping()))
        heads = []
        for layer, head in watched(self.heads, "heads", len(self.heads), transient=True):
            own = layers.get(layer)
            if own is None or head not in own.heads:
                shown = {AFTER: _links(rows[layer][0, head], text, links)}
                heads.append(HeadContent(layer, head, shown))
            else:
                trace = HeadTrace(own.of_head(head))
                heads.append(_jump_head(layer, head, trace, text, links, jumps))
        tokens = tuple(text.names[n] for n in text.shown)
        return TextContent(text.title, tokens, tuple(heads), text.shown, text.parse)


def run_heads(
    model: PreTrainedModel, inputs: Any, jumps: bool
) -> tuple[tuple[Tensor, ...], dict[int, CapturedLayer]]:
    """Run a model: the attention probabilities of all layers, and what its jump heads saw."""
    shows = giving_attention(model)
    captures: Any = capture_scores(model) if jumps else nullcontext([])
    with evaluating(model), shows, torch.no_grad(), captures as layers:
        outputs = model(**model_inputs(model, inputs), output_attentions=True)
    return attention_of(outputs), {layer.layer: layer for layer in layers}


def _links(matrix: Tensor, text: ShownText, most: int) -> Links:
    """Return the strongest links between shown tokens, those hidden counted."""
    shown = list(text.shown)
    others = sorted(set(range(len(matrix))) - set(shown))
    matrix = matrix.detach().cpu().float()
    return strongest_links(matrix[shown][:, shown + others], most, len(shown))


def _jump_head(
    layer: int, head: int, trace: HeadTrace, text: ShownText, links: int, jumps: int
) -> HeadContent:
    matrices = {
        AFTER: trace.after,
        BEFORE: trace.before,
        DIFFERENCE: trace.after - trace.before,
        GRAPH: trace.weights,
    }
    return HeadContent(
        layer,
        head,
        {kind: _links(matrix, text, links) for kind, matrix in matrices.items()},
        *_jumps(trace, text, jumps),
        _note(trace),
    )


def _note(trace: HeadTrace) -> str:
    (measured,) = graph_densities(trace.layer, trace.graph)
    share = f"{100 * measured.density:.1f} %"
    if isinstance(trace.graph, StoneLinks):
        return f"Of the links that tokens may have to stones there are {share}."
    return f"Of the pairs that may be joined {share} are."


def _jumps(trace: HeadTrace, text: ShownText, most: int) -> tuple[tuple[PageJump, ...], int]:
    """Return the edges with the largest gains, and how many edges there are."""
    shown = list(text.shown)
    gains, weights = (m[shown][:, shown] for m in (trace.after - trace.before, trace.weights))
    edges = strongest_edges(gains, weights, most).tolist()
    found = tuple(_jump(trace, text, i, k) for i, k in edges)
    return found, int(weights.count_nonzero())


def _jump(trace: HeadTrace, text: ShownText, i: int, k: int) -> PageJump:
    query, key = text.shown[i], text.shown[k]
    votes = trace.graph.votes(query, key)
    places = {position: place for place, position in enumerate(text.shown)}
    stones = tuple(PageStone(places[vote.key], *vote[1:]) for vote in votes if vote.key in places)[
        :MOST_STONES
    ]
    weight, before, after = (
        float(m[query, key]) for m in (trace.weights, trace.before, trace.after)
    )
    return PageJump(i, k, weight, before, after, stones, len(votes) - len(stones))
