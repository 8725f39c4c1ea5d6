"""The paper's equations, one slow function each, for one head of one sequence.

Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*, NeurIPS 2022.
Tensors have no batch: Q and K are ``[L, D]``. Where the paper leaves a choice, the docstring says
which one this library made. Eq. 4 is ``reference_normalize``, Eq. 8 in ``reference_voting_keys``.
"""

import math

from torch import Tensor


def paper_vote(query: Tensor, key: Tensor, threshold: float) -> Tensor:
    r"""Return which keys j say that tokens i and k are alike.

    .. math::
        \mathcal J(\cdot, \cdot; j) = [U_j - \mathrm{diag}(U_j)]_\rho, \qquad
        (U_j)_{ik} = \frac{(q_i k_j)(q_k k_j)}{D}

    where :math:`[\cdot]_\rho` is 1 above rho and 0 elsewhere, so that no token votes for itself.
    Dividing the product by D is the same as scaling each score by :math:`1/\sqrt D`.

    Shapes: query, key ``[L, D]``; output ``[L, L, L]``, index i, k, j. Reference: JAT paper,
    Eq. 2.
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

    Shapes: votes ``[L, L, U]``; output ``[L, L]``. Reference: JAT paper, Eq. 3.
    """
    return votes.mean(dim=-1)


def paper_head(propagated: Tensor, value: Tensor, head_dim: int) -> Tensor:
    r"""Return the output of a jump head.

    .. math:: \mathrm{head} = \mathrm{softmax}\Big(\frac{\Phi(S)}{\sqrt D}\Big) V

    Shapes: propagated ``[L, L]``; value, output ``[L, Dv]``. Reference: JAT paper, Eq. 7.
    """
    return (propagated / math.sqrt(head_dim)).softmax(dim=-1) @ value


def paper_order_scores(scores: Tensor, adj_norm: Tensor, order: int) -> Tensor:
    r"""Return the scores of one order, propagated on both sides.

    .. math:: \Phi_j(S) = \hat A^{j-1} S (\hat A^{j-1})^\top

    With :math:`S = Q K^\top` one hop is :math:`(\hat A Q) (\hat A K)^\top`. The paper counts orders
    from one: order 1 is ordinary attention, order 2 one hop. Hop p of this library is order p + 1.

    Shapes: scores, adj_norm, output ``[L, L]``. Reference: JAT paper, Eq. 5, 6 and 9.
    """
    for _ in range(order - 1):
        scores = adj_norm @ scores @ adj_norm.T
    return scores
