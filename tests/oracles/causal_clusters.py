"""Clusters in a decoder: every token chooses anew, from the tokens before it alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tests.oracles.clusters import (
    cluster_best_keys,
    cluster_centred,
    cluster_join,
    cluster_metric,
    cluster_output,
    cluster_rows,
)


class ReferenceChoice(NamedTuple):
    """What one token chooses: constants for the gradient.

    Shapes:
        - landmark: the position of the token whose query stands for its cluster.
        - best: bool ``[far]``, the best keys of that query among those that are far.
    """

    landmark: int
    best: Tensor


def causal_landmarks(complete: int) -> Tensor:
    r"""Return the landmarks among the first tokens: positions ⌊t² / 4⌋, t = 2, 3, …

    Of n tokens some 2√n are landmarks, whatever comes later.

    Shapes:
        - output: long ``[m]``

    Reference:
        This library.
    """
    return torch.tensor([t * t // 4 for t in range(2, 2 * complete + 2) if t * t // 4 < complete])


def causal_choice(
    query: Tensor, key: Tensor, token: int, *, scale: float, keys: int, block: int
) -> ReferenceChoice | None:
    r"""Return what a token chooses; None where all before it are near, in its block or the last.

    It joins the landmark that it is most like among those of the complete blocks before its own;
    means and the metric are of these blocks. The landmark's best keys are those before the two
    blocks that the token reads exactly. Ties go to the lower position.

    Shapes:
        - query, key: ``[n, D]``; of what comes after the token nothing is read

    Reference:
        This library.
    """
    complete = token // block * block
    far = complete - block
    if far <= 0:
        return None
    # The token is centred by the mean of the complete blocks: seen from their first, as these are.
    query = query.detach()
    centred = cluster_centred(query[:complete])
    own = query[token] - query[0] - (query[:complete] - query[0]).mean(dim=0)
    landmarks = causal_landmarks(complete)
    metric = cluster_metric(cluster_centred(key.detach()[:complete]))
    joined = int(landmarks[cluster_join(own[None], centred[landmarks], metric)])
    rows = cluster_rows(query[joined][None], key.detach()[:far], scale)
    return ReferenceChoice(joined, cluster_best_keys(rows, keys)[0])


def causal_cluster_scores(
    query: Tensor, key: Tensor, token: int, choice: ReferenceChoice | None, scale: float
) -> Tensor:
    r"""Return a token's scores of all keys up to its own.

    .. math::
        S'_{ij} = \mathrm{scale} \cdot q_i \cdot k_j \;\; (j \text{ near, or a best key}), \qquad
        \mathrm{scale} \cdot (q_a \cdot (k_j - \bar k) + q_i \cdot \bar k) \;\; \text{elsewhere,}

    :math:`q_a` being the landmark's query and :math:`\bar k` the mean of the keys that are far.

    Shapes:
        - query, key: ``[n, D]``
        - output: ``[token + 1]``

    Reference:
        This library.
    """
    scores = scale * key[: token + 1] @ query[token]
    if choice is None:
        return scores
    far = key[: len(choice.best)]
    mean_key = far.mean(dim=0)
    propagated = scale * ((far - mean_key) @ query[choice.landmark] + query[token] @ mean_key)
    exact = scores[: len(far)]
    return torch.cat([torch.where(choice.best, exact, propagated), scores[len(far) :]])


def reference_causal_clusters(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    sequence: Tensor | None = None,
    scale: float | None = None,
    keys: int = 32,
    block: int = 64,
    propagate: bool = True,
    dense_below: int = 0,
) -> Tensor:
    r"""Return causal attention by clusters, token by token; what is in no sequence gets 0.

    Each sequence is on its own. Without ``propagate`` what is neither near nor a best key is not
    read at all. Tokens of blocks that begin below ``dense_below`` read all keys. Grouped heads
    share keys.

    Shapes:
        - query: ``[B, H, L, D]``
        - key: ``[B, G, L, D]``
        - value: ``[B, G, L, Dv]``
        - sequence: long ``[B, L]``, a number for each sequence, below 0 for padding
        - output: ``[B, H, L, Dv]``

    Reference:
        This library.
    """
    batch, heads, length, width = query.shape
    scale = width**-0.5 if scale is None else scale
    if sequence is None:
        sequence = torch.zeros(batch, length, dtype=torch.long)
    output = query.new_zeros(batch, heads, length, value.shape[-1])
    for b in range(batch):
        for number in sequence[b].unique().tolist():
            own = (sequence[b] == number).nonzero().squeeze(-1)  # [n]
            for h in range(heads if number >= 0 else 0):
                g = h * key.shape[1] // heads
                q, k, v = query[b, h, own], key[b, g, own], value[b, g, own]
                rows = []
                for token in range(len(own)):
                    choice = None
                    if token // block * block >= dense_below:
                        choice = causal_choice(q, k, token, scale=scale, keys=keys, block=block)
                    scores = causal_cluster_scores(q, k, token, choice, scale)
                    readable = torch.ones_like(scores, dtype=torch.bool)
                    if choice is not None and not propagate:
                        readable[: len(choice.best)] = choice.best
                    rows.append(cluster_output(scores[None], v[: token + 1], readable[None])[0])
                output[b, h, own] = torch.stack(rows)
    return output
