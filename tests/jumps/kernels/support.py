"""Key scores whose products meet the limits all the time, every vote of them, and each form."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.jumps.kernels import counting, ranking, significance, stone_means, threshold_product

# Where there is no GPU, Triton's interpreter runs the kernels on the CPU.
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FILES = {
    "count": counting,
    "rank": ranking,
    "peaks": significance,
    "share": stone_means,
    "give": stone_means,
    "add_joined": threshold_product,
}
TRITON = pytest.param(
    "triton",
    marks=pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed"),
)
each_form = pytest.mark.parametrize("form", ["torch", "numba", TRITON])
torch_and_triton = pytest.mark.parametrize("form", ["torch", TRITON])


def run(operation: str, form: str, *arguments: Any) -> Any:
    """Return what one form of an operation gives, on the CPU."""
    device = DEVICE if form == "triton" else torch.device("cpu")
    given = (x.to(device) if isinstance(x, Tensor) else x for x in arguments)
    result = getattr(FILES[operation], f"{operation}_{form}")(*given)
    return result.cpu() if isinstance(result, Tensor) else tuple(x.cpu() for x in result)


@contextmanager
def constants(file: ModuleType, **values: int) -> Iterator[None]:
    """Set sizes of tiles and blocks for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(file, name, value)
        yield


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute on so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@st.composite
def columns_and_limits(draw: st.DrawFn, longest: int = 70) -> tuple[Tensor, Tensor]:
    """Draw key scores ``[G, U, L]`` and limits ``[G, U]``.

    Integers, whose products meet the limits, or normal numbers; some tokens are masked for every
    key. One limit in five is that of an inclusive vote at a threshold of zero, one is infinite.
    """
    graphs, keys = draw(st.integers(1, 2)), draw(st.integers(1, 4))
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
    below_zero = torch.zeros_like(limits).nextafter(torch.full_like(limits, -1.0))
    if DEVICE.type == "cuda":  # which flushes smaller ones to zero where it compares
        below_zero = torch.full_like(limits, -torch.finfo(dtype).smallest_normal)
    limits = torch.where(special < 0.2, below_zero, limits)
    limits = limits.masked_fill(special > 0.8, math.inf)
    return columns.masked_fill(masked, math.nan), limits


def vote_cube(columns: Tensor, limits: Tensor) -> Tensor:
    """Every vote, ``[G, U, L, L]`` bool, as the rounded product says."""
    return columns.unsqueeze(-1) * columns.unsqueeze(-2) > limits[..., None, None]
