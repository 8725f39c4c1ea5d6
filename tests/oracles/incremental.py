"""Propagation in a decoder, token by token: what a token gets once and for all when it arrives."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def reference_next_rows(
    query: Tensor,
    key: Tensor,
    *,
    num_rows: int,
    hops: int,
    threshold: float,
    scale: float,
    valid: list[bool] | None = None,
    key_step: int = 1,
    same_sign_only: bool = False,
    normalize_keys: bool = False,
    inclusive: bool = False,
    nodes: str = "all",
) -> tuple[Tensor, Tensor]:
    r"""Return the propagated queries and keys of the last tokens of one causal head, from scratch.

    Each token looks back only:

    .. math::
        A_{ik} = \frac{1}{|V_i|} \sum_{j \in V_k} \mathbb 1[X_{ij} X_{kj} > \rho],
        \quad k < i, \qquad V_i = \{\text{voting keys } j \le i\},

    .. math::
        d_i = 1 + \sum_{k < i} A_{ik}, \qquad
        f^{(p)}_i = \frac{f^{(p-1)}_i}{d_i}
                    + \sum_{k < i} \frac{A_{ik}}{\sqrt{d_i d_k}} f^{(p-1)}_k .

    So no later token changes what an earlier one got. Of the valid tokens 0, s, 2s … vote, s being
    ``key_step``.

    Shapes:
        - query, key: ``[L, D]``
        - output: two of ``[num_rows, D]``

    Reference:
        JAT paper, Eq. 2 to 5, with the sums cut off at the token itself.
    """
    length = len(query)
    valid = [True] * length if valid is None else valid
    tokens = [i for i in range(length) if valid[i]]
    voters = tokens[::key_step]
    joining = voters if nodes == "selected" else tokens
    adjacency = [[0.0] * length for _ in range(length)]
    for i in joining:
        for k in (k for k in joining if k < i):
            for j in (j for j in voters if j <= k):
                left, right = (float(query[t].dot(key[j]) * scale) for t in (i, k))
                product = left * right
                if normalize_keys:
                    product = product / max(1.0, float(key[j].norm()))
                vote = product >= threshold if inclusive else product > threshold
                if same_sign_only and min(left, right) < 0:
                    vote = False
                adjacency[i][k] += vote / sum(voter <= i for voter in voters)
    degree = [1.0 + sum(row) for row in adjacency]
    features = torch.cat([query, key], dim=-1)
    for _ in range(hops):
        features = torch.stack(
            [
                features[i] / degree[i]
                + sum(
                    adjacency[i][k] / math.sqrt(degree[i] * degree[k]) * features[k]
                    for k in range(i)
                )
                for i in range(length)
            ]
        )
    last, width = features[length - num_rows :], query.size(-1)
    return last[:, :width], last[:, width:]
