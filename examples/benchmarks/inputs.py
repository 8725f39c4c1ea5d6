"""Random heads whose graphs do real work: with small scores nothing is joined, and all is fast."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from examples.benchmarks.measure import Settings

THRESHOLD = 6.0  # the paper's ρ
HEADS, DIM = 4, 64
# Shares of the pairs that some key joins, and of the tokens that the median key joins to others:
WANTED, LEAST = (0.66, 0.56), (0.6, 0.5)


class Heads(NamedTuple):
    """Queries, keys and values, ``[1, H, L, D]``."""

    query: Tensor
    key: Tensor
    value: Tensor


def number_of_keys(length: int) -> int:
    """U = ⌈5 ln L⌉, at most L."""
    return min(length, math.ceil(5 * math.log(length)))


def draw_heads(length: int, heads: int, settings: Settings) -> Heads:
    """Gaussian heads, their queries scaled until the graphs do real work; alike on every device."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(1, heads, length, DIM, generator=generator) for _ in range(3)]
    query, key, value = (tensor.to(settings.device) for tensor in drawn)
    factor = (THRESHOLD / wanted_threshold(key_scores(query, key))).sqrt()
    scaled = query * factor[..., None, None], key, value
    return Heads(*(tensor.to(settings.dtype) for tensor in scaled))


def key_scores(query: Tensor, key: Tensor, number: int | None = None) -> Tensor:  # [B, H, L, U]
    """Scores with U = ⌈5 ln L⌉ evenly spaced keys, or so many."""
    length = key.size(2)
    number = number_of_keys(length) if number is None else min(number, length)
    spaced = torch.arange(number, device=key.device) * length // number
    return query.float() @ key[:, :, spaced].float().mT / math.sqrt(query.size(-1))


def votes(scores: Tensor) -> tuple[Tensor, Tensor]:  # [B, H, U, L], [B, H, U]
    """What kernels take: columns of scores, and the product that a vote must exceed."""
    return scores.mT, torch.full_like(scores[:, :, 0], THRESHOLD)


def wanted_threshold(scores: Tensor) -> Tensor:  # [B, H]
    """The threshold at which each head's graph would do the wanted work."""
    pairs, tokens = _peaks(scores)
    part = max(1, math.floor((1 - WANTED[1]) * scores.size(2)))
    by_key = tokens.kthvalue(part, dim=2).values  # [B, H, U]
    joined = pairs.quantile(1 - WANTED[0], dim=-1, interpolation="lower")
    return torch.minimum(joined, by_key.quantile(0.5, dim=-1)).clamp(min=1e-6)


def require_work(heads: Heads) -> dict[str, Any]:
    """What the graph of evenly spaced keys has to do, in the head that has the least."""
    pairs, tokens = _peaks(key_scores(heads.query, heads.key))
    joined = float((pairs > THRESHOLD).float().mean(-1).min())
    taking_part = float((tokens > THRESHOLD).float().mean(2).quantile(0.5, dim=-1).min())
    if joined < LEAST[0] or taking_part < LEAST[1]:
        raise AssertionError(f"shares must be at least {LEAST}, got {joined} and {taking_part}")
    return {"joined": joined, "taking_part": taking_part}


def _peaks(scores: Tensor) -> tuple[Tensor, Tensor]:  # [B, H, P], [B, H, L, U]
    """The largest product over keys of sampled pairs i ≠ k, and of each token by key."""
    generator = torch.Generator().manual_seed(2)
    first = torch.randint(scores.size(2), (2**14,), generator=generator).to(scores.device)
    apart = torch.randint(1, scores.size(2), (2**14,), generator=generator).to(scores.device)
    pairs = scores[:, :, first] * scores[:, :, (first + apart) % scores.size(2)]
    found = []
    for sign in (1, -1):
        best = (sign * scores).topk(2, dim=2).values  # a token that is the extreme meets the second
        other = torch.where(sign * scores == best[:, :, :1], best[:, :, 1:], best[:, :, :1])
        found.append(scores * sign * other)
    return pairs.amax(-1), torch.maximum(*found)
