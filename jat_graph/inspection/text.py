"""Look at jump heads on one text: density, weights, strongest jumps and their stepping stones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jat_graph.checks.numbers import check_integer
from jat_graph.inspection.choice import Indices
from jat_graph.inspection.head_reports import cut, report_head
from jat_graph.inspection.reading import Reading
from jat_graph.inspection.reports import GraphView, HeadReport, HeadView, Inspection

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
    reading = Reading.of(
        model,
        tokenizer,
        text,
        layers=layers,
        heads=heads,
        tokens=tokens,
        special_tokens=special_tokens,
    )
    return inspection_of(reading, reports_of(reading, top))


def reports_of(reading: Reading, top: int) -> Iterator[HeadReport]:
    """Yield a report on one head after the other."""
    for trace in reading.traces():
        yield report_head(reading, trace, top, top)


def inspection_of(reading: Reading, reports: Iterable[HeadReport]) -> Inspection:
    """Return the reports with what they are about."""
    return Inspection(reading.text, reading.tokens, reading.config, tuple(reports))


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
    reading = Reading.of(
        model,
        tokenizer,
        text,
        layers=layer,
        heads=head,
        tokens=tokens,
        special_tokens=special_tokens,
    )
    return view_of(reading, top)


def view_of(reading: Reading, top: int) -> HeadView:
    """Return the view of the one head that is looked at."""
    (trace,) = reading.traces()
    report = report_head(reading, trace, top, None)
    matrices = trace.scores, trace.weights, trace.propagated, trace.after - trace.before
    return HeadView(
        report, reading.shown_tokens, *(cut(reading, matrix).cpu() for matrix in matrices)
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
    reading = Reading.of(
        model,
        tokenizer,
        text,
        layers=layers,
        heads=heads,
        tokens=tokens,
        special_tokens=special_tokens,
    )
    return graphs_of(reading)


def graphs_of(reading: Reading) -> Iterator[GraphView]:
    """Yield the graph of one head after the other, whose reports name no jumps and no stones."""
    for trace in reading.traces():
        report = report_head(reading, trace, 0, 0)
        yield GraphView(report, reading.shown_tokens, cut(reading, trace.weights).cpu())
