"""``memory``: the peak memory of one attention layer over the length."""

from __future__ import annotations

import torch.nn.functional as F

from jat_graph.attention.api import jump_attention
from jat_graph.config import JatConfig
from jat_graph.lab.speed.heads import backward, check_head, leaves
from jat_graph.lab.speed.inputs import (
    HEAD_DIM,
    NUM_HEADS,
    THRESHOLD,
    Heads,
    draw_heads,
    number_of_keys,
)
from jat_graph.lab.speed.probe import peak_of, probe
from jat_graph.lab.speed.series import Bar, Benchmark, Outcome, Series, Settings
from jat_graph.lab.speed.spread import Spread
from jat_graph.training.memory import missing_peaks

JUMP, STOCK = "jump", "stock"
CONFIG = JatConfig.paper(threshold=THRESHOLD, heads=NUM_HEADS, key_selection="significance")
WHAT = f"JAT† layer, significance, {NUM_HEADS} heads"
AGAINST = "the same layer on SDPA"
LENGTHS = tuple(2**exponent for exponent in range(10, 17))
MOST_PROCESSES = 3  # a side; peaks hardly vary
PATIENCE = 900.0  # seconds
WARM_UP_LENGTH = 64


def _measure(length: int, settings: Settings) -> Outcome:
    if missing := missing_peaks(settings.device):
        return Outcome(note=f"not measured: {missing}")
    heads = draw_heads(length, NUM_HEADS, device=settings.torch_device, dtype=settings.dtype)
    facts = check_head(f"{WHAT}, L={length}", heads, CONFIG)
    del heads
    pairs = [
        tuple(probe(__name__, side, length, settings.device) for side in (JUMP, STOCK))
        for _ in range(min(settings.repeats, MOST_PROCESSES))
    ]
    ours, theirs = (Spread.of([float(pair[side]) for pair in pairs]) for side in (0, 1))
    ratio = Spread.of([jump / stock for jump, stock in pairs])
    extra = ours.median - theirs.median
    return Outcome(
        ours,
        theirs,
        ratio,
        {**facts, "extra_bytes": extra, "multiple": extra / own_bytes(length, settings)},
    )


def own_bytes(length: int, settings: Settings) -> int:
    """The size of queries, keys and key scores together."""
    per_token = 2 * HEAD_DIM * settings.dtype.itemsize + 4 * number_of_keys(length)
    return NUM_HEADS * length * per_token


def run_side(side: str, length: int, settings: Settings) -> int:
    """Run one layer forward and backward, and return what it took above what was there before."""
    device = settings.torch_device
    small, heads = (
        draw_heads(size, NUM_HEADS, device=device, dtype=settings.dtype)
        for size in (WARM_UP_LENGTH, length)
    )
    for backend in ("dense", "threshold"):  # compiles kernels and fills the libraries' own pools
        run_layer(side, small, CONFIG.replace(backend=backend))
    return peak_of(lambda: run_layer(side, heads), device)


def run_layer(side: str, heads: Heads, config: JatConfig = CONFIG) -> None:
    """Run the attention of one layer, forward and backward."""
    if side == JUMP:
        backward(jump_attention(*leaves(heads), config=config))
    else:
        backward(F.scaled_dot_product_attention(*leaves(heads)))


MEMORY = Benchmark(
    name="memory",
    claim=(
        f"Peak memory of one attention layer of {NUM_HEADS} heads, forward and backward, B = 1, "
        "D = 64, above what its process held before, each point in a fresh process. The extra "
        "memory is also given as a multiple of Q, K and the key scores together."
    ),
    series=lambda settings: (Series(WHAT, AGAINST, LENGTHS, 2**20, _measure),),
    unit="bytes",
    patience=PATIENCE,
    bars=(Bar("cpu", WHAT, AGAINST, 0, 2**31, 3.0, "multiple"),),  # of any length
    growing=("ours", "theirs", "extra_bytes"),
)
