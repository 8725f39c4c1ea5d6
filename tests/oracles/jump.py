"""Jump self-attention as the library defines it, with every variant and every mask."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.oracles.adjacency import (
    HopWeights,
    Threshold,
    reference_adjacency,
    reference_normalize,
    reference_scores,
    reference_scores_propagated,
)
from tests.oracles.keys import reference_quantile_threshold, reference_voting_keys
from tests.oracles.masks import reference_mask


class ReferenceGraph(NamedTuple):
    """The graph of each sequence and head.

    Shapes: scores ``[B, H, L, L]``, X; voters bool ``[B, H, L]``, the voting keys; threshold
    ``[B, H]``, the threshold in use; adjacency ``[B, H, L, L]``, A; adj_norm ``[B, H, L, L]``,
    A normalised.
    """

    scores: Tensor
    voters: Tensor
    threshold: Tensor
    adjacency: Tensor
    adj_norm: Tensor


def reference_graph(
    query: Tensor,
    key: Tensor,
    *,
    threshold: Threshold = 6.0,
    vote_rate: float | None = None,
    key_selection: str = "all",
    num_keys: int | None = None,
    key_factor: float = 5.0,
    key_step: int | None = None,
    same_sign_only: bool = False,
    normalize_keys: bool = False,
    inclusive: bool = False,
    nodes: str = "all",
    soft_temperature: float | None = None,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    sample_ranks: Mapping[int, Tensor] | None = None,
    triples: Mapping[int, Tensor] | None = None,
) -> ReferenceGraph:
    """Return scores, voting keys, threshold and adjacency of each sequence and head.

    Shapes: query, key ``[B, H, L, D]``; threshold a number or ``[B|1, H|1]``; attention_mask
    ``[B, L]`` or ``[B|1, H|1, L, L]``. Reference: JAT paper, Eq. 1 to 4 and 8.
    """
    scores = reference_scores(query, key, scale)
    pairs = reference_mask(query, attention_mask, is_causal).pairs
    chosen: dict[str, Any] = {"key_selection": key_selection, "num_keys": num_keys}
    chosen |= {"key_factor": key_factor, "key_step": key_step, "sample_ranks": sample_ranks}
    voters = reference_voting_keys(scores, pairs, **chosen)
    norm = key.to(scores.dtype).norm(dim=-1).clamp(min=1.0) if normalize_keys else None
    rule: dict[str, Any] = {"key_norm": norm, "same_sign_only": same_sign_only}
    if vote_rate is not None:
        assert triples is not None
        threshold = reference_quantile_threshold(
            scores, pairs, voters, vote_rate=vote_rate, triples=triples, **rule
        )
    rule |= {"inclusive": inclusive, "nodes": nodes, "soft_temperature": soft_temperature}
    adjacency = reference_adjacency(scores, threshold, pairs=pairs, voters=voters, **rule)
    rho = torch.as_tensor(threshold, dtype=scores.dtype, device=scores.device)
    return ReferenceGraph(
        scores, voters, rho.expand(scores.shape[:2]), adjacency, reference_normalize(adjacency)
    )


def reference_jump_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    hop_weights: HopWeights = (0.0, 1.0),
    nodes: str = "all",
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    pattern: Tensor | None = None,
    **options: Any,
) -> Tensor:
    r"""Return :math:`\mathrm{softmax}(\mathrm{scale} \cdot \sum_p w_p \Phi_p(S)) V`.

    Masked scores are minus infinity and a row that sees nothing gives 0. Finite biases are added
    to the scaled scores; they do not vote.

    Shapes: query, key ``[B, H, L, D]``; value ``[B, H, L, Dv]``; attention_mask ``[B, L]`` or
    ``[B|1, H|1, L, L]``; pattern bool ``[B|1, H|1, L, L]``; options as for
    :func:`reference_graph`; output ``[B, H, L, Dv]``. Reference: JAT paper, Eq. 7 and 9.
    """
    options |= {"nodes": nodes, "attention_mask": attention_mask, "is_causal": is_causal}
    graph = reference_graph(query, key, scale=scale, **options)
    propagated = reference_scores_propagated(
        query, key, graph.adj_norm, hop_weights, nodes=graph.voters if nodes == "selected" else None
    )
    mask = reference_mask(query, attention_mask, is_causal)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    visible = mask.visible if pattern is None else mask.visible & pattern
    return masked_softmax(scale * propagated + mask.bias, visible) @ value


def reference_attention(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor, scale: float | None = None
) -> Tensor:
    """Return attention of each query to the keys it may see; 0 where it sees none.

    Shapes: query ``[..., L, D]``; key ``[..., M, D]``; value ``[..., M, Dv]``; visible bool
    ``[..., L, M]``; output ``[..., L, Dv]``. Reference: Vaswani et al. (2017), Eq. 1.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.transpose(-1, -2) * scale
    return masked_softmax(scores, visible.expand(scores.shape)) @ value


def masked_softmax(logits: Tensor, visible: Tensor) -> Tensor:
    """Return the softmax over the visible keys; a row without any is 0.

    Shapes: logits, visible, output ``[..., L, M]``. Reference: Vaswani et al. (2017), Eq. 1.
    """
    readable = visible.any(dim=-1, keepdim=True)
    masked = logits.masked_fill(~visible, float("-inf")).masked_fill(~readable, 0.0)
    return masked.softmax(dim=-1).masked_fill(~visible, 0.0)
