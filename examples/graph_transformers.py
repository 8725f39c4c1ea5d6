"""Measure processor seconds of graph transformers' layers, over the number of nodes.

``python -m examples.graph_transformers --output FILE.jsonl --times 10000 100000`` measures one
layer of each variant of ``examples/sweeps/graphs.toml`` that has attention, in turns, forward, and
forward and backward.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch

from examples.options import example, option
from examples.questions import Row, add_runs
from examples.sweeps.graphs import CHANNELS, VARIANTS, Classifier

ROUNDS, MOST = 3, 20_000  # of times; nodes with which a layer of all pairs is measured


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the times, one line each")
    times: list[int] = option("numbers of nodes", [10_000])


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure; yield a line for each time."""
    for row in measure(args.times):
        yield from add_runs(args.output, [row])


def measure(sizes: list[int]) -> Iterator[Row]:
    """Yield seconds of layers, of the slowest on many nodes once, and forward alone."""
    for nodes in sizes:
        x, edge_index = torch.randn(nodes, CHANNELS), torch.randint(nodes, (2, 8 * nodes))
        few = ("GIN", "multihead", "performer", "clusters")  # of which multihead is measured once
        names = [name for name in VARIANTS[3:] if nodes <= MOST or name in few]
        layers = {name: Classifier(name, "mines", 1, 2).layers[0] for name in names}
        for layer in layers.values():
            layer(x[:100], edge_index % 100)  # loops are compiled when they are first run
        for turn, name in product(range(ROUNDS), layers):
            slow = nodes > MOST and name == "multihead"
            if slow and turn:
                continue
            start = time.process_time()
            out = layers[name](x, edge_index)
            row = {"nodes": nodes, "variant": name, "turn": turn}
            row["forward"] = time.process_time() - start
            if not slow:
                out.square().mean().backward()
                row["step"] = time.process_time() - start
            yield row


if __name__ == "__main__":
    main()
