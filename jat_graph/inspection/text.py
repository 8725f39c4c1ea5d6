"""Look at jump heads on one text: density, weights, strongest jumps and their stepping stones."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jat_graph.config import JatConfig
from jat_graph.hf import CapturedLayer, attached_config
from jat_graph.hf.capture import jumping_heads
from jat_graph.inspection.calibration import graph_densities
from jat_graph.inspection.graphs import Footing, StoneLinks
from jat_graph.inspection.reports import (
    HeadReport,
    HeadView,
    Inspection,
    Jump,
    Link,
    SteppingStone,
    Stone,
    StoneReport,
    Token,
)
from jat_graph.inspection.tracing import LayerTrace, capture_batch, trace_layer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def inspect_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    top: int = 5,
    special_tokens: bool = False,
) -> Inspection:
    """Report what every jump head does on a text.

    A jump is an edge (i, k) of a head's graph, its gain the attention probability of i to k after
    propagation minus the one before. Both directions of a pair are jumps of their own.

    Args:
        model: A model with jump heads.
        tokenizer: Its tokenizer.
        text: One text that the model can take whole.
        top: Number of jumps to report for each head, by gain, and of stones, by the share of walks
            that go over them. (default: 5)
        special_tokens: Show jumps from, to and through special tokens, too. (default: False)

    Returns:
        The report.

    Raises:
        ValueError: If the model has no jump heads, the text is empty or too long, or ``top`` is
            below 0.

    Reference:
        Zhou et al. 2022, Section 3: *computer* and *pencil* joined through *book*.

    Example:
        >>> import jat_graph
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] dogs bark at cats".split()
        >>> tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model.eval(), jat_graph.JatConfig(vote_rate=0.05, layers=(2,)))
        >>> found = jat_graph.inspection.inspect_text(model, tokenizer, "dogs bark at cats")
        >>> [(head.layer, head.head) for head in found.heads]
        [(2, 0), (2, 1), (2, 2), (2, 3)]
    """
    if top < 0:
        raise ValueError(f"top must be at least 0, got {top}")
    run = _run_text(model, tokenizer, text)
    reports = [
        report
        for layer in run.layers
        for report in _layer_reports(run, layer, trace_layer(layer), top, special_tokens)
    ]
    return Inspection(text, run.tokens, run.config, tuple(reports))


def view_head(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    layer: int,
    head: int,
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
        top: Number of jumps to mark, by gain. (default: 5)
        special_tokens: Show special tokens, too. (default: False)

    Returns:
        The matrices over the shown tokens, and the head's report.

    Shapes:
        - ``scores``, ``weights``, ``propagated``: ``[L, L]``

    Raises:
        ValueError: If this head of this layer does not jump, or as :func:`inspect_text` does.

    Reference:
        X of Eq. 1, A of Eq. 3 and the propagated scores of Eq. 9 of the JAT paper.
    """
    if top < 0:
        raise ValueError(f"top must be at least 0, got {top}")
    check_place(jumping_heads(model), (layer, head))
    run = _run_text(model, tokenizer, text)
    found = next(item for item in run.layers if item.layer == layer)
    place = found.heads.index(head)
    trace, keep = trace_layer(found), run.shown(special_tokens)
    reports = _layer_reports(run, found, trace, top, special_tokens, all_stones=True)
    scores, weights, propagated = (
        matrix[0, place][keep][:, keep].cpu()
        for matrix in (trace.scores, trace.weights, trace.propagated)
    )
    tokens = tuple(run.tokens[position] for position in keep)
    return HeadView(reports[place], tokens, scores, weights, propagated)


def check_place(jumping: dict[int, tuple[int, ...]], place: tuple[int, int] | None) -> None:
    """Refuse a layer and head that does not jump, of a model whose jump heads are known."""
    if place is not None and jumping and place[1] not in jumping.get(place[0], ()):
        listed = "; ".join(f"layer {layer}: {list(heads)}" for layer, heads in jumping.items())
        raise ValueError(
            f"layer {place[0]}, head {place[1]} must be a jump head, got only these jump: {listed}"
        )


@dataclass(frozen=True)
class _Run:
    """A text that went through the model."""

    tokens: tuple[Token, ...]
    special: tuple[bool, ...]
    config: JatConfig
    layers: list[CapturedLayer]

    def shown(self, special_tokens: bool) -> list[int]:
        """Return the positions that are shown."""
        return [t.index for t in self.tokens if special_tokens or not self.special[t.index]]


