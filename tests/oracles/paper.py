"""The paper's equations 2 to 9, one slow function each, for one head of one sequence.

Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*, NeurIPS 2022.
Tensors have no batch: Q and K are ``[L, D]``. Where the paper leaves a choice, the docstring says
which one this library made.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def paper_vote(query: Tensor, key: Tensor, threshold: float) -> Tensor:
    r"""Return which keys j say that tokens i and k are alike.

    .. math::
        \mathcal J(\cdot, \cdot; j) = [U_j - \mathrm{diag}(U_j)]_\rho, \qquad
        (U_j)_{ik} = \frac{(q_i k_j)(q_k k_j)}{D}

    where :math:`[\cdot]_\rho` is 1 above rho and 0 elsewhere, so that no token votes for itself.
    Dividing the product by D is the same as scaling each score by :math:`1/\sqrt D`.

    Shapes:
        - query, key: ``[L, D]``
        - output: ``[L, L, L]``, index i, k, j

    Reference:
        JAT paper, Eq. 2.
    """
    length, width = query.shape
    votes = query.new_zeros(length, length, length)
    for i in range(length):
        for k in range(length):
            for j in range(length):
                product = query[i].dot(key[j]) * query[k].dot(key[j]) / width
                votes[i, k, j] = float(i != k and product > threshold)
    return votes


def paper_adjacency(votes: Tensor) -> Tensor:
    r"""Return the share of the keys that vote for each pair.

    .. math:: A_{ik} = \frac 1 L \sum_j \mathcal J(i, k; j)

    Eq. 2 has no votes for i = k, so A has no self-loops; Eq. 4 adds one of weight 1 to every token.

    Shapes:
        - votes: ``[L, L, U]``
        - output: ``[L, L]``

    Reference:
        JAT paper, Eq. 3.
    """
    return votes.mean(dim=-1)


def paper_normalized_adjacency(adjacency: Tensor) -> Tensor:
    r"""Return the adjacency with self-loops, normalised on both sides.

    .. math:: \hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}

    The paper takes :math:`\tilde D` "from the column-sum of A". Here it holds the row sums of
    A + I: the same where A is symmetric, up to the self-loop, and blind to later tokens where a
    causal mask makes A triangular.

    Shapes:
        - adjacency, output: ``[L, L]``

    Reference:
        JAT paper, Eq. 4.
    """
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype, device=adjacency.device)
    degree = looped.sum(dim=1)
    normalized = torch.zeros_like(looped)
    for i in range(len(looped)):
        for k in range(len(looped)):
            normalized[i, k] = looped[i, k] / (degree[i] * degree[k]).sqrt()
    return normalized


def paper_propagate(x: Tensor, adj_norm: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Return one graph convolution of the tokens.

    .. math:: X' = \hat A X W

    A head of a pretrained model has no W: there it is the identity. The layers for PyG may have
    one.

    Shapes:
        - x: ``[L, D]``
        - adj_norm: ``[L, L]``
        - weight: ``[D, F]``
        - output: ``[L, F]``

    Reference:
        JAT paper, Eq. 4.
    """
    return adj_norm @ x if weight is None else adj_norm @ x @ weight


def paper_factored_scores(query: Tensor, key: Tensor, adj_norm: Tensor) -> Tensor:
    r"""Return the scores of the propagated queries and keys.

    .. math:: \Phi(S) = (\hat A Q) (\hat A K)^\top

    Shapes:
        - query, key: ``[L, D]``
        - adj_norm, output: ``[L, L]``

    Reference:
        JAT paper, Eq. 5.
    """
    return paper_propagate(query, adj_norm) @ paper_propagate(key, adj_norm).T


def paper_propagated_scores(scores: Tensor, adj_norm: Tensor) -> Tensor:
    r"""Return the scores, propagated on both sides.

    .. math:: \Phi(S) = \hat A S \hat A^\top

    Equal to Eq. 5 with :math:`S = Q K^\top`.

    Shapes:
        - scores, adj_norm, output: ``[L, L]``

    Reference:
        JAT paper, Eq. 6.
    """
    return adj_norm @ scores @ adj_norm.T


def paper_head(propagated: Tensor, value: Tensor, head_dim: int) -> Tensor:
    r"""Return the output of a jump head.

    .. math:: \mathrm{head} = \mathrm{softmax}\Big(\frac{\Phi(S)}{\sqrt D}\Big) V

    Shapes:
        - propagated: ``[L, L]``
        - value, output: ``[L, Dv]``

    Reference:
        JAT paper, Eq. 7.
    """
    return (propagated / math.sqrt(head_dim)).softmax(dim=-1) @ value


def paper_key_significance(scores: Tensor) -> Tensor:
    r"""Return how far each key's strongest score stands out from its mean score.

    .. math:: M_j = \max_i S_{ij} - \frac 1 L \sum_i S_{ij}

    Shapes:
        - scores: ``[L, L]``
        - output: ``[L]``

    Reference:
        JAT paper, Eq. 8.
    """
    length = len(scores)
    significance = []
    for j in range(length):
        column = scores[:, j]
        significance.append(column.max() - column.sum() / length)
    return torch.stack(significance)


def paper_order_scores(scores: Tensor, adj_norm: Tensor, order: int) -> Tensor:
    r"""Return the propagated scores of one order.

    .. math:: \Phi_j(S) = \hat A^{j-1} S (\hat A^{j-1})^\top

    The paper counts orders from one: order 1 is ordinary attention, order 2 one hop. Hop p of
    this library is order p + 1.

    Shapes:
        - scores, adj_norm, output: ``[L, L]``

    Reference:
        JAT paper, Eq. 9.
    """
    for _ in range(order - 1):
        scores = paper_propagated_scores(scores, adj_norm)
    return scores
