"""Standard scores: centred, and in standard deviations of their sequence and head."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.masks.tokens import TokenMask
from jat_graph.voting.moments import Moments, above_noise, causal_moments, inverse, weights
from jat_graph.voting.scores import full_precision, score_dtype


def standard_features(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    scale: float,
    mask: TokenMask,
) -> tuple[Tensor, Tensor]:  # [B, H, L, D] each
    """Return queries and keys whose scaled products are the standard scores.

    Centring both is double centring of the scores, and two D×D matrices hold the variance of all
    pairs. Means and deviations are constants for the gradient. In causal order those of a token
    come from tokens up to itself: the deviation from all complete blocks before its own, within
    the first block from the tokens so far.
    """
    _refuse_pairs(mask)
    if mask.causal:
        return causal_features(query, key, scale, mask.valid)[:2]
    query, key = _same_dtype(query, key)
    with torch.no_grad():
        inside = None if mask.valid is None else weights(mask.valid, query)
        count = query.new_tensor(query.size(-2)) if inside is None else inside.sum(-2, keepdim=True)
        means = [_mean(x, inside, count) for x in (query, key)]
    centred = query - means[0], key - means[1]
    with torch.no_grad(), full_precision(query.device):
        deviation = _inverse_deviation(centred, (query, key), scale, inside, count)
    return centred[0].mul_(deviation), centred[1]


def causal_features(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    scale: float,
    valid: Tensor | None,  # tokens that are no padding, [B|1, H|1, L]
    before: Moments | None = None,  # of earlier tokens
) -> tuple[Tensor, Tensor, Moments]:  # [B, H, L, D] each
    """Return the same in causal order, for tokens that may come after others, and their moments."""
    query, key = _same_dtype(query, key)
    with torch.no_grad(), full_precision(query.device):
        means, inverse_deviation, after = causal_moments(query, key, scale, valid, before)
    return (query - means[0]).mul_(inverse_deviation), key - means[1], after


def _same_dtype(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    dtype = score_dtype(query, key)
    return query.to(dtype), key.to(dtype)


def _mean(x: Tensor, inside: Tensor | None, count: Tensor) -> Tensor:  # [B, H, 1, D]
    total = (x if inside is None else inside * x).sum(-2, keepdim=True)
    return total / count.clamp(min=1)


def _inverse_deviation(
    centred: tuple[Tensor, Tensor],  # queries and keys, [B, H, L, D]
    raw: tuple[Tensor, Tensor],
    scale: float,
    inside: Tensor | None,  # 1 for each token that counts, else 0, [B|1, H|1, L, 1]
    count: Tensor,
) -> Tensor:  # [B, H, 1, 1]
    total = raw[0].new_ones(())
    for own, x in zip(centred, raw, strict=True):
        shown = own if inside is None else inside * own
        total = total * (shown.mT @ shown) * above_noise(shown, x).any(-2, keepdim=True)
    total = total.sum((-1, -2))[..., None, None]
    return inverse(total, count * scale**-1)


def standard_map(scores: Tensor, mask: TokenMask) -> Tensor:
    """Return a map that is centred by rows and by columns, in standard deviations."""
    _refuse_pairs(mask)
    if mask.causal:
        raise ValueError("standardize needs query and key in causal order, got a map of scores")
    scores = scores.to(score_dtype(scores, scores))
    inside = weights(mask.valid, scores)
    pairs = inside * inside.mT
    count = inside.sum(-2, keepdim=True).clamp(min=1)
    with torch.no_grad():
        rows, columns = ((pairs * scores).sum(dim, keepdim=True) / count for dim in (-1, -2))
        centres = rows + columns - (inside * rows).sum(-2, keepdim=True) / count
        total = (pairs * (scores - centres).square()).sum((-1, -2), keepdim=True)
        deviation = inverse(total, count)
    return (scores - centres) * deviation * pairs


def _refuse_pairs(mask: TokenMask) -> None:
    if mask.pairs is not None:
        raise ValueError(
            "standard scores need a mask of padding or causal order, got one of pairs [.., L, L]; "
            "under torch.compile pass padding as attention_mask [B, L]"
        )