def _run_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> _Run:
    """Tokenize the text, run the model, and keep what its jump layers saw."""
    config = attached_config(model)
    if config is None:
        raise ValueError("model must have jump heads, got none: attach them first")
    if not text.strip():
        raise ValueError(f"text must not be empty, got {text!r}")
    encoded = tokenizer(text, return_special_tokens_mask=True, return_tensors="pt", verbose=False)
    special = tuple(bool(flag) for flag in encoded.pop("special_tokens_mask")[0])
    _check_length(model, tokenizer, len(special))
    names = tokenizer.convert_ids_to_tokens(encoded["input_ids"][0].tolist())
    tokens = tuple(Token(n, _readable(tokenizer, name)) for n, name in enumerate(names))
    return _Run(tokens, special, config, capture_batch(model, encoded))


def _check_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, length: int) -> None:
    positions = getattr(model.config, "max_position_embeddings", None) or length
    limit = min(tokenizer.model_max_length, positions)
    if length > limit:
        raise ValueError(f"text must have at most {limit} tokens for this model, got {length}")


def _readable(tokenizer: PreTrainedTokenizerBase, name: str) -> str:
    """Turn a byte-level piece into what it says; a word piece keeps its ``##``."""
    return tokenizer.convert_tokens_to_string([name]).strip() or name


def _layer_reports(
    run: _Run,
    layer: CapturedLayer,
    trace: LayerTrace,
    top: int,
    special_tokens: bool,
    all_stones: bool = False,
) -> list[HeadReport]:
    """Report each jump head of one layer."""
    measured = graph_densities(layer, trace.graph)
    thresholds = trace.graph.ballot.rule.threshold.expand(trace.weights.shape[:2])[0].tolist()
    reports = []
    for place, head in enumerate(layer.heads):
        report = HeadReport(
            layer.layer,
            head,
            thresholds[place],
            measured[place].density,
            measured[place].mean_weight,
            tuple(_jumps(run, trace, place, top, special_tokens)),
            _strengths(trace, place),
        )
        if isinstance(trace.graph, StoneLinks):
            limit = None if all_stones else top
            report = _with_stones(report, run, trace.graph, place, limit, special_tokens)
        reports.append(report)
    return reports


def _strengths(trace: LayerTrace, place: int) -> tuple[tuple[float, ...], ...] | None:
    """Return θ of queries, keys and values of one head, for each hop."""
    if trace.strengths is None:
        return None
    return tuple(tuple(hop) for hop in trace.strengths[..., place].mT.tolist())


def _with_stones(
    report: HeadReport,
    run: _Run,
    graph: StoneLinks,
    place: int,
    limit: int | None,
    special_tokens: bool,
) -> StoneReport:
    """Add to a report what there is to say of a head's stones."""
    footings, shown = graph.footings(place), run.shown(special_tokens)
    stones = [_stone(run, footing, shown) for footing in footings if footing.key in shown]
    return StoneReport(
        **vars(report),
        linked=graph.linked(place),
        num_stones=len(footings),
        median_size=float(statistics.median(len(f.links) for f in footings)) if footings else 0.0,
        stones=tuple(stones[:limit]),
    )


def _stone(run: _Run, footing: Footing, shown: list[int]) -> Stone:
    links = [Link(run.tokens[i], weight) for i, weight in footing.links if i in shown]
    return Stone(
        run.tokens[footing.key],
        footing.side,
        footing.share,
        tuple(links),
        hidden_links=len(footing.links) - len(links),
    )


def _jumps(
    run: _Run, trace: LayerTrace, place: int, top: int, special_tokens: bool
) -> Iterator[Jump]:
    """Yield the edges of one head with the largest gains."""
    shown = run.shown(special_tokens)
    edges = [(i, k) for i, k in trace.weights[0, place].nonzero().tolist() if {i, k} <= set(shown)]
    gains = (trace.after - trace.before)[0, place]
    # What is equal keeps the order of the text, so that the list is the same on every machine.
    weights = trace.weights[0, place]
    edges.sort(key=lambda edge: (-float(gains[edge]), -float(weights[edge])))
    for query, key in edges[:top]:
        votes = trace.graph.votes(place, query, key)
        stones = tuple(
            SteppingStone(run.tokens[vote.key], *vote[1:]) for vote in votes if vote.key in shown
        )
        yield Jump(
            query=run.tokens[query],
            key=run.tokens[key],
            weight=float(weights[query, key]),
            before=float(trace.before[0, place, query, key]),
            after=float(trace.after[0, place, query, key]),
            stones=stones,
            hidden_stones=len(votes) - len(stones),
            carried=None if trace.carried is None else float(trace.carried[0, place, query, key]),
        )
