"""Look at jump heads on one text: density, weights, strongest jumps and their stepping stones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jat_graph.config import JatConfig
from jat_graph.hf import CapturedLayer, attached_config
from jat_graph.inspection.calibration import graph_densities
from jat_graph.inspection.reports import (
    HeadReport,
    HeadView,
    Inspection,
    Jump,
    SteppingStone,
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
        top: Number of jumps to report for each head, by gain. (default: 5)
        special_tokens: Show jumps from, to and through special tokens, too. (default: False)

    Returns:
        The report.

    Raises:
        ValueError: If the model has no jump heads, the text is empty or too long, or ``top`` is
            below 0.

    Reference:
        Zhou et al. 2022, Section 3: *computer* and *pencil* joined through *book*.
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
    run = _run_text(model, tokenizer, text)
    found = next((item for item in run.layers if item.layer == layer), None)
    if found is None or head not in found.heads:
        jumping = "; ".join(f"layer {item.layer}: {list(item.heads)}" for item in run.layers)
        raise ValueError(
            f"layer {layer}, head {head} must be a jump head, got only these jump: {jumping}"
        )
    place = found.heads.index(head)
    trace, keep = trace_layer(found), run.shown(special_tokens)
    report = _layer_reports(run, found, trace, top, special_tokens)[place]
    scores, weights, propagated = (
        matrix[0, place][keep][:, keep].cpu()
        for matrix in (trace.scores, trace.weights, trace.propagated)
    )
    tokens = tuple(run.tokens[position] for position in keep)
    return HeadView(report, tokens, scores, weights, propagated)


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
    run: _Run, layer: CapturedLayer, trace: LayerTrace, top: int, special_tokens: bool
) -> list[HeadReport]:
    """Report each jump head of one layer."""
    statistics = graph_densities(layer, trace.ballot, trace.weights)
    thresholds = trace.ballot.rule.threshold.expand(trace.weights.shape[:2])[0].tolist()
    return [
        HeadReport(
            layer.layer,
            head,
            thresholds[place],
            statistics[place].density,
            statistics[place].mean_weight,
            tuple(_jumps(run, trace, place, top, special_tokens)),
        )
        for place, head in enumerate(layer.heads)
    ]


def _jumps(
    run: _Run, trace: LayerTrace, place: int, top: int, special_tokens: bool
) -> Iterator[Jump]:
    """Yield the edges of one head with the largest gains."""
    shown = run.shown(special_tokens)
    edges = [(i, k) for i, k in trace.weights[0, place].nonzero().tolist() if {i, k} <= set(shown)]
    gains = (trace.after - trace.before)[0, place]
    # Equal gains keep the order of the text, so that the list is the same on every machine.
    edges.sort(key=lambda edge: -float(gains[edge]))
    for query, key in edges[:top]:
        votes = trace.votes(place, query, key)
        stones = tuple(
            SteppingStone(run.tokens[vote.key], vote.query_score, vote.key_score)
            for vote in votes
            if vote.key in shown
        )
        yield Jump(
            query=run.tokens[query],
            key=run.tokens[key],
            weight=float(trace.weights[0, place, query, key]),
            before=float(trace.before[0, place, query, key]),
            after=float(trace.after[0, place, query, key]),
            stones=stones,
            hidden_stones=len(votes) - len(stones),
        )
