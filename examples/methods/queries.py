"""Clusters of queries: near ones share a list of best keys, and their mean reads the rest.

Reference:
    Vyas, Katharopoulos and Fleuret, *Fast Transformers with Clustered Attention*, NeurIPS 2020, its
    improved form, on the 64 queries of a stretch, 16 in a cluster on average, in causal order and
    with a window; a new token is a cluster of its own. Version 0.2.0 of this library refined it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from examples.methods.rows import Rows

MEMBERS, ROUNDS = 16, 5


def queries(rows: Rows) -> Tensor:
    """Read what the mean of a cluster of queries scores highest, and its own scores elsewhere."""
    shared = rows.score(cluster_means(rows.query))
    exact = rows.choose(shared)
    return rows.scores.where(exact, shared).softmax(-1)


def cluster_means(query: Tensor) -> Tensor:  # [heads, queries, features], both
    """Return for each query the mean of its cluster, by k-means from even starts."""
    number = max(1, query.size(1) // MEMBERS)
    start = torch.arange(number, device=query.device) * query.size(1) // number
    centres = query[:, start]
    for _ in range(ROUNDS):
        joined = F.one_hot(torch.cdist(query, centres).argmin(-1), number).to(query)
        sizes = joined.sum(1).clamp(min=1).unsqueeze(-1)
        centres = joined.mT @ query / sizes
    return joined @ centres
