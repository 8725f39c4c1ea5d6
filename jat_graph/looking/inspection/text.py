"""Look at jump heads on one text: density, weights, strongest jumps and their stepping stones."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.numbers import check_integer
from jat_graph.hf import attached_config
from jat_graph.jumps.config import JatConfig, PairGraph
from jat_graph.looking.inspection.graphs import StoneLinks
from jat_graph.looking.inspection.reports import HeadReport, HeadView, Inspection, Jump, StoneReport
from jat_graph.looking.inspection.selection import (
    EncodedText,
    Indices,
    Places,
    find_word,
    strongest_edges,
)
from jat_graph.looking.inspection.statistics import pooled_statistics
from jat_graph.looking.inspection.tracing import HeadTrace, look_at_heads

logger = logging.getLogger(__name__)


def inspect_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    layers: Indices = None,
    heads: Indices = None,
    tokens: Places = None,
    top: int = 5,
    jump: tuple[str, str] | None = None,
    special_tokens: bool = False,
) -> Inspection:
    """Report what jump heads do on a text, with the matrices of one in memory at a time.

    Args:
        model, tokenizer: A model with jump heads, and its tokenizer.
        text: One text that the model can take whole.
        layers, heads: Which to look at, from 0: one, or several. (default: None, all that jump)
        tokens: The positions between which jumps are reported, as ``range(40, 90)``, or words of
            the text, as ``"pencil computer"``; densities are those of the whole text all the same.
            (default: None, all)
        top: Most jumps of a head, by gain, and stones, by their share of the walks. (default: 5)
        jump: Two words, to report only jumps from the first to the second. (default: None)
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
    encoded, found = look_at_heads(model, tokenizer, text, layers, heads, tokens, special_tokens)
    ends = find_ends(encoded, jump)
    reports = [_report_head(encoded, HeadTrace(layer), top, top, ends) for layer in found]
    _remark(model, reports)
    return Inspection(text, encoded.tokens, attached_config(model), tuple(reports))


def view_head(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    layer: int,
    head: int,
    tokens: Places = None,
    top: int = 5,
    jump: tuple[str, str] | None = None,
    special_tokens: bool = False,
) -> HeadView:
    """Return one jump head's scores, graph and propagated scores on a text.

    Args:
        model, tokenizer, text, top, jump, special_tokens: As for :func:`inspect_text`.
        layer, head: One that jumps, from 0.
        tokens: The tokens that are shown, as for it. (default: None, all)

    Returns:
        The matrices over the shown tokens, ``[L, L]`` each, and the head's report.

    Reference:
        X of Eq. 1, A of Eq. 3 and the propagated scores of Eq. 9 of the JAT paper.
    """
    check_integer("top", top, least=0)
    encoded, (seen,) = look_at_heads(model, tokenizer, text, layer, head, tokens, special_tokens)
    trace = HeadTrace(seen)
    report = _report_head(encoded, trace, top, None, find_ends(encoded, jump))
    _remark(model, [report])
    matrices = trace.weights, trace.scores, trace.propagated, trace.after - trace.before
    return HeadView(report, encoded.shown, *(encoded.cut(matrix).cpu() for matrix in matrices))


def remarks(config: JatConfig, densities: Sequence[float], strengths: Sequence[float]) -> list[str]:
    """Say of some heads on a text whether one threshold does not fit, and strengths are still 0."""
    graph = config.jump_graph
    found = []
    fixed = isinstance(graph, PairGraph) and graph.vote_rate is None
    # A head that joins nearly all pairs tells few of them apart.
    if fixed and not isinstance(graph.threshold, tuple) and not 0 < max(densities) < 0.95:
        ends = min(densities), max(densities)
        shares = " to ".join(dict.fromkeys(f"{share:.0%}" for share in ends))
        said = f"Threshold {graph.threshold:g} does not fit: it joins {shares} of the pairs."
        found.append(f"{said} Calibrate it for this model, or take stones or clusters.")
    if config.strength is not None and not any(strengths):
        found.append("Strengths are 0, as before training, so attention is that of the base.")
    return found


def _remark(model: PreTrainedModel, reports: Sequence[HeadReport]) -> None:
    strengths = [theta for own in reports for hop in own.strengths or () for theta in hop]
    densities = [own.density for own in reports] or [0.5]
    for line in remarks(attached_config(model), densities, strengths):
        logger.warning(line)


def find_ends(encoded: EncodedText, jump: tuple[str, str] | None) -> Tensor | None:  # [n, n]
    """Return which pairs of shown tokens lead from the first word to the second; None for all."""
    if jump is None:
        return None
    if len(jump) != 2 or isinstance(jump, str):
        raise ValueError(f"jump must be two words, got {jump!r}")
    shown = torch.tensor([token.index for token in encoded.shown])
    first, second = (
        torch.isin(shown, torch.tensor(find_word(encoded.tokens, word))) for word in jump
    )
    return first[:, None] & second


def _report_head(
    encoded: EncodedText, trace: HeadTrace, top: int, most_stones: int | None, ends: Tensor | None
) -> HeadReport:
    """Report one head: the first jumps, and the first of its stones or all of them."""
    (measured,) = pooled_statistics([(trace.layer, trace.graph)])
    theta = trace.strengths()
    report = HeadReport(
        trace.layer.layer,
        measured.head,
        float(trace.graph.fixed.rule.threshold[0, 0]),
        measured.density,
        measured.mean_weight,
        tuple(strongest_jumps(encoded, trace, top, ends)),
        None if theta is None else tuple(tuple(hop) for hop in theta.mT.tolist()),
        trace.change if top else None,
    )
    if not isinstance(trace.graph, StoneLinks):
        return report
    used = trace.graph.stones(encoded.tokens)
    shown = set(encoded.shown)
    stones = []
    for stone in used:
        links = tuple(link for link in stone.links if link.token in shown)
        if links and stone.token.index in encoded.named:
            hidden = len(stone.links) - len(links)
            stones.append(replace(stone, links=links, hidden_links=hidden))
    return StoneReport(
        **vars(report),
        linked=len({link.token for stone in used for link in stone.links}) / len(encoded.tokens),
        num_stones=len(used),
        median_size=float(statistics.median(len(stone.links) for stone in used) if used else 0),
        stones=tuple(stones[:most_stones]),
    )


def strongest_jumps(
    encoded: EncodedText, trace: HeadTrace, top: int, ends: Tensor | None = None
) -> Iterator[Jump]:
    """Yield the edges between shown tokens with the largest gains."""
    if top == 0:
        return  # and make no matrix for it
    gains, weights = (encoded.cut(m) for m in (trace.after - trace.before, trace.weights))
    if ends is not None:
        weights = weights * ends.to(weights.device)
    for row, column in strongest_edges(gains, weights, top).tolist():
        query, key = encoded.shown[row], encoded.shown[column]
        pair = query.index, key.index
        every = trace.graph.stepping_stones(*pair, encoded.tokens)
        stones = tuple(stone for stone in every if stone.token.index in encoded.named)
        yield Jump(
            query,
            key,
            weight=float(trace.weights[pair]),
            before=float(trace.before[pair]),
            after=float(trace.after[pair]),
            stones=stones,
            hidden_stones=len(every) - len(stones),
        )
