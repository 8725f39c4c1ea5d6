"""Clusters: which tokens have rows of scores alike, and which keys their mean query scores highest.

Everything here is of one sequence without padding; it is chosen once, and has no gradient.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

GROUP = 16  # keys that are looked at together
STEP = 2**20  # scores that are looked at at a time: 4 MiB in float32


def number_of_clusters(length: int, clusters: int | None) -> int:
    """Return how many clusters so many tokens join: ⌈2√n⌉ unless given, and at most n."""
    return min(length, math.isqrt(4 * length - 1) + 1 if clusters is None else clusters)


def landmarks(length: int, num_clusters: int, device: torch.device) -> Tensor:  # [m]
    """Return the tokens that clusters begin with, spread evenly from the first to the last."""
    return torch.arange(num_clusters, device=device) * (length - 1) // max(num_clusters - 1, 1)


@torch.no_grad()
def join_clusters(
    query: Tensor,  # [H, n, D]
    key: Tensor,  # less its mean, [H, n, D]
    num_clusters: int,
) -> Tensor:  # [H, n]
    """Give each token the cluster whose row of scores is most like its own, by cosine.

    The inner product of two centred rows is n · q C q', C being the keys' covariance.
    """
    mean = query.mean(1, keepdim=True)
    covariance = key.mT @ key / key.size(1)
    centres = query[:, landmarks(query.size(1), num_clusters, query.device)] - mean
    towards = centres @ covariance
    squares = (towards * centres).sum(-1, keepdim=True)
    towards = (towards / squares.clamp(min=torch.finfo(query.dtype).tiny).sqrt()).mT
    offset = -mean @ towards  # centres the tokens' queries, too
    step = max(1, STEP // (len(query) * num_clusters))
    # Of equal ones argmax takes the first.
    parts = [
        torch.baddbmm(offset, part, towards).argmax(-1) for part in torch.split(query, step, dim=1)
    ]
    return torch.cat(parts, dim=1)


def choose_clusters(
    query: Tensor,  # [H, n, D]
    key: Tensor,  # less its mean, [H, n, D]
    clusters: int | None,
    joined: Tensor | None = None,  # [H, n], where that is known
) -> tuple[Tensor, Tensor]:  # [H, n], [H, m, D]
    """Return the cluster that each token joins, and the mean query of each cluster."""
    number = number_of_clusters(query.size(1), clusters)
    if joined is None:
        joined = join_clusters(query, key, number)
    return joined, cluster_means(query, joined, number)


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


def best_keys(
    queries: Tensor,  # of clusters, times the scale, [H, m, D]
    key: Tensor,  # [H, n, D]
    keys: int,  # at most n
) -> tuple[Tensor, Tensor]:  # [H, m, keys], [H, m]
    """Return the keys that each cluster scores highest, and the highest score of the others.

    Of equal keys the lower position comes first.
    """
    if keys == key.size(1):
        every = torch.arange(keys, device=key.device).expand(*queries.shape[:2], -1)
        return every, queries.new_full(queries.shape[:2], -torch.inf)
    best, largest = [], []
    for part in torch.split(queries, max(1, 4 * STEP // key[..., 0].numel()), dim=1):
        rows = part @ key.mT
        values, index = _highest(rows, keys + 1)
        index = index[..., :keys]
        if keys:
            lowest = values[..., keys - 1]
            tied = lowest == values[..., keys]
            if bool(tied.any()):
                index = index.clone()
                index[tied] = _lower_of_equal(rows[tied], lowest[tied], keys)
        best.append(index)
        largest.append(values[..., keys])
    return torch.cat(best, dim=1), torch.cat(largest, dim=1)


def _lower_of_equal(rows: Tensor, lowest: Tensor, keys: int) -> Tensor:  # [rows, keys]
    """Return the highest scores of rows of which several equal the lowest that is taken."""
    lowest = lowest.unsqueeze(-1)
    above, equal = rows > lowest, rows == lowest
    left = keys - above.sum(-1, keepdim=True)
    taken = above | (equal & (equal.cumsum(-1) <= left))
    position = taken.nonzero()[:, 1].view(-1, keys)
    order = rows.gather(-1, position).sort(dim=-1, descending=True, stable=True).indices
    return position.gather(-1, order)


def _highest(rows: Tensor, number: int) -> tuple[Tensor, Tensor]:  # [H, m, number] each
    """Return the highest scores in falling order, and where they are.

    They are in those groups of keys whose own highest ones are highest, which are found first, or
    among the few last keys that are in no group.
    """
    groups = rows.size(-1) // GROUP
    if groups < 2 * number:
        return rows.topk(number)
    first = groups * GROUP
    grouped = rows[..., :first].view(*rows.shape[:2], GROUP, groups)  # key j in group j % groups
    chosen = grouped.amax(-2).topk(number, sorted=False).indices
    found = grouped.gather(-1, chosen.unsqueeze(-2).expand(-1, -1, GROUP, -1)).flatten(-2)
    values, place = torch.cat([found, rows[..., first:]], dim=-1).topk(number)
    position = chosen.gather(-1, place % number) + place // number * groups
    return values, torch.where(place < GROUP * number, position, place - GROUP * number + first)
