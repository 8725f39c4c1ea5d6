"""Standard scores: centred, and in standard deviations of their sequence and head.

Those of a causal sequence are running ones: mean and deviation come from the tokens up to each.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.core.compiling import full_precision
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.scores import score_dtype

PAIRS_REFUSED = (
    "standard scores need a mask of padding or causal order, got one of pairs [.., L, L]; "
    "under torch.compile pass padding as attention_mask [B, L]"
)
# Tokens of a causal sequence that get one standard deviation, that of the blocks before theirs.
BLOCK = 64


def standard_features(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    scale: float,
    mask: TokenMask,
) -> tuple[Tensor, Tensor]:  # [B, H, L, D] each
    """Return queries and keys whose scaled products are the standard scores."""
    # Centring both is double centring of the scores, and two D×D matrices hold the variance of all
    # pairs. Means and deviations are constants for the gradient. In causal order those of a token
    # come from tokens up to itself: the deviation from all complete blocks before its own, within
    # the first block from the tokens so far.
    if mask.pairs is not None:
        raise ValueError(PAIRS_REFUSED)
    if mask.causal:
        return causal_features(query, key, scale, mask.valid)[:2]
    dtype = score_dtype(query, key)
    raw = query.to(dtype), key.to(dtype)
    inside = None if mask.valid is None else _weights(mask.valid, raw[0])
    count = raw[0].new_tensor(query.size(-2)) if inside is None else inside.sum(-2, keepdim=True)
    with torch.no_grad():
        shown = raw if inside is None else (inside * raw[0], inside * raw[1])
        means = [x.sum(-2, keepdim=True) / count.clamp(min=1) for x in shown]
    centred = raw[0] - means[0], raw[1] - means[1]
    with torch.no_grad(), full_precision(query.device):
        total = raw[0].new_ones(())
        for x, own in zip(raw, centred, strict=True):
            own = own if inside is None else inside * own
            total = total * (own.mT @ own) * _above_noise(own, x).any(-2, keepdim=True)
        deviation = _inverse(total.sum((-1, -2))[..., None, None], count, scale)
    return centred[0].mul_(deviation), centred[1]


def standard_map(scores: Tensor, mask: TokenMask) -> Tensor:
    """Return a map that is centred by rows and by columns, in standard deviations."""
    if mask.pairs is not None:
        raise ValueError(PAIRS_REFUSED)
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
        deviation = _inverse(total, count)
    return (scores - centres) * deviation * pairs


def causal_features(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    scale: float,
    valid: Tensor | None,  # tokens that are no padding, [B|1, H|1, L]; None if all are
    before: Moments | None = None,  # of earlier tokens
) -> tuple[Tensor, Tensor, Moments]:  # [B, H, L, D] each
    """Return the same in causal order, and what the next tokens need of these and earlier ones."""
    # The deviation is that of all complete blocks before the token's own, within the first block
    # that of the tokens so far. Tokens are counted, not padding.
    dtype = score_dtype(query, key)
    query, key = query.to(dtype), key.to(dtype)
    with torch.no_grad(), full_precision(query.device):
        in_order = valid is None and before is None  # they stand in their blocks as they come
        before = Moments.of_nothing(query) if before is None else before
        x = torch.stack([query, key], dim=1)
        centred, means, number, total = _centred_so_far(x, valid, before)
        if x.size(-2) == 1:
            spread = torch.addcmul(before.spread, centred.mT, centred)
            own = _squares_of(spread).unsqueeze(-1)
            squares = _where(number <= BLOCK, own, before.squares)
            rest = [spread, _where(number % BLOCK == 0, own, before.squares)]
        else:
            squares, *rest = _squares_in_blocks(centred, number, before, in_order)
        complete = (number - 1) // BLOCK * BLOCK  # tokens in the blocks before a token's own
        count = torch.as_tensor(_where(number <= BLOCK, number, complete), dtype=dtype)
        deviation = _inverse(squares, count, scale).unsqueeze(-1)
        if isinstance(before.number, int) and valid is None:
            last: Tensor | int = before.number + query.size(-2)
        else:  # a copy, which does not keep the others
            last = number[..., -1:].expand(len(query), -1, -1).clone()
    after = Moments(last, total, *rest)
    return (query - means[:, 0]).mul_(deviation), key - means[:, 1], after


class Moments(NamedTuple):
    """What the standard scores of the next tokens need of the earlier ones; 2: queries, keys."""

    number: Tensor | int  # of tokens that are no padding, [B, H|1, 1]; an int if there is none
    total: Tensor  # [B, 2, H, 1, D]
    spread: Tensor  # products of all features, centred, [B, 2, H, D, D]
    squares: Tensor  # sum of squared scores, without scale, within complete blocks, [B, H, 1]

    @classmethod
    def of_nothing(cls, like: Tensor) -> Moments:  # [B, H, L, D]
        batch, heads, _, width = like.shape
        total, spread = (like.new_zeros(batch, 2, heads, rows, width) for rows in (1, width))
        return cls(0, total, spread, like.new_zeros(batch, heads, 1))


def _centred_so_far(
    x: Tensor,  # queries and keys, [B, 2, H, L, D]
    valid: Tensor | None,  # [B|1, H|1, L]
    before: Moments,
) -> tuple[Tensor, Tensor, Any, Tensor]:  # [B, 2, H, L, D] twice, [B|1, H|1, L], and their sum
    """Return features without the mean of those so far, 0 for padding; the means; the numbers."""
    # The number of one token where none is padding is an int, which no device must be asked for.
    shown = None if valid is None else valid[:, None, ..., None]
    length, number = x.size(-2), before.number + 1  # of each token, from 1
    if valid is not None:
        number = before.number + valid.cumsum(-1)
    elif length > 1:
        number = number + torch.arange(length, device=x.device)[None, None]
    count = number if isinstance(number, int) else number.clamp(min=1)[:, None, ..., None]
    own = x if shown is None else shown * x
    if length == 1:
        last = before.total + own
        means = last / count
    else:
        totals = _up_to_each(own).add_(before.total)
        last = totals[..., -1:, :].clone()  # of which means will be made
        means = totals.div_(count)
    centred = x - means
    counts = _above_noise(centred, x)
    centred *= counts if shown is None else counts & shown
    return centred, means, number, last


def _where(condition: Any, yes: Any, no: Any) -> Any:
    """Choose by one truth value, or by many."""
    if isinstance(condition, bool):
        return yes if condition else no
    return torch.where(condition, yes, no)


def _up_to_each(x: Tensor) -> Tensor:  # [B, 2, H, L, D]
    """Return the sum of all tokens up to each."""
    length = x.size(-2)
    if torch.compiler.is_compiling() or length <= BLOCK:  # any number of blocks in one graph
        return x.cumsum(-2)
    blocks = _in_blocks(x, None)
    sums = x.new_ones(BLOCK, BLOCK).tril() @ blocks  # a product takes a third of cumsum's time
    sums[..., 1:, :, :] += sums[..., :-1, -1:, :].cumsum(-3)
    return sums.flatten(-3, -2)[..., :length, :]


def _squares_in_blocks(
    x: Tensor,  # centred, 0 for padding, [B, 2, H, L, D]
    number: Tensor,  # [B|1, H|1, L]
    before: Moments,
    in_order: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # [B, H, L], and both sums after them
    """Return the sums of squared scores that tokens are measured by."""
    done = before.number // BLOCK * BLOCK  # tokens in complete blocks
    index = (number - done - 1).clamp(min=0).expand(*before.squares.shape[:2], -1)
    blocks = _in_blocks(x, None if in_order else index)
    spreads = running_sums(blocks.mT @ blocks, 3).add_(before.spread.unsqueeze(3))
    squares = torch.cat([before.squares, _squares_of(spreads)], dim=-1)  # of all before each block
    # In the first block the sum of the squared products of all tokens up to each.
    (query, key), (queries, keys) = blocks[:, :, :, 0].unbind(1), before.spread.unbind(1)
    own = (query @ key.mT).square().cumsum(-1).cumsum(-2).diagonal(dim1=-2, dim2=-1)
    across = ((query @ keys) * query + (key @ queries) * key).sum(-1).cumsum(-1)
    first = own + across + _squares_of(before.spread).unsqueeze(-1)
    first = first.gather(-1, index.clamp(max=BLOCK - 1))
    complete = (number[..., -1:] - done) // BLOCK  # blocks that become so
    return (
        torch.where(number <= BLOCK, first, squares.gather(-1, index // BLOCK)),
        spreads[:, :, :, -1].clone(),
        squares.gather(-1, complete.expand(*squares.shape[:2], -1)),
    )


def _in_blocks(
    x: Tensor,  # [B, 2, H, L, D]
    position: Tensor | None,  # of each token, counted from the first one's block, [B, H, L]
) -> Tensor:  # [B, 2, H, blocks, BLOCK, D], with 0 where there are no tokens
    *shape, length, width = x.shape
    blocks = -(-length // BLOCK)
    if position is None:
        padded = F.pad(x, (0, 0, 0, blocks * BLOCK - length))
        return padded.view(*shape, blocks, BLOCK, width)
    # Padding, which is 0, may fall on any position.
    room = x.new_zeros(*shape, (1 + blocks) * BLOCK, width)
    room.scatter_add_(3, position[:, None, ..., None].expand_as(x), x)
    return room.view(*shape, 1 + blocks, BLOCK, width)


def _squares_of(spread: Tensor) -> Tensor:  # [B, 2, H, ..., D, D], [B, H, ...]
    """Return Σ_ij (q_i · k_j)², by the products of features alone."""
    queries, keys = spread.flatten(-2).unbind(1)
    squares: Tensor = torch.linalg.vecdot(queries, keys)
    return squares


def _weights(valid: Tensor | None, like: Tensor) -> Tensor:  # [B|1, H|1, L, 1]
    """Return 1 for each token that counts, else 0."""
    if valid is None:
        return like.new_ones(1, 1, like.size(-2), 1)
    return valid.unsqueeze(-1).to(like.dtype)


def _above_noise(centred: Tensor, raw: Tensor) -> Tensor:  # [..., L, 1]
    """Return which tokens are more than rounding of the mean: equal ones have no scores at all."""
    size, whole = (torch.linalg.vector_norm(x, dim=-1, keepdim=True) for x in (centred, raw))
    return torch.gt(size, 16 * torch.finfo(raw.dtype).eps * whole)


def _inverse(total: Tensor, count: Any, scale: float = 1.0) -> Tensor:  # by a number, or one each
    """Return one over the root mean square of scores, by their squares without scale, 0 for 0."""
    size = count * scale**-1 if scale else 0.0
    return torch.where(total > 0, abs(size) * total.rsqrt(), 0.0)


def running_sums(x: Tensor, dim: int, backward: bool = False) -> Tensor:
    """Return running sums of few large entries, up to each or from it on; x may be lost."""
    if x.is_cuda or x.requires_grad or torch.compiler.is_compiling():
        return x.flip(dim).cumsum(dim).flip(dim) if backward else x.cumsum(dim)
    # On the CPU cumsum takes many times as long as additions of neighbours.
    entries = x.unbind(dim)
    for before, entry in pairwise(reversed(entries) if backward else entries):
        entry += before
    return x
