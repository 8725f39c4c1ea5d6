"""Stepping stones: from queries and keys to the walk token → stone → token, and the head of it."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.oracles.jump import masked_softmax

CAUSAL_BLOCK = 64  # tokens that are measured together where none may look ahead


def standard_scores(
    query: Tensor, key: Tensor, scale: float, valid: Tensor | None = None, causal: bool = False
) -> Tensor:
    r"""Return the scores, centred and measured in their own standard deviation.

    .. math::
        Z_{ij} = \tilde X_{ij} / \sigma, \qquad
        \tilde X_{ij} = \mathrm{scale} \cdot (q_i - \bar q) \cdot (k_j - \bar k), \qquad
        \sigma^2 = \mathrm{mean}_{ij}\, \tilde X_{ij}^2 .

    Means are over the valid tokens of a sequence. So :math:`\tilde X` is X without its row means
    and column means. :math:`\bar q`, :math:`\bar k` and :math:`\sigma` are constants for the
    gradient, and where :math:`\sigma` is 0, Z is.

    With ``causal`` each token has means of its own, over the valid tokens up to itself, and row i
    a :math:`\sigma_i` of its own: if r valid tokens come before i, from the first
    :math:`64 \lfloor r / 64 \rfloor` of them, that is all complete blocks of 64; in the first block
    from the r + 1 tokens up to i. Later keys have the score 0.

    Shapes: query, key ``[B, H, L, D]``; valid bool ``[B, L]``; output ``[B, H, L, L]``.
    """
    batch, _, length, _ = query.shape
    if valid is None:
        valid = torch.ones(batch, length, dtype=torch.bool, device=query.device)
    seen = valid[:, None, :].expand(batch, length, length)  # by row i
    measured = seen
    if causal:
        rank = valid.cumsum(dim=-1) - 1  # [B, L]
        complete = rank // CAUSAL_BLOCK * CAUSAL_BLOCK
        counted = torch.where(rank < CAUSAL_BLOCK, rank + 1, complete)
        seen = seen.tril()
        measured = valid[:, None, :] & (rank[:, None, :] < counted[:, :, None])
    scores = scale * _centred(query, seen) @ _centred(key, seen).transpose(-1, -2)
    weight = _mean_weights(measured, scores.dtype)  # [B, 1, L, L]
    sigma = (weight @ scores.square() * weight).sum(dim=-1, keepdim=True).sqrt().detach()
    allowed = (seen & valid[:, :, None])[:, None] & (sigma > 0)
    return (scores / sigma.where(sigma > 0, 1.0)).masked_fill(~allowed, 0.0)


def _mean_weights(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the matrix that takes each row's mean over the tokens seen: [B, 1, L, L]."""
    weights = seen.to(dtype)
    return (weights / weights.sum(dim=-1, keepdim=True).clamp(min=1.0))[:, None]


def _centred(x: Tensor, seen: Tensor) -> Tensor:
    """Return the tokens less the mean of what each sees, a constant for the gradient."""
    # Seen from the first token equal tokens are exactly 0; their own mean would miss by a rounding.
    first = seen.any(dim=-2).int().argmax(dim=-1)  # [B]
    origin = x[torch.arange(len(x), device=x.device), :, first].unsqueeze(-2).detach()
    x = x - origin
    return x - (_mean_weights(seen, x.dtype) @ x).detach()


