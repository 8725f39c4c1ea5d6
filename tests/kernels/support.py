"""Ballots whose products meet the limit all the time, and what every kernel must give for them."""

import math
from itertools import product

import torch
from hypothesis import strategies as st

from jat_graph.kernels import cpu, portable
from jat_graph.voting.rule import VoteRule

IMPLEMENTATIONS = {"portable": portable, "cpu": cpu}


def brute_force(rule, scores, norms):
    """Count votes with Python's numbers, one triple at a time."""
    batch, heads, length, keys = scores.shape
    counts = torch.zeros(batch, heads, length, length, dtype=scores.dtype)
    thresholds = rule.threshold.expand(batch, heads)
    for b, h, i, k, j in product(*map(range, (batch, heads, length, length, keys))):
        left, right = scores[b, h, i, j].item(), scores[b, h, k, j].item()
        value = left * right / (1.0 if norms is None else norms[b, h, j].item())
        rho = thresholds[b, h].item()
        vote = value >= rho if rule.inclusive else value > rho
        negative = min(left, right) < 0
        if rule.soft_temperature is not None:
            vote = 1 / (1 + math.exp(-(value - rho) / rule.soft_temperature))
            negative = max(left, right) < 0
        if math.isnan(value) or (rule.same_sign_only and negative):
            vote = 0.0
        counts[b, h, i, k] += vote
    return counts


@st.composite
def ballots(draw, soft=False):
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
def columns_and_limits(draw):
    """Draw key scores ``[G, U, L]`` and limits ``[G, U]``.

    Integers, whose products meet the limits, or normal numbers; some tokens are masked for every
    key. One limit in five is that of an inclusive vote at a threshold of zero, one is infinite.
    """
    graphs, keys, length = (
        draw(st.integers(1, 2)),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 70)),
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    dtype = draw(st.sampled_from((torch.float32, torch.float64)))
    shape = graphs, keys, length
    if draw(st.booleans()):
        columns = torch.randint(-3, 4, shape, generator=generator).to(dtype)
    else:
        columns = torch.randn(shape, generator=generator, dtype=dtype)
    masked = torch.rand(graphs, 1, length, generator=generator) < draw(st.sampled_from((0.0, 0.3)))
    limits = torch.randint(0, 5, (graphs, keys), generator=generator).to(dtype)
    special = torch.rand(graphs, keys, generator=generator)
    below_zero = torch.zeros_like(limits).nextafter(torch.full_like(limits, -1.0))
    limits = torch.where(special < 0.2, below_zero, limits)
    limits = limits.masked_fill(special > 0.8, math.inf)
    return columns.masked_fill(masked, math.nan), limits


def vote_cube(columns, limits):
    """Every vote, ``[G, U, L, L]`` bool, as the rounded product says."""
    return columns.unsqueeze(-1) * columns.unsqueeze(-2) > limits[..., None, None]
