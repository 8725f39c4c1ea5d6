"""Standard scores: centred, and in standard deviations of their sequence and head."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.config import JatConfig
from jat_graph.masks import TokenMask
from jat_graph.voting.scores import MapScores, QueryKeyScores, full_precision, score_dtype

# Tokens of a causal sequence that get one standard deviation, that of the blocks before theirs.
BLOCK = 64


def score_source(
    config: JatConfig,
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    scale: float,
    mask: TokenMask,
) -> QueryKeyScores:
    """Return the scores that vote: those of queries and keys, or their standard scores."""
    if config.standardize:
        query, key = standard_features(query, key, scale, mask)
    return QueryKeyScores(query, key, scale)


def map_source(config: JatConfig, scores: Tensor, mask: TokenMask) -> MapScores:
    """Return the scores of a ready-made map ``[B, H, L, L]`` that vote."""
    return MapScores(_standard_map(scores, mask) if config.standardize else scores)


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
    dtype = score_dtype(query, key)
    query, key = query.to(dtype), key.to(dtype)
    with torch.no_grad(), full_precision(query.device):
        means, inverse = (_causal if mask.causal else _whole)(query, key, scale, mask.valid)
    return (query - means[0]) * inverse, key - means[1]


def _whole(
    query: Tensor, key: Tensor, scale: float, valid: Tensor | None
) -> tuple[tuple[Tensor, Tensor], Tensor]:  # means, inverse deviation, [B, H, 1, ...]
    inside = _weights(valid, query)
    count = inside.sum(-2, keepdim=True).clamp(min=1)
    means = tuple((inside * x).sum(-2, keepdim=True) / count for x in (query, key))
    centred = [inside * _without_noise(x - m, x) for x, m in zip((query, key), means, strict=True)]
    spread = [x.mT @ x for x in centred]  # [B, H, D, D]
    total = (spread[0] * spread[1]).sum((-1, -2))[..., None, None]
    return (means[0], means[1]), _inverse(total, count * scale**-1)


def _causal(
    query: Tensor, key: Tensor, scale: float, valid: Tensor | None
) -> tuple[tuple[Tensor, Tensor], Tensor]:  # means, inverse deviation, [B, H, L, ...]
    length = query.size(-2)
    if valid is None:
        return _causal_means(query, key, scale)
    # Tokens are counted, not padding: bring them together, and take the results apart again.
    order = (~valid).long().argsort(dim=-1, stable=True).unsqueeze(-1)
    inside = _weights(valid, query)
    queries, keys = ((inside * x).take_along_dim(order, -2) for x in (query, key))
    means, inverse = _causal_means(queries, keys, scale)
    back = order.argsort(dim=-2)
    query_mean, key_mean, inverse = (
        x.expand(*query.shape[:2], length, -1).take_along_dim(back, -2) for x in (*means, inverse)
    )
    return (query_mean, key_mean), inverse


def _causal_means(
    query: Tensor, key: Tensor, scale: float
) -> tuple[tuple[Tensor, Tensor], Tensor]:  # means, inverse deviation, [B, H, L, ...]
    length = query.size(-2)
    number = torch.arange(1, length + 1, dtype=query.dtype, device=query.device).unsqueeze(-1)
    means = query.cumsum(-2) / number, key.cumsum(-2) / number
    centred = [_without_noise(x - m, x) for x, m in zip((query, key), means, strict=True)]
    # Within the first block: squares of the scores of all tokens so far.
    first = centred[0][..., :BLOCK, :] @ centred[1][..., :BLOCK, :].mT
    squares = first.square().cumsum(-1).cumsum(-2).diagonal(dim1=-2, dim2=-1)
    sums, counts = squares.unsqueeze(-1), number[:BLOCK]
    if length > BLOCK:
        sums = torch.cat([sums, _sums_of_blocks(centred, length)], dim=-2)
        blocks = torch.arange(BLOCK, length, device=query.device) // BLOCK * BLOCK
        counts = torch.cat([counts, blocks.unsqueeze(-1).to(counts.dtype)])
    return means, _inverse(sums, counts * scale**-1)


def _sums_of_blocks(centred: list[Tensor], length: int) -> Tensor:  # [B, H, L - BLOCK, 1]
    """Return, for each token after the first block, the squares of all pairs in earlier blocks."""
    complete = (length - 1) // BLOCK
    sums = [_squares(x[..., : complete * BLOCK, :]).cumsum(-3) for x in centred]
    totals: Tensor = (sums[0] * sums[1]).sum((-1, -2))  # [B, H, blocks]
    return totals.repeat_interleave(BLOCK, dim=-1)[..., : length - BLOCK].unsqueeze(-1)


def _squares(x: Tensor) -> Tensor:  # [B, H, blocks, D, D]
    """Return the products of all features, summed over each block of tokens."""
    blocks = x.view(*x.shape[:2], -1, BLOCK, x.size(-1))
    return blocks.mT @ blocks


def _weights(valid: Tensor | None, like: Tensor) -> Tensor:  # [B|1, H|1, L, 1]
    """Return 1 for each token that counts, else 0."""
    if valid is None:
        return like.new_ones(1, 1, like.size(-2), 1)
    return valid.unsqueeze(-1).to(like.dtype)


def _without_noise(centred: Tensor, raw: Tensor) -> Tensor:
    """Set to 0 what is nothing but rounding of the mean: equal tokens have no scores at all."""
    least = 16 * torch.finfo(raw.dtype).eps
    large = centred.abs().amax(-1, keepdim=True) > least * raw.abs().amax(-1, keepdim=True)
    return centred * large


def _inverse(total: Tensor, count: Tensor) -> Tensor:
    """Return one over the root mean square of scores, by the sum of their squares; 0 for none."""
    return torch.where(total > 0, count.abs() * total.rsqrt(), 0.0)


def _standard_map(scores: Tensor, mask: TokenMask) -> Tensor:
    """Return a map that is centred by rows and by columns, in standard deviations."""
    _refuse_pairs(mask)
    if mask.causal:
        raise ValueError("standardize needs query and key in causal order, got a map of scores")
    scores = scores.to(score_dtype(scores, scores))
    inside = _weights(mask.valid, scores)
    pairs = inside * inside.mT
    count = inside.sum(-2, keepdim=True).clamp(min=1)
    with torch.no_grad():
        rows, columns = ((pairs * scores).sum(dim, keepdim=True) / count for dim in (-1, -2))
        centres = rows + columns - (inside * rows).sum(-2, keepdim=True) / count
        total = (pairs * (scores - centres).square()).sum((-1, -2), keepdim=True)
        inverse = _inverse(total, count)
    return (scores - centres) * inverse * pairs


def _refuse_pairs(mask: TokenMask) -> None:
    if mask.pairs is not None:
        raise ValueError(
            "standard scores need a mask of padding or causal order, got one of pairs [.., L, L]; "
            "under torch.compile pass padding as attention_mask [B, L]"
        )
