"""What to expect of trees on GPUs, counted on paper: ``python -m examples.bench roofline``.

Products, bytes and launches of one layer, of SDPA as flash attention and of the kernel of trees, go
by the speeds of a chip; what takes longest decides. Trees are taken to be built, and a new token's
keys to be read by all of the chip at once. What the host does between launches is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jat_graph.clusters.choice import Rule
from jat_graph.clusters.tree import FAN

HEADS, KV_HEADS, DIM, BYTES = 32, 8, 128, 2  # of a Llama of 8 billion parameters, in bfloat16
ROWS = 16  # queries of a tile, as in jat_graph.clusters.gpu.launching
LENGTHS = (8192, 32_768, 131_072)
# Launches of SDPA and of trees, of a prompt and of a new token; tests count ours.
PROMPT = 1, 12
TOKEN = 2, 5


class Chip(NamedTuple):
    """What a chip does in a second, at the share of its best that kernels reach."""

    tensor: float  # products of bfloat16 on tensor cores, and sums
    plain: float  # of float32
    cache: float  # bytes from its last cache
    memory: float  # bytes
    launch: float = 5e-6  # seconds


# By their makers' sheets, at 0.6 of the products and 0.8 of the memory; caches as others measured.
CHIPS = {
    "A100": Chip(0.6 * 312e12, 0.6 * 19.5e12, 4.5e12, 0.8 * 2.0e12),
    "H200": Chip(0.6 * 989e12, 0.6 * 67e12, 5.5e12, 0.8 * 4.8e12),
    "L4": Chip(0.6 * 121e12, 0.6 * 30e12, 1.5e12, 0.8 * 0.3e12),
    "RTX 4090": Chip(0.6 * 165e12, 0.6 * 83e12, 4.5e12, 0.8 * 1.0e12),
}


class Rows(NamedTuple):
    """Rows of keys and of values, of tokens or of means, that a query reads."""

    shared: float  # with the queries of its tile, by matrix products
    own: float


def rows_of(position: int, rule: Rule) -> Rows:
    """Return what the kernel reads for a token, by its place from 0."""
    seen = rule.seen(position)
    level = rule.level(seen)
    nodes = seen // FAN**level
    near = position + 1 - seen * rule.size
    if not seen:
        return Rows(2 * near, 0)
    children = sum(FAN * min(rule.groups, nodes * FAN**n) for n in range(level))
    keys = min(rule.clusters, seen) * rule.size
    # Nodes of the top are scored three times, and children twice; each is read once.
    return Rows(2 * near + 4 * nodes, 3 * children + 2 * keys)


def prompt(length: int, chip: Chip, rule: Rule) -> tuple[float, float]:
    """Return seconds of a prompt, by SDPA and by trees."""
    moved = 2 * (HEADS + KV_HEADS) * length * DIM * BYTES
    products = 2 * DIM * HEADS * length**2  # two, of half of the pairs, each and its sum
    dense = max(products / chip.tensor, moved / chip.memory)
    every = [rows_of(place, rule) for place in range(rule.segment // 2, length, rule.segment)]
    shared, own = (HEADS * length * sum(x) / len(every) for x in zip(*every, strict=True))
    ours = max(
        2 * DIM * shared / chip.tensor,
        2 * DIM * own / chip.plain,
        (shared / ROWS + own) * DIM * BYTES / chip.cache,
        moved / chip.memory,
    )
    return dense + PROMPT[0] * chip.launch, ours + PROMPT[1] * chip.launch


def new_token(length: int, chip: Chip, rule: Rule) -> tuple[float, float]:
    """Return seconds of a token after a prompt, by SDPA and by trees: bytes, and launches."""
    shared, own = rows_of(length, rule)
    dense = 2 * KV_HEADS * length * DIM * BYTES / chip.memory
    ours = (KV_HEADS * shared + HEADS * own) * DIM * BYTES / chip.memory
    return dense + TOKEN[0] * chip.launch, ours + TOKEN[1] * chip.launch


def table(lengths: Sequence[int]) -> Iterator[str]:
    """Yield a line for each chip and length, and from which length on prompts are faster."""
    rule = Rule()
    yield "|chip|tokens|prompt, ms: SDPA, trees|ratio|new token, µs|ratio|"
    yield f"|{'-|' * 6}"
    for name, chip in CHIPS.items():
        for length in lengths:
            cells = [name, f"{length}"]
            for cost, unit in ((prompt, 1e3), (new_token, 1e6)):
                dense, ours = cost(length, chip, rule)
                cells += [f"{dense * unit:.3g}, {ours * unit:.3g}", f"{ours / dense:.2f}"]
            yield f"|{'|'.join(cells)}|"
    found = [f"{name} {break_even(chip, rule)}" for name, chip in CHIPS.items()]
    yield f"\nTokens from which on prompts take less time than by SDPA: {', '.join(found)}."


def break_even(chip: Chip, rule: Rule) -> int:
    """Return from how many tokens on trees read a prompt in less time."""
    length = 4096
    while prompt(length, chip, rule)[1] >= prompt(length, chip, rule)[0]:
        length += 4096
    return length