def incidence(
    scores: Tensor,
    threshold: float | Tensor,
    kind: str = "excess",
    sides: str = "both",
    temperature: float = 1.0,
    stones: Tensor | None = None,
    valid: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    r"""Return B: how much token i stands on stone j.

    - ``excess``: :math:`b_{ij} = \max(0, Z_{ij} - t)`.
    - ``hard``: :math:`1[Z_{ij} > t]`, with the gradient of ``excess``.
    - ``sigmoid``: :math:`\sigma((Z_{ij} - t) / \tau)`.

    With both sides the stones of -Z come after those of Z. Columns of keys that are no stones are
    0, and so are rows and columns of tokens that are not valid.

    Shapes: scores ``[B, H, L, L]``; threshold a number or ``[H]``; stones bool ``[B, H|1, L]``;
    valid bool ``[B, L]``; output ``[B, H, L, L]``, or ``[B, H, L, 2L]`` for both sides.
    Reference: This library. A token is linked where its own score is high, as in Definition 3.1
    of the JAT paper; Eq. 2 asks it of products.
    """
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if stones is not None:
        allowed = allowed & stones[:, :, None, :]
    if valid is not None:
        allowed = allowed & valid[:, None, :, None] & valid[:, None, None, :]
    if causal:
        allowed = allowed.tril()
    t = torch.as_tensor(threshold, dtype=scores.dtype, device=scores.device).reshape(-1, 1, 1)
    signed = (scores, -scores) if sides == "both" else (scores,)
    parts = [_incidence_of_side(side - t, kind, temperature) for side in signed]
    return torch.cat([part.masked_fill(~allowed, 0.0) for part in parts], dim=-1)


def _incidence_of_side(distance: Tensor, kind: str, temperature: float) -> Tensor:
    """Return the incidence of scores that lie so far above the threshold."""
    if kind == "excess":
        return distance.relu()
    if kind == "hard":
        excess = distance.relu()
        return (distance > 0).to(distance.dtype) + (excess - excess.detach())
    return (distance / temperature).sigmoid()


def stone_propagation(incidence: Tensor, self_weight: float) -> Tensor:
    r"""Return the random walk token → stone → token.

    .. math::
        P = (D + \varepsilon I)^{-1} (B S^{-1} B^\top + \varepsilon I)

    S holds the stones' sizes :math:`s_j = \sum_i b_{ij}`, D the tokens' degrees
    :math:`d_i = \sum_j b_{ij}`. A stone on which nobody stands leads nowhere; a token on no stone
    stays where it is, also for :math:`\varepsilon = 0`.

    Shapes: incidence ``[B, H, L, U]``; output ``[B, H, L, L]``. Reference: This library; for
    hard incidence and :math:`\varepsilon = 0` the hypergraph convolution of Bai et al. (2021)
    without a filter.
    """
    size = incidence.sum(dim=-2, keepdim=True)  # [B, H, 1, U]
    leaving = incidence.sum(dim=-1, keepdim=True) + self_weight  # [B, H, L, 1]
    stay = torch.eye(incidence.shape[-2], dtype=incidence.dtype, device=incidence.device)
    shares = incidence / size.where(size > 0, 1.0)  # of the tokens on a stone
    walk = incidence @ shares.transpose(-1, -2) + self_weight * stay
    return torch.where(leaving > 0, walk / leaving.where(leaving > 0, 1.0), stay)


def causal_stone_propagation(incidence: Tensor, self_weight: float) -> Tensor:
    r"""Return the random walk in which no later token counts.

    .. math::
        (P x)_i = \frac{1}{d_i + \varepsilon} \Big(
            \sum_j b_{ij} \frac{\sum_{k \le i} b_{kj} x_k}{\sum_{k \le i} b_{kj}}
            + \varepsilon x_i \Big)

    Row i is the last row of :func:`stone_propagation` for the tokens up to i; :math:`b_{ij}` is 0
    for a stone j after i.

    Shapes: incidence ``[B, H, L, U]``; output ``[B, H, L, L]``.
    """
    length = incidence.shape[-2]
    rows = []
    for i in range(length):
        so_far = stone_propagation(incidence[..., : i + 1, :], self_weight)  # [B, H, i+1, i+1]
        rows.append(F.pad(so_far[..., i, :], (0, length - 1 - i)))
    return torch.stack(rows, dim=-2)


def jump_features(propagation: Tensor, x: Tensor, strengths: Tensor) -> Tensor:
    r"""Return :math:`x + \sum_{p \ge 1} \theta_p (P^p x - x)`.

    Shapes: propagation ``[B, H, L, L]``; x, output ``[B, H, L, D]``; strengths ``[hops, H]``.
    Reference: This library; MixHop (Abu-El-Haija et al., 2019) for powers side by side.
    """
    result = x
    for strength, jumped in _hops(propagation, x, strengths):
        result = result + strength * (jumped - x)
    return result


def _hops(propagation: Tensor, x: Tensor, strengths: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each hop its strengths, [H, 1, 1], and the features that have gone so far."""
    for strength in strengths:
        x = propagation @ x
        yield strength[:, None, None], x


links_of = incidence  # whose name is an argument of the next function


def stone_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    strength: Tensor,
    *,
    threshold: float | Tensor,
    scale: float,
    incidence: str = "excess",
    sides: str = "both",
    temperature: float = 1.0,
    self_weight: float = 0.1,
    stones: Tensor | None = None,
    valid: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    r"""Return a head that jumps over stepping stones.

    .. math::
        \mathrm{softmax}(\mathrm{scale} \cdot Q' K'^\top) V + \sum_{p \ge 1} \theta^v_p P^p V

    :math:`Q'` and :math:`K'` are the :func:`jump_features` of Q and K by :math:`\theta^q` and
    :math:`\theta^k`. Nobody reads tokens that are not valid, and what these read means nothing.

    Shapes: query, key ``[B, H, L, D]``; value, output ``[B, H, L, Dv]``; strength ``[3, hops,
    H]``; threshold a number or ``[H]``; stones bool ``[B, H|1, L]``; valid bool ``[B, L]``.
    """
    scores = standard_scores(query, key, scale, valid, causal)
    links = links_of(scores, threshold, incidence, sides, temperature, stones, valid, causal)
    walk = (causal_stone_propagation if causal else stone_propagation)(links, self_weight)
    visible = torch.ones_like(scores, dtype=torch.bool)
    if valid is not None:
        visible = visible & valid[:, None, None, :]
    if causal:
        visible = visible.tril()
    queries, keys = jump_features(walk, query, strength[0]), jump_features(walk, key, strength[1])
    output = masked_softmax(scale * queries @ keys.transpose(-1, -2), visible) @ value
    for by_value, jumped in _hops(walk, value, strength[2]):
        output = output + by_value * jumped
    return output
