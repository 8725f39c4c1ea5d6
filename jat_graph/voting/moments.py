"""Means and deviations of causal sequences: those of each token, from tokens up to itself."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Tokens of a causal sequence that get one standard deviation, that of the blocks before theirs.
BLOCK = 64


class Sums(NamedTuple):
    """What queries, or keys, of the tokens so far come to."""

    total: Tensor  # [B, H, 1, D]
    spread: Tensor  # products of all features, centred, over complete blocks, [B, H, D, D]
    block: Tensor  # tokens of the block in progress, centred, and 0 behind them, [B, H, BLOCK, D]


class Moments(NamedTuple):
    """What the standard scores of the next tokens need of the earlier ones."""

    number: Tensor  # of tokens that are no padding, [B, H|1, 1]
    query: Sums
    key: Sums

    @classmethod
    def of_nothing(cls, like: Tensor) -> Moments:  # [B, H, L, D]
        """Return those of no tokens."""
        batch, heads, _, width = like.shape
        zeros = Sums(*(like.new_zeros(batch, heads, rows, width) for rows in (1, width, BLOCK)))
        return cls(like.new_zeros(batch, 1, 1, dtype=torch.long), zeros, zeros)


def causal_moments(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    scale: float,
    valid: Tensor | None,  # tokens that are no padding, [B|1, H|1, L]; None if all are
    before: Moments | None = None,
) -> tuple[tuple[Tensor, Tensor], Tensor, Moments]:  # [B, H, L, D] each, [B, H, L, 1]
    """Return means and inverse deviation of each token, and what the next tokens need of all.

    The deviation is that of all complete blocks before the token's own, within the first block that
    of the tokens so far. Tokens are counted, not padding.
    """
    in_order = valid is None and before is None  # they stand in their blocks as they come
    before = Moments.of_nothing(query) if before is None else before
    inside = weights(valid, query)
    number = before.number + inside.squeeze(-1).long().cumsum(-1)  # of a token, from 1, [B, H|1, L]
    done = before.number // BLOCK * BLOCK  # tokens in complete blocks
    place = (number - done - 1).clamp(min=0)  # of a token behind them
    complete = (number[..., -1:] - done) // BLOCK  # blocks that become so
    means, blocks, spreads, after = [], [], [], []
    for x, earlier in ((query, before.query), (key, before.key)):
        totals = earlier.total + (x if valid is None else inside * x).cumsum(-2)
        means.append(totals / number.clamp(min=1).unsqueeze(-1))
        centred = x - means[-1]
        centred *= above_noise(centred, x) if valid is None else inside * above_noise(centred, x)
        blocks.append(_in_blocks(centred, earlier.block, None if in_order else place))
        spread = torch.cat([earlier.spread.unsqueeze(2), blocks[-1].mT @ blocks[-1]], dim=2)
        spreads.append(spread.cumsum_(2))
        rest = (_at(parts, complete) for parts in (spreads[-1], blocks[-1]))
        after.append(Sums(totals[:, :, -1:], *rest))
    squares = _squares_so_far(*(x[:, :, 0] for x in blocks))  # of the first block
    earlier_squares = (spreads[0] * spreads[1]).sum((-1, -2))  # of all tokens before each block
    first, places = number <= BLOCK, place.expand(*query.shape[:2], -1)
    total = torch.where(
        first,
        squares.gather(-1, places.clamp(max=BLOCK - 1)),
        earlier_squares.gather(-1, places // BLOCK),
    )
    count = torch.where(first, place + 1, done + place // BLOCK * BLOCK).to(query.dtype)
    deviation = inverse(total, count * scale**-1).unsqueeze(-1)
    return (means[0], means[1]), deviation, Moments(number[..., -1:], *after)


def _in_blocks(
    x: Tensor,  # [B, H, L, D]
    block: Tensor,  # that in progress before them, [B, H, BLOCK, D]
    place: Tensor | None,  # of each token, counted from that block's first, [B, H|1, L]
) -> Tensor:  # [B, H, blocks, BLOCK, D], the last of them incomplete
    if place is None:
        padded = F.pad(x, (0, 0, 0, BLOCK - x.size(2) % BLOCK))
    else:  # padding, which is 0, may fall on any place
        room = F.pad(block, (0, 0, 0, -(-x.size(2) // BLOCK) * BLOCK))
        padded = room.scatter_add(2, place.unsqueeze(-1).expand_as(x), x)
    return padded.view(*x.shape[:2], -1, BLOCK, x.size(-1))


def _at(blocks: Tensor, index: Tensor) -> Tensor:
    """Return one of the blocks ``[B, H, blocks, ., .]`` for each sequence, ``[B, H, ., .]``."""
    batch, heads, number = blocks.shape[:3]
    first = torch.arange(0, batch * heads * number, number, device=blocks.device)
    places = (first.view(batch, heads) + index.squeeze(-1)).flatten()
    chosen = blocks.flatten(0, 2).index_select(0, places)  # whole, where gather goes entry by entry
    return chosen.view(batch, heads, *blocks.shape[3:])


def _squares_so_far(query: Tensor, key: Tensor) -> Tensor:  # [B, H, n, D] each; [B, H, n]
    """Return the sum of the squared products of all tokens up to each."""
    squares = (query @ key.mT).square()
    return squares.cumsum(-1).cumsum(-2).diagonal(dim1=-2, dim2=-1)


def weights(valid: Tensor | None, like: Tensor) -> Tensor:  # [B|1, H|1, L, 1]
    """Return 1 for each token that counts, else 0."""
    if valid is None:
        return like.new_ones(1, 1, like.size(-2), 1)
    return valid.unsqueeze(-1).to(like.dtype)


def above_noise(centred: Tensor, raw: Tensor) -> Tensor:  # [..., L, 1]
    """Return which tokens are more than rounding of the mean: equal ones have no scores at all."""
    size, whole = (torch.linalg.vector_norm(x, dim=-1, keepdim=True) for x in (centred, raw))
    return torch.gt(size, 16 * torch.finfo(raw.dtype).eps * whole)


def inverse(total: Tensor, count: Tensor) -> Tensor:
    """Return one over the root mean square of scores, by the sum of their squares; 0 for none."""
    return torch.where(total > 0, count.abs() * total.rsqrt(), 0.0)
