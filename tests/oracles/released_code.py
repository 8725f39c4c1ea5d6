r"""The rules of the authors' released code, written anew and without its bugs.

The code is zhouhaoyi/JAT2022 (``CheckerNet`` and ``get_attn_adj`` in its modeling files). S are raw
scores there, not divided by the root of D. ``JatConfig.released()`` describes the same computation
in this library's words: :math:`S_{ij} S_{kj} / (\max(1, \lVert K_j\rVert) D)` is the product of
two scaled scores divided by the key's norm (``normalize_keys``), ``>=`` is ``inclusive``, and half
S, half one hop is ``hop_weights=(0.5, 0.5)``.
"""

import math

import torch
from torch import Tensor


def released_adjacency(
    query: Tensor,
    key: Tensor,
    *,
    threshold: float = 3.0,
    same_sign: bool = False,
    valid: Tensor | None = None,
) -> Tensor:
    r"""Return the adjacency with a diagonal of ones, without gradient.

    .. math::
        A_{ik} = \mathrm{mean}_j\, \mathbb 1\Big[
        \frac{S_{ij} S_{kj}}{\max(1, \lVert K_j\rVert)\, D} \ge \rho\Big], \qquad A_{ii} = 1

    Unlike in the original, padding takes no part: the mean is over valid keys, and a padding token
    has only its self-loop. Two negative scores never vote under the same-sign rule.

    Shapes: query, key ``[B, H, L, D]``; valid bool ``[B, L]``; output ``[B, H, L, L]``.
    Reference: JAT2022, ``get_attn_adj``.
    """
    scores = (query @ key.transpose(-1, -2)).detach()  # [B, H, L, L]
    if valid is None:
        valid = torch.ones_like(scores[:, 0, :, 0], dtype=torch.bool)
    normalizer = key.detach().norm(dim=-1).clamp(min=1.0) * key.shape[-1]  # [B, H, L]
    first, second = scores[:, :, :, None, :], scores[:, :, None, :, :]
    ratio = first * second / normalizer[:, :, None, None, :]  # [B, H, L, L, L]
    vote = (ratio >= threshold) & valid[:, None, None, None, :]
    if same_sign:
        vote = vote & ~((first < 0) & (second < 0))
    voters = valid.sum(dim=-1).clamp(min=1)[:, None, None, None]
    share: Tensor = vote.sum(dim=-1) / voters.to(scores.dtype)
    share = share.masked_fill(~(valid[:, None, :, None] & valid[:, None, None, :]), 0.0)
    loops = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    return share.masked_fill(loops, 1.0)


def released_scores(
    query: Tensor,
    key: Tensor,
    *,
    threshold: float = 3.0,
    order: int = 1,
    coefficient: float = 0.5,
    same_sign: bool = False,
    valid: Tensor | None = None,
) -> Tensor:
    r"""Return the mixed scores :math:`(1 - c) S + c h`, not yet divided by the root of D.

    .. math::
        h = \sum_{o=1}^{\mathrm{order}} \hat A^o S (\hat A^o)^\top, \qquad
        \hat A = D^{-1/2} A D^{-1/2}

    The original follows h with dropout.

    Shapes: query, key ``[B, H, L, D]``; valid bool ``[B, L]``; output ``[B, H, L, L]``.
    Reference: JAT2022, ``CheckerNet.forward`` and ``*SelfAttention.forward``.
    """
    scores = query @ key.transpose(-1, -2)
    adjacency = released_adjacency(
        query, key, threshold=threshold, same_sign=same_sign, valid=valid
    )
    root = adjacency.sum(dim=-1).sqrt()
    adj_norm = adjacency / root[..., :, None] / root[..., None, :]
    total, term = torch.zeros_like(scores), scores
    for _ in range(order):
        term = adj_norm @ term @ adj_norm.transpose(-1, -2)
        total = total + term
    return (1 - coefficient) * scores + coefficient * total


def released_top_queries(query: Tensor, key: Tensor, sample: Tensor, *, factor: int = 2) -> Tensor:
    r"""Return the u queries whose sampled scores stand out, as positions.

    .. math::
        M_i = \max_{j \in \mathrm{sample}} S_{ij}
              - \frac 1 L \sum_{j \in \mathrm{sample}} S_{ij}, \qquad
        u = \mathrm{factor} \cdot \lceil \ln L \rceil

    The sum over the sample is divided by L, not by the sample's size. The original draws the sample
    in every forward. Here u is at least 1 and at most L, and a tie goes to the lower position.

    Shapes: query, key ``[B, H, L, D]``; sample ``[s]`` or ``[L, s]``; output ``[B, H, u]``.
    Reference: JAT2022, ``CheckerNet._prob_QK``; Informer (Zhou et al., 2021).
    """
    scores = (query @ key.transpose(-1, -2)).detach()
    length = scores.shape[-1]
    index = sample.expand(*scores.shape[:-1], sample.shape[-1])
    sampled = scores.gather(-1, index)  # [B, H, L, s]
    significance = sampled.amax(dim=-1) - sampled.sum(dim=-1) / length
    count = min(length, max(1, factor * math.ceil(math.log(length))))
    order = significance.sort(dim=-1, descending=True, stable=True).indices
    return order[..., :count]


def released_efficient_scores(
    query: Tensor,
    key: Tensor,
    sample: Tensor,
    *,
    factor: int = 2,
    threshold: float = 3.0,
    order: int = 1,
    coefficient: float = 0.5,
    same_sign: bool = False,
) -> Tensor:
    """Return the mixed scores of the efficient variant, JAT-dagger.

    The graph lives on the u selected queries; the keys at the same positions vote. The scores among
    them are mixed with their hops, all others stay S. Each hop counts once.

    Shapes: query, key ``[B, H, L, D]``; sample ``[s]`` or ``[L, s]``; output ``[B, H, L, L]``.
    Reference: JAT2022, ``CheckerNet`` with ``prob_jat``.
    """
    top = released_top_queries(query, key, sample, factor=factor)  # [B, H, u]
    rows = top[..., None].expand(*top.shape, query.shape[-1])
    block = released_scores(
        query.gather(2, rows),
        key.gather(2, rows),
        threshold=threshold,
        order=order,
        coefficient=coefficient,
        same_sign=same_sign,
    )  # [B, H, u, u]
    b = torch.arange(top.shape[0], device=top.device)[:, None, None, None]
    h = torch.arange(top.shape[1], device=top.device)[None, :, None, None]
    index = (b, h, top[..., :, None], top[..., None, :])
    return (query @ key.transpose(-1, -2)).index_put(index, block)


def released_attention(
    scores: Tensor, value: Tensor, head_dim: int, valid: Tensor | None = None
) -> Tensor:
    r"""Return :math:`\mathrm{softmax}(\mathrm{scores} / \sqrt D + \mathrm{mask}) V`.

    Shapes: scores ``[B, H, L, L]``; value, output ``[B, H, L, Dv]``; valid bool ``[B, L]``.
    Reference: JAT2022, ``*SelfAttention.forward``.
    """
    logits = scores / math.sqrt(head_dim)
    if valid is not None:
        logits = logits.masked_fill(~valid[:, None, None, :], torch.finfo(logits.dtype).min)
    return logits.softmax(dim=-1) @ value
