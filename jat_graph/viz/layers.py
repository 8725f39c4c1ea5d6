"""Panels of layers that read something else than single tokens: memory slots, areas, blocks."""

from __future__ import annotations

from typing import TypeAlias

import torch

from jat_graph.checks.layers import read_layer
from jat_graph.nn.area_attention import AreaAttention
from jat_graph.nn.biblosa import BlockSelfAttention, least_memory
from jat_graph.nn.memory_compressed import MemoryCompressedAttention
from jat_graph.viz.figures import Panel, colours_of

Layer: TypeAlias = MemoryCompressedAttention | AreaAttention | BlockSelfAttention

MOST_AREAS = 4096  # of which each has a column


def parse_layer(spec: str) -> Layer:
    """Return the layer that a text means, without weights."""
    name, arguments = read_layer(spec)
    with torch.device("meta"):
        if name == "area":
            return AreaAttention(1, 1, arguments[0], is_causal=bool(arguments[1]))
        if name == "block":
            return BlockSelfAttention(1, block_length=arguments[0])
        kernel, stride, causal = arguments
        return MemoryCompressedAttention(1, 1, kernel, stride, bool(causal))


def layer_panels(layer: Layer, length: int) -> list[Panel]:
    """Return what a layer reads in a sequence without padding."""
    if isinstance(layer, MemoryCompressedAttention):
        return [_memory_panel(layer, length)]
    if isinstance(layer, AreaAttention):
        return _area_panels(layer, length)
    if isinstance(layer, BlockSelfAttention):
        return _block_panels(layer, length)
    raise ValueError(f"patterns must be patterns or layers, got {type(layer).__name__}")


def _memory_panel(layer: MemoryCompressedAttention, length: int) -> Panel:
    """The tokens in the windows of the slots that a query reads; neighbours differ in colour."""
    place, start = torch.arange(length), torch.arange(0, length, layer.stride)
    stop = start + layer.kernel_size
    inside = (place >= start[:, None]) & (place < stop[:, None])  # [M, L]
    read = torch.ones(length, len(start), dtype=torch.bool)
    if layer.is_causal:
        read = stop <= place[:, None]  # [L, M]
    first = (place == 0).expand(length, length)
    ways = [read[:, parity::2].float() @ inside[parity::2].float() for parity in (0, 1)]
    spec = f"memory-compressed:{layer.kernel_size}:{layer.stride}" + ":causal" * layer.is_causal
    return Panel(
        f"{spec}\n{length} tokens in {1 + len(start)} keys",
        colours_of(torch.stack([first, *ways])),
        ("first token", "slots 0, 2, …", "slots 1, 3, …"),
        columns="token in the window of a key",
    )


def _area_panels(layer: AreaAttention, length: int) -> list[Panel]:
    """The tokens of each area, and the areas that a query reads, a colour for each width."""
    areas = layer.areas
    if areas.height > 1:
        raise ValueError(f"height must be 1 for areas to be drawn, got {areas.height}")
    widths = range(min(areas.max_width, length))
    if (count := sum(length - width for width in widths)) > MOST_AREAS:
        raise ValueError(f"areas must be at most {MOST_AREAS} to be drawn, got {count}")
    tokens = torch.eye(length, dtype=torch.int)
    order = torch.ones_like(tokens).tril() if layer.is_causal else torch.ones_like(tokens)
    read = areas.readable(order.bool())  # [L, A]
    width = areas.sizes(tokens)[:, 1]  # [A]
    names = tuple(f"{wide + 1} token{'s' * bool(wide)}" for wide in widths)
    spec = f"area:{areas.max_width}" + ":causal" * layer.is_causal
    shown = (
        (f"{length} tokens make {count} areas", areas.sums(tokens).mT, "token"),
        (f"{float(read.float().mean()):.1%} of the areas are read", read, "query"),
    )
    return [
        Panel(f"{spec}\n{title}", pairs * width, names, columns="area", rows=rows)
        for title, pairs, rows in shown
    ]


def _block_panels(layer: BlockSelfAttention, length: int) -> list[Panel]:
    """The tokens that a query reads one by one, and the blocks that it reads as one vector each."""
    size = layer.block_length or int(least_memory(torch.tensor(length)))
    query, key = torch.arange(length)[:, None], torch.arange(length)
    ahead, block = key // size - query // size, key // size
    names = ("tokens one by one", "blocks 0, 2, …", "blocks 1, 3, …")
    return [
        Panel(
            f"block:{size}\n{way}",
            torch.where((ahead == 0) & near, 1, far * (2 + block % 2)),
            names,
            columns="token, and its block",
        )
        for way, near, far in (
            ("forward", key < query, ahead <= 0),
            ("backward", key > query, ahead >= 0),
        )
    ]
