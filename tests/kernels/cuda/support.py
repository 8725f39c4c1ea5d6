"""Ballots for the Triton kernels, and what every vote is by definition."""

import math

import torch
from hypothesis import strategies as st

# Where there is no GPU, Triton's interpreter runs the kernels on the CPU.
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
REPEATS = 50 if torch.cuda.is_available() else 2


@st.composite
def ballots(draw, longest=20):
    """Draw key scores ``[G, U, L]`` and limits ``[G, U]``.

    Integers, whose products meet the limits, or normal numbers. Some tokens are masked.
    Some limits are infinite, and some those of an inclusive vote at a ρ of zero.
    """
    graphs, keys = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    length = draw(st.integers(1, longest))
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
    limits = limits.masked_fill(special > 0.8, math.inf)
    limits = limits.masked_fill(special < 0.2, -torch.finfo(dtype).smallest_normal)
    columns = columns.masked_fill(masked, math.nan)
    return columns.to(DEVICE), limits.to(DEVICE)


def all_votes(columns, limits):
    """Return every vote as the rounded product says, ``[G, U, L, L]`` bool."""
    return columns.unsqueeze(-1) * columns.unsqueeze(-2) > limits[..., None, None]


def features_of(columns, seed, width):
    """Return normal features in float64, zero where a token is masked."""
    x = random_rows(seed, columns.size(0), columns.size(2), width, dtype=torch.float64)
    return x.masked_fill(columns.isnan().all(1).unsqueeze(-1), 0.0)


def random_columns(seed, *shape, dtype=torch.float32):
    """Return normal key scores, some of them masked."""
    generator = torch.Generator().manual_seed(seed)
    columns = torch.randn(shape, generator=generator, dtype=dtype)
    masked = torch.rand(shape, generator=generator) < 0.1
    return columns.masked_fill(masked, math.nan).to(DEVICE)


def random_rows(seed, *shape, dtype=torch.float32):
    """Return normal features."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype).to(DEVICE)
