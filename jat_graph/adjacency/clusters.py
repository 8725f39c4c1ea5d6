"""Clusters: which tokens have rows of scores alike, and which keys their mean query scores highest.

Everything here is of one sequence without padding; it is chosen once, and has no gradient.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def number_of_clusters(length: int, clusters: int | None) -> int:
    """Return how many clusters so many tokens join: ⌈2√n⌉ unless given, and at most n."""
    return min(length, math.isqrt(4 * length - 1) + 1 if clusters is None else clusters)


def landmarks(length: int, num_clusters: int, device: torch.device) -> Tensor:  # [m]
    """Return the tokens that clusters begin with, spread evenly from the first to the last."""
    return torch.arange(num_clusters, device=device) * (length - 1) // max(num_clusters - 1, 1)


def join_clusters(
    query: Tensor,  # [H, n, D]
    key: Tensor,  # [H, n, D]
    num_clusters: int,
    refine: int,
) -> Tensor:  # [H, n]
    """Give each token the cluster whose row of scores is most like its own, by cosine.

    The inner product of two centred rows is n · q C q', C being the keys' covariance.
    """
    query, key = (x - x.mean(1, keepdim=True) for x in (query, key))
    covariance = key.mT @ (key / key.size(1))

    def nearest(centres: Tensor) -> Tensor:
        towards = centres @ covariance
        norm = (towards * centres).sum(-1, keepdim=True).clamp(min=1e-12).sqrt()
        return (query @ (towards / norm).mT).argmax(-1)  # the first of equal ones

    joined = nearest(query[:, landmarks(query.size(1), num_clusters, query.device)])
    for _ in range(refine - 1):
        joined = nearest(cluster_means(query, joined, num_clusters))
    return joined


def cluster_sizes(joined: Tensor, num_clusters: int) -> Tensor:  # [H, m]
    """Return how many tokens are in each cluster."""
    heads = torch.arange(len(joined), device=joined.device).unsqueeze(-1) * num_clusters
    sizes = torch.bincount((joined + heads).flatten(), minlength=len(joined) * num_clusters)
    return sizes.view(len(joined), num_clusters)


def cluster_means(x: Tensor, joined: Tensor, num_clusters: int) -> Tensor:  # [H, m, D]
    """Return the mean of each cluster's tokens; zeros where it has none."""
    index = joined.unsqueeze(-1).expand_as(x)
    sums = x.new_zeros(len(x), num_clusters, x.size(-1)).scatter_add_(1, index, x)
    return sums / cluster_sizes(joined, num_clusters).clamp(min=1).unsqueeze(-1)


def cluster_queries(
    query: Tensor,  # [H, n, D]
    joined: Tensor,  # [H, n]
    num_clusters: int,
    refine: int,
) -> Tensor:  # [H, m, D]
    """Return the query that stands for each cluster: its mean, or its landmark without refining."""
    if refine == 0:
        return query[:, landmarks(query.size(1), num_clusters, query.device)]
    return cluster_means(query, joined, num_clusters)


def best_keys(rows: Tensor, keys: int) -> Tensor:  # [H, m, keys]
    """Return the keys that each row scores highest, the lower position of equal ones."""
    top = rows.topk(keys, dim=-1, sorted=False)
    if not keys:
        return top.indices
    least = top.values.amin(-1, keepdim=True)
    if bool(((rows >= least).sum(-1) == keys).all()):
        return top.indices
    order = rows.sort(dim=-1, descending=True, stable=True).indices
    return order[..., :keys]
