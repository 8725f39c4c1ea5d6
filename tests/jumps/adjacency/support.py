"""Ballots whose products meet the limit all the time, their votes by definition, and samples."""

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

from jat_graph import JatConfig
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.keys import sampled_positions
from jat_graph.jumps.adjacency.pairs import VoteRule, _sampled_triples
from jat_graph.jumps.adjacency.scores import QueryKeyScores


def votes_by_definition(rule, scores, norms):
    """Count the votes for each pair of tokens, [B, H, L, L], key by key."""
    left, right = scores.unsqueeze(-2), scores.unsqueeze(-3)
    product = left * right / (1.0 if norms is None else norms[:, :, None, None])
    rho = rule.threshold.expand(scores.shape[:2])[..., None, None, None]
    if rule.soft_temperature is None:
        vote = (product >= rho if rule.inclusive else product > rho).to(scores.dtype)
        negative = torch.minimum(left, right) < 0
    else:
        vote = ((product - rho) / rule.soft_temperature).sigmoid()
        negative = torch.maximum(left, right) < 0
    gone = product.isnan() | (negative & rule.same_sign_only)
    return vote.masked_fill(gone, 0.0).sum(-1)


@st.composite
def adjacencies(draw, soft=False):
    """Draw scores that are small integers, masked ones among them, so that products meet ρ."""
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    length, keys = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    shape = (batch, heads, length, keys)
    scores = torch.randint(-2, 3, shape, generator=generator).double()
    masked = torch.rand(shape, generator=generator) < draw(st.sampled_from((0.0, 0.3)))
    norms = None
    if draw(st.booleans()):
        norms = 2.0 ** torch.randint(0, 2, (batch, heads, keys), generator=generator)
    threshold = torch.randint(0, 5, (draw(st.sampled_from((1, batch))), heads), generator=generator)
    rule = VoteRule(
        threshold.double(),
        inclusive=draw(st.booleans()),
        same_sign_only=draw(st.booleans()),
        soft_temperature=0.7 if soft else None,
    )
    norms = None if norms is None else norms.double()
    return rule, scores.masked_fill(masked, math.nan), norms


@st.composite
def drawn_heads(draw, longest):
    """Draw queries and keys ``[B, H, L, D]``, and which tokens are valid, ``[B, L]`` or None."""
    batch, heads, width = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 5))
    length = draw(st.integers(1, longest))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    query, key = torch.randn(2, batch, heads, length, width, generator=generator).double() + 1
    share = draw(st.sampled_from((None, None, 0.2, 0.9)))
    if share is None:
        return query, key, None
    return query, key, torch.rand(batch, length, generator=generator) < share


def sampled_ranks(config: JatConfig, count: int) -> Tensor:
    """Return the ranks that the library samples from a sequence of ``count`` tokens."""
    valid = torch.ones(1, 1, count, dtype=torch.bool)
    position, chosen = sampled_positions(config, valid, valid.sum(-1, keepdim=True))
    return position[chosen].sort().values


def sampled_triples(config: JatConfig, count: int) -> Tensor:
    """Return the triples (i, k, j) that the library samples: ``[T, 3]``."""
    nothing = torch.zeros(1, 1, count, 1)
    *triples, _ = _sampled_triples(config, QueryKeyScores(nothing, nothing, 1.0), TokenMask())
    return torch.stack([ranks[0, 0] for ranks in triples], dim=-1)
