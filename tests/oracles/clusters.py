"""Clusters: one slow function for each step from queries and keys to the head, for one sequence."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class ReferenceClusters(NamedTuple):
    """What is chosen for one sequence and head: a constant for the gradient.

    Shapes:
        - joined: long ``[n]``, the cluster that each token joins.
        - best: bool ``[m, n]``, the best keys of each cluster.
    """

    joined: Tensor
    best: Tensor


def cluster_centred(x: Tensor) -> Tensor:
    r"""Return the tokens less their mean.

    Shapes:
        - x, output: ``[n, D]``

    Reference:
        This library.
    """
    # Seen from the first token equal tokens are exactly 0; their own mean would miss by a rounding.
    x = x - x[:1]
    return x - x.mean(dim=0)


def cluster_metric(centred_key: Tensor) -> Tensor:
    r"""Return :math:`C = \tilde K^\top \tilde K / n`.

    The inner product of two centred rows of scores is :math:`n \cdot \tilde q_i C \tilde q_l^\top`,
    times the square of the scale.

    Shapes:
        - centred_key: ``[n, D]``
        - output: ``[D, D]``

    Reference:
        This library.
    """
    return centred_key.T @ centred_key / len(centred_key)


def cluster_landmarks(num_tokens: int, clusters: int | None = None) -> Tensor:
    r"""Return the ranks :math:`\lfloor r (n-1) / (m-1) \rfloor` of the tokens that are landmarks.

    m is ``clusters``, or :math:`\lceil 2 \sqrt n \rceil`, capped at n. One landmark is the first
    token.

    Shapes:
        - output: long ``[m]``

    Reference:
        This library.
    """
    wanted = math.isqrt(4 * num_tokens - 1) + 1 if clusters is None else clusters
    m = min(num_tokens, wanted)
    return torch.tensor([r * (num_tokens - 1) // max(m - 1, 1) for r in range(m)])


def cluster_join(centred_query: Tensor, centres: Tensor, metric: Tensor) -> Tensor:
    r"""Return which centre each token is most like: :math:`\arg\max_l \cos_C(\tilde q_i, x_l)`.

    :math:`\cos_C(x, y) = x C y^\top / \sqrt{x C x^\top \cdot y C y^\top}`, or 0 where a vector has
    no length. Ties go to the lower centre.

    Shapes:
        - centred_query: ``[n, D]``
        - centres: ``[m, D]``, centred likewise
        - metric: ``[D, D]``
        - output: long ``[n]``

    Reference:
        This library; clustered attention (Vyas et al., 2020) joins by hashing.
    """
    inner = centred_query @ metric @ centres.T  # [n, m]
    sizes = [(x @ metric * x).sum(dim=-1).clamp(min=0).sqrt() for x in (centred_query, centres)]
    size = sizes[0][:, None] * sizes[1]
    return (inner / size.where(size > 0, 1.0)).argmax(dim=-1)


def cluster_means(query: Tensor, joined: Tensor, num_clusters: int) -> Tensor:
    r"""Return the mean query of each cluster; it is 0 where no token has joined.

    Shapes:
        - query: ``[n, D]``
        - joined: long ``[n]``
        - output: ``[m, D]``

    Reference:
        This library: a walk token → cluster → token.
    """
    members = (joined == torch.arange(num_clusters)[:, None]).to(query.dtype)  # [m, n]
    return members @ query / members.sum(dim=-1, keepdim=True).clamp(min=1.0)


def cluster_rows(queries: Tensor, centred_key: Tensor, scale: float) -> Tensor:
    r"""Return the row of scores of each cluster: :math:`R_l = \mathrm{scale} \cdot c_l \tilde K^T`.

    Shapes:
        - queries: ``[m, D]``, one for each cluster
        - centred_key: ``[n, D]``
        - output: ``[m, n]``

    Reference:
        This library; JAT paper, Eq. 5, on the side of the queries.
    """
    return scale * queries @ centred_key.T


def cluster_best_keys(rows: Tensor, keys: int) -> Tensor:
    r"""Return the ``keys`` largest of each row; ties go to the lower position.

    Shapes:
        - rows: ``[m, n]``
        - output: bool ``[m, n]``

    Reference:
        Clustered attention (Vyas et al., 2020), "improved".
    """
    order = rows.argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(rows, dtype=torch.bool).scatter(1, order[:, :keys], True)


def cluster_exact_set(chosen: ReferenceClusters, block: int) -> Tensor:
    r"""Return E: which keys each token reads exactly.

    They are the keys in its own block of ``block`` tokens and in the two beside it, none with
    ``block`` 0, and the best keys of its cluster.

    Shapes:
        - output: bool ``[n, n]``

    Reference:
        This library.
    """
    exact = chosen.best[chosen.joined]
    if block > 0:
        number = torch.arange(len(exact)) // block
        exact = exact | ((number[:, None] - number).abs() <= 1)
    return exact


def cluster_scores(
    query: Tensor,
    key: Tensor,
    queries: Tensor,
    chosen: ReferenceClusters,
    exact: Tensor,
    scale: float,
) -> Tensor:
    r"""Return the scores: exact in E, and elsewhere the cluster's with the mean key's exact part.

    .. math::
        S'_{ij} = \mathrm{scale} \cdot q_i \cdot k_j \;\; (j \in E_i), \qquad
        \mathrm{scale} \cdot (c_{a_i} \cdot (k_j - \bar k) + q_i \cdot \bar k) \;\; \text{elsewhere}

    Shapes:
        - query, key: ``[n, D]``
        - queries: ``[m, D]``, one for each cluster
        - exact: bool ``[n, n]``
        - output: ``[n, n]``

    Reference:
        This library.
    """
    mean_key = key.mean(dim=0)
    rows = cluster_rows(queries, key - mean_key, scale)
    propagated = rows[chosen.joined] + scale * (query @ mean_key)[:, None]
    return torch.where(exact, scale * query @ key.T, propagated)


def cluster_output(scores: Tensor, value: Tensor, readable: Tensor | None = None) -> Tensor:
    r"""Return :math:`\mathrm{softmax}(S') V`, over all keys or those that are readable.

    Shapes:
        - scores: ``[n, n]``
        - value, output: ``[n, Dv]``
        - readable: bool ``[n, n]``

    Reference:
        This library.
    """
    if readable is not None:
        scores = scores.masked_fill(~readable, -math.inf)
    return scores.softmax(dim=-1) @ value


def reference_clusters(
    query: Tensor,
    key: Tensor,
    *,
    scale: float,
    clusters: int | None = None,
    keys: int = 32,
) -> ReferenceClusters:
    r"""Return what is chosen for one sequence and head.

    Shapes:
        - query, key: ``[n, D]``

    Reference:
        This library.
    """
    centred_query, centred_key = cluster_centred(query.detach()), cluster_centred(key.detach())
    metric = cluster_metric(centred_key)
    landmarks = cluster_landmarks(len(query), clusters)
    joined = cluster_join(centred_query, centred_query[landmarks], metric)
    queries = cluster_means(query.detach(), joined, len(landmarks))
    best = cluster_best_keys(cluster_rows(queries, centred_key, scale), keys)
    return ReferenceClusters(joined, best)


def reference_cluster_scores(
    query: Tensor,
    key: Tensor,
    choosing: tuple[Tensor, Tensor],
    *,
    scale: float,
    block: int,
    **settings: Any,
) -> tuple[Tensor, Tensor]:
    r"""Return the scores of one sequence and head, and which of them are exact.

    Shapes:
        - query, key: ``[n, D]``, as are the queries and keys in ``choosing``, which choose
        - output: ``[n, n]`` and bool ``[n, n]``

    Reference:
        This library.
    """
    chosen = reference_clusters(*choosing, scale=scale, **settings)
    queries = cluster_means(query, chosen.joined, len(chosen.best))
    exact = cluster_exact_set(chosen, block)
    return cluster_scores(query, key, queries, chosen, exact, scale), exact


def reference_clustered_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    sequence: Tensor | None = None,
    scale: float | None = None,
    clusters: int | None = None,
    keys: int = 32,
    block: int = 64,
    propagate: bool = True,
    chosen_by: tuple[Tensor, Tensor] | None = None,
    everywhere: Tensor | None = None,
) -> Tensor:
    r"""Return attention by clusters, each sequence on its own; tokens of none of them get 0.

    A token that is ``everywhere`` reads all keys of its sequence exactly and is read exactly by all
    of it; clusters and blocks are those of the other tokens, as if there were no more.
    Without ``propagate`` the keys outside of E are not read at all. Grouped heads share keys. Where
    precision is judged, ``chosen_by`` holds the exact queries and keys, which choose, so that no
    rounding does.

    Shapes:
        - query: ``[B, H, L, D]``
        - key: ``[B, G, L, D]``
        - value: ``[B, G, L, Dv]``
        - sequence: long ``[B, L]``, a number for each sequence, below 0 for padding
        - chosen_by: as query and key
        - everywhere: bool ``[B, L]``
        - output: ``[B, H, L, Dv]``

    Reference:
        This library.
    """
    batch, heads, length, width = query.shape
    scale = width**-0.5 if scale is None else scale
    choosing = (query, key) if chosen_by is None else chosen_by
    if sequence is None:
        sequence = torch.zeros(batch, length, dtype=torch.long)
    if everywhere is None:
        everywhere = torch.zeros(batch, length, dtype=torch.bool)
    output = query.new_zeros(batch, heads, length, value.shape[-1])
    settings: dict[str, Any] = {"clusters": clusters, "keys": keys}
    for b in range(batch):
        for number in sequence[b].unique().tolist():
            own = (sequence[b] == number).nonzero().squeeze(-1)  # [n]
            for h in range(heads if number >= 0 else 0):
                g = h * key.shape[1] // heads
                q, k, v = query[b, h, own], key[b, g, own], value[b, g, own]
                others = (~everywhere[b, own]).nonzero().squeeze(-1)
                scores, exact = scale * q @ k.T, torch.ones(len(own), len(own), dtype=torch.bool)
                if len(others) > 0:
                    by = choosing[0][b, h, own][others], choosing[1][b, g, own][others]
                    pairs = others[:, None], others
                    rows = q[others], k[others], by
                    found = reference_cluster_scores(*rows, scale=scale, block=block, **settings)
                    scores = scores.index_put(pairs, found[0])
                    exact = exact.index_put(pairs, found[1])
                output[b, h, own] = cluster_output(scores, v, None if propagate else exact)
    return output
