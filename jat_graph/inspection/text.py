"""Look at jump heads on one text: density, weights, strongest jumps and their stepping stones."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jat_graph.checks.numbers import check_integer
from jat_graph.hf import attached_config
from jat_graph.hf.capture import jumping_heads
from jat_graph.inspection.calibration import layer_statistics
from jat_graph.inspection.graphs import StoneLinks
from jat_graph.inspection.reports import (
    GraphView,
    HeadReport,
    HeadView,
    Inspection,
    Jump,
    Link,
    SteppingStone,
    Stone,
    StoneReport,
)
from jat_graph.inspection.selection import (
    EncodedText,
    Indices,
    choose_heads,
    encode_text,
    strongest_edges,
)
from jat_graph.inspection.tracing import HeadTrace, capture_batch
from jat_graph.progress import track_progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def inspect_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    layers: Indices = None,
    heads: Indices = None,
    tokens: range | None = None,
    top: int = 5,
    special_tokens: bool = False,
) -> Inspection:
    """Report what jump heads do on a text.

    A jump is an edge (i, k) of a head's graph, its gain the attention probability of i to k after
    propagation minus the one before. Both directions of a pair are jumps of their own. Heads are
    looked at one after the other, so that the matrices of one are in memory at a time.

    Args:
        model: A model with jump heads.
        tokenizer: Its tokenizer.
        text: One text that the model can take whole.
        layers: The layers to look at, from 0: one, or several. (default: None, all that jump)
        heads: The heads to look at, from 0: one, or several. (default: None, all that jump)
        tokens: The positions between which jumps are reported, as ``range(40, 90)``. Numbers of
            heads are those of the whole text all the same. (default: None, all)
        top: Number of jumps to report for each head, by gain, and of stones, by the share of walks
            that go over them. (default: 5)
        special_tokens: Show jumps from, to and through special tokens, too. (default: False)

    Returns:
        The report.

    Raises:
        ValueError: If the model has no jump heads, or not those asked for, the text is empty, too
            long, or lacks the tokens, or ``top`` is below 0. The model is not run then.

    Reference:
        Zhou et al. 2022, Section 3: *computer* and *pencil* joined through *book*.

    Example:
        >>> import jat_graph
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] dogs bark at cats".split()
        >>> tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> config = jat_graph.JatConfig.paper(vote_rate=0.05, layers=(2,))
        >>> model = jat_graph.attach(model.eval(), config)
        >>> found = jat_graph.inspection.inspect_text(model, tokenizer, "dogs bark at cats")
        >>> [(head.layer, head.head) for head in found.heads]
        [(2, 0), (2, 1), (2, 2), (2, 3)]
    """
    check_integer("top", top, least=0)
    chosen = _jump_heads(model, layers, heads)
    encoded = encode_text(model, tokenizer, text, tokens, special_tokens)
    reports = tuple(
        _report_head(encoded, trace, top, top) for trace in _traces(model, encoded, chosen)
    )
    config = attached_config(model)
    assert config is not None
    return Inspection(text, encoded.tokens, config, reports)


def view_head(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    layer: int,
    head: int,
    tokens: range | None = None,
    top: int = 5,
    special_tokens: bool = False,
) -> HeadView:
    """Return one jump head's scores, graph and propagated scores on a text.

    Args:
        model: A model with jump heads.
        tokenizer: Its tokenizer.
        text: One text that the model can take whole.
        layer: A layer that jumps, from 0.
        head: A head that jumps, from 0.
        tokens: The positions to show, as ``range(40, 90)``. (default: None, all)
        top: Number of jumps to mark, by gain. (default: 5)
        special_tokens: Show special tokens, too. (default: False)

    Returns:
        The matrices over the shown tokens, and the head's report.

    Shapes:
        - ``scores``, ``weights``, ``propagated``, ``gains``: ``[L, L]``

    Raises:
        ValueError: If this head of this layer does not jump, or as :func:`inspect_text` does.

    Reference:
        X of Eq. 1, A of Eq. 3 and the propagated scores of Eq. 9 of the JAT paper.
    """
    check_integer("top", top, least=0)
    chosen = _jump_heads(model, layer, head)
    encoded = encode_text(model, tokenizer, text, tokens, special_tokens)
    (trace,) = _traces(model, encoded, chosen)
    report = _report_head(encoded, trace, top, None)
    matrices = trace.weights, trace.scores, trace.propagated, trace.after - trace.before
    return HeadView(
        report, encoded.shown_tokens, *(encoded.cut(matrix).cpu() for matrix in matrices)
    )


def view_graphs(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    layers: Indices = None,
    heads: Indices = None,
    tokens: range | None = None,
    special_tokens: bool = False,
) -> Iterator[GraphView]:
    """Return the graphs of jump heads on a text, made one after the other.

    Args:
        model: A model with jump heads.
        tokenizer: Its tokenizer.
        text: One text that the model can take whole.
        layers: The layers to look at, from 0: one, or several. (default: None, all that jump)
        heads: The heads to look at, from 0: one, or several. (default: None, all that jump)
        tokens: The positions to show, as ``range(40, 90)``. (default: None, all)
        special_tokens: Show special tokens, too. (default: False)

    Returns:
        An iterator over the heads, layer by layer; the model runs when the first is asked for.

    Raises:
        ValueError: As :func:`inspect_text` does, at once.

    Reference:
        A of Eq. 3 of the JAT paper.

    Example:
        >>> import jat_graph
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] dogs bark at cats".split()
        >>> tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model.eval(), jat_graph.JatConfig.stones(), tokenizer)
        >>> view_graphs = jat_graph.inspection.view_graphs
        >>> graphs = view_graphs(model, tokenizer, "dogs bark at cats", heads=3)
        >>> [(graph.report.layer, list(graph.weights.shape)) for graph in graphs][:2]
        [(0, [4, 4]), (1, [4, 4])]
    """
    chosen = _jump_heads(model, layers, heads)
    encoded = encode_text(model, tokenizer, text, tokens, special_tokens)
    return (
        GraphView(
            _report_head(encoded, trace, 0, 0),
            encoded.shown_tokens,
            encoded.cut(trace.weights).cpu(),
        )
        for trace in _traces(model, encoded, chosen)
    )


def _jump_heads(
    model: PreTrainedModel, layers: Indices, heads: Indices
) -> tuple[tuple[int, int], ...]:
    if attached_config(model) is None:
        raise ValueError("model must have jump heads, got none: attach them first")
    return choose_heads(jumping_heads(model), layers, heads)


def _traces(
    model: PreTrainedModel, encoded: EncodedText, heads: tuple[tuple[int, int], ...]
) -> Iterator[HeadTrace]:
    """Run the model, and yield what one head after the other did."""
    layers = {layer.layer: layer for layer in capture_batch(model, encoded.inputs)}
    for layer, head in track_progress(heads, "heads", len(heads), transient=True):
        yield HeadTrace(layers[layer].of_head(head))


def _report_head(
    encoded: EncodedText, trace: HeadTrace, top: int, most_stones: int | None
) -> HeadReport:
    """Report one head: the first jumps, and the first of its stones or all of them."""
    (measured,) = layer_statistics(trace.layer, trace.graph)
    theta = trace.strengths
    report = HeadReport(
        trace.layer.layer,
        measured.head,
        float(trace.graph.fixed.rule.threshold[0, 0]),
        measured.density,
        measured.mean_weight,
        tuple(strongest_jumps(encoded, trace, top)),
        None if theta is None else tuple(tuple(hop) for hop in theta.mT.tolist()),
    )
    if not isinstance(trace.graph, StoneLinks):
        return report
    used, shown = trace.graph.stones(), set(encoded.shown)
    stones = []
    for key, side, share, standing in used:
        links = tuple(Link(encoded.tokens[i], b) for i, b in standing if i in shown)
        if links and key in encoded.named:
            hidden = len(standing) - len(links)
            stones.append(Stone(encoded.tokens[key], side, share, links, hidden))
    return StoneReport(
        **vars(report),
        linked=trace.graph.linked,
        num_stones=len(used),
        median_size=float(statistics.median(len(stone.links) for stone in used) if used else 0),
        stones=tuple(stones[:most_stones]),
    )


def strongest_jumps(encoded: EncodedText, trace: HeadTrace, top: int) -> Iterator[Jump]:
    """Yield the edges between shown tokens with the largest gains."""
    if top == 0:
        return  # and make no matrix for it
    gains, weights = (encoded.cut(m) for m in (trace.after - trace.before, trace.weights))
    edges = [
        (encoded.shown[i], encoded.shown[k])
        for i, k in strongest_edges(gains, weights, top).tolist()
    ]
    carried = trace.carried([key for _, key in edges])
    for place, (query, key) in enumerate(edges):
        votes = trace.graph.votes(query, key)
        stones = tuple(
            SteppingStone(encoded.tokens[vote.key], *vote[1:])
            for vote in votes
            if vote.key in encoded.named
        )
        yield Jump(
            query=encoded.tokens[query],
            key=encoded.tokens[key],
            weight=float(trace.weights[query, key]),
            before=float(trace.before[query, key]),
            after=float(trace.after[query, key]),
            stones=stones,
            hidden_stones=len(votes) - len(stones),
            carried=None if carried is None else float(carried[query, place]),
        )
