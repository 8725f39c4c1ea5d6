"""Panels of layers that read something else than single tokens: memory slots, areas, blocks."""

from __future__ import annotations

from collections.abc import Callable

import torch

from jat_graph.checks.numbers import check_integer
from jat_graph.checks.pictures import read_layer
from jat_graph.viz.figures import Panel, colours_of

# Of which each has a column.
MOST_AREAS = 4096


def layer_panels(spec: str, length: int) -> list[Panel]:
    """Return what the layer of a text reads in a sequence without padding."""
    name, arguments = read_layer(spec)
    makers: dict[str, Callable[..., list[Panel]]] = {
        "memory-compressed": _memory_panel,
        "area": _area_panels,
        "block": _block_panels,
    }
    return makers[name](*arguments, length)


def _memory_panel(kernel_size: int, stride: int, is_causal: bool, length: int) -> list[Panel]:
    """The tokens in the windows of the slots that a query reads; neighbours differ in colour.

    A slot of the memory is a window of tokens, and causally read once it has ended; the first
    token stands before them (Liu et al. 2018, "Generating Wikipedia").
    """
    check_integer("stride", stride, least=1)
    if stride > kernel_size:
        raise ValueError(f"stride must be at most kernel_size={kernel_size}, got {stride}")
    token, start = torch.arange(length), torch.arange(0, length, stride)
    stop = start + kernel_size
    inside = (token >= start[:, None]) & (token < stop[:, None])  # [M, L]
    read = torch.ones(length, len(start), dtype=torch.bool)
    if is_causal:
        read = stop <= token[:, None]  # [L, M]
    first = (token == 0).expand(length, length)
    ways = [read[:, parity::2].float() @ inside[parity::2].float() for parity in (0, 1)]
    spec = f"memory-compressed:{kernel_size}:{stride}" + _order(is_causal)
    return [
        Panel(
            f"{spec}\n{length} tokens in {1 + len(start)} keys",
            colours_of(torch.stack([first, *ways])),
            ("first token", "slots 0, 2, …", "slots 1, 3, …"),
            columns="token in the window of a key",
        )
    ]


def _area_panels(max_width: int, is_causal: bool, length: int) -> list[Panel]:
    """The tokens of each area, and the areas that a query reads, a colour for each width.

    An area is a span of at most so many tokens, and read if all of them may be (Li et al. 2019,
    "Area Attention").
    """
    check_integer("max_width", max_width, least=1)
    widths = range(1, min(max_width, length) + 1)
    if (count := sum(length + 1 - width for width in widths)) > MOST_AREAS:
        raise ValueError(f"areas must be at most {MOST_AREAS} to be drawn, got {count}")
    token = torch.arange(length)[:, None]
    start = torch.cat([torch.arange(length + 1 - width) for width in widths])  # [A]
    width = torch.cat([torch.full((length + 1 - width,), width) for width in widths])  # [A]
    made = (token >= start) & (token < start + width)  # [L, A]
    read = start + width <= token + 1 if is_causal else torch.ones_like(made)
    names = tuple(f"{width} token{'s' * (width > 1)}" for width in widths)
    spec = f"area:{max_width}" + _order(is_causal)
    shown = (
        (f"{length} tokens make {count} areas", made, "token"),
        (f"{float(read.float().mean()):.1%} of the areas are read", read, "query"),
    )
    return [
        Panel(f"{spec}\n{title}", pairs * width, names, columns="area", rows=rows)
        for title, pairs, rows in shown
    ]


def _block_panels(size: int, length: int) -> list[Panel]:
    """The tokens that a query reads one by one, and the blocks that it reads as one vector each.

    Forward and backward are layers beside each other (Shen et al. 2018, "Bi-Directional Block
    Self-Attention").
    """
    check_integer("block_length", size, least=1)
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


def _order(is_causal: bool) -> str:
    return ":causal" if is_causal else ""
