"""Everything one layer's jump heads did with a batch: scores, graph, probabilities, votes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from jat_graph.attention.heads import HeadGroup, JumpHeads, merge_heads
from jat_graph.attention.propagation import head_groups
from jat_graph.attention.softmax import attention_probabilities
from jat_graph.hf import CapturedLayer, capture_scores
from jat_graph.operators import DenseOperator
from jat_graph.voting.ballot import Ballot, open_ballot
from jat_graph.voting.scores import attention_scores
from jat_graph.voting.standard import score_source

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Inputs: TypeAlias = Mapping[str, Any]


class Vote(NamedTuple):
    """A key j that voted for a pair (i, k)."""

    key: int  # position j
    query_score: float  # X_ij
    key_score: float  # X_kj


@dataclass(frozen=True)
class LayerTrace:
    """What one layer's jump heads did; tensors are ``[B, H, L, L]``, H the heads that jump."""

    ballot: Ballot
    weights: Tensor  # the graph A of hard votes
    scores: Tensor  # X before propagation
    propagated: Tensor  # the scores after it
    before: Tensor  # attention probabilities without propagation
    after: Tensor  # and with it

    def votes(
        self,
        head: int,  # Its place among the layer's jump heads
        query: int,
        key: int,
    ) -> list[Vote]:
        """Return who voted for a pair of the first sequence, strongest product first."""
        if not self.weights[0, head, query, key]:
            return []
        columns, limits = (part[0, head] for part in self._columns)  # [U, L], [U]
        chosen = (columns[:, query] * columns[:, key] > limits).nonzero().squeeze(-1)
        index = self.ballot.keys.index
        keys = chosen if index is None else index[0, head, chosen]
        left, right = self.scores[0, head][[query, key]][:, keys].tolist()
        votes = [Vote(*row) for row in zip(keys.tolist(), left, right, strict=True)]
        return sorted(votes, key=lambda vote: -vote.query_score * vote.key_score)

    @cached_property
    def _columns(self) -> tuple[Tensor, Tensor]:
        """Columns and limits of the voting keys, ``[B, H, U, L]`` and ``[B, H, U]``."""
        return self.ballot.columns()


def capture_batch(model: PreTrainedModel, batch: Inputs) -> list[CapturedLayer]:
    """Return what each jump layer saw of a batch, in evaluation mode and without gradients."""
    inputs = _model_inputs(model, batch)
    with _evaluating(model), torch.no_grad(), capture_scores(model) as layers:
        model(**inputs)
    return layers


def layer_ballot(layer: CapturedLayer) -> Ballot:
    """Return who votes in a layer, and by which rule; hard votes where the config's are soft."""
    config = replace(layer.config, soft_temperature=None)
    source = score_source(config, layer.query, layer.key, layer.scale, layer.mask)
    return open_ballot(config, source, layer.mask)


def layer_graph(layer: CapturedLayer) -> tuple[Ballot, Tensor]:  # A [B, H, L, L]
    """Return who votes in a layer, and the graph of its hard votes."""
    ballot = layer_ballot(layer)
    return ballot, DenseOperator.from_ballot(ballot).to_dense()


def trace_layer(layer: CapturedLayer) -> LayerTrace:
    """Return what a layer's jump heads did (Eq. 1, 3 and 9)."""
    with torch.no_grad():
        ballot, weights = layer_graph(layer)
        jumping = JumpHeads.everyone(layer.config, layer.query.size(1))
        groups = head_groups(layer.query, layer.key, jumping, mask=layer.mask, scale=layer.scale)
        unchanged = HeadGroup(jumping.heads, layer.query, layer.key, jumps=False)
        return LayerTrace(
            ballot,
            weights,
            ballot.source.columns(None),
            _propagated_scores(layer, groups),
            _probabilities(layer, [unchanged]),
            _probabilities(layer, groups),
        )


def _model_inputs(model: PreTrainedModel, batch: Inputs) -> dict[str, Any]:
    if not isinstance(batch, Mapping):
        raise ValueError(f"batches must hold dictionaries of inputs, got {type(batch).__name__}")
    inputs = {
        name: value.to(model.device) if isinstance(value, Tensor) else value
        for name, value in batch.items()
        if name != "labels"
    }
    # A cache would only be filled and thrown away.
    return {"use_cache": False} | inputs if getattr(model.config, "use_cache", False) else inputs


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off, and give every module back the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _propagated_scores(layer: CapturedLayer, groups: list[HeadGroup]) -> Tensor:
    """Return scale · Σ_p w_p Φ_p of all jump heads, ``[B, H, L, L]``."""
    parts = [attention_scores(group.query, group.key, layer.scale) for group in groups]
    return merge_heads([group.heads for group in groups], parts)


def _probabilities(layer: CapturedLayer, groups: list[HeadGroup]) -> Tensor:
    """Return attention probabilities, ``[B, H, L, L]``."""
    attn_mask, is_causal = layer.mask.attention_mask(layer.query.size(2), layer.query)
    return attention_probabilities(
        groups, attn_mask=attn_mask, is_causal=is_causal, scale=layer.scale
    )
