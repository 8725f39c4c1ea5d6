"""Sweeps of the kind ``homophily``: nodes are classified with informative or useless edges.

A node is of one of five classes, and homophily, which the task says, is the share of its neighbours
that are of the same: with 0.2 edges say nothing, with 0.8 nearly all. Its features are the mean of
its class and much noise. Two ways to jump are compared, each with what it adds to: jump attention
in a GPS layer, and stones, walked by :class:`jat_graph.nn.StoneConv`, beside MixHop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.datasets import RandomPartitionGraphDataset
from torch_geometric.nn import GCNConv, GINConv, GPSConv, MixHopConv, Sequential

from examples import questions
from examples.sweeps.definition import Run
from examples.tasks.graphs import SPLIT, of_classes
from jat_graph import JatConfig, PairGraph, stone_graph
from jat_graph.nn import JumpConv, StoneConv
from models.jat_graph_transformer import JumpGPSConv, feed_forward

CLASSES, DEGREE, FEATURES = 5, 8, 16
CHANNELS, HEADS, LAYERS, POWERS, DROPOUT = 48, 4, 2, (0, 1, 2), 0.5
NODES, EPOCHS, RATE = 500, 60, 1e-2
# A key votes for two nodes that both score it above 0, in half of the heads.
JUMPS = JatConfig(
    PairGraph(threshold=0.0, same_sign_only=True), heads=HEADS // 2, hop_weights=(0.5, 0.5)
)
STONES = JatConfig.stones(key_selection="significance")


class StoneMixHop(nn.Module):
    """MixHop along the given edges, and beside it a walk over stones that attention finds."""

    def __init__(self) -> None:
        super().__init__()
        self.near = JumpConv(CHANNELS, CHANNELS // len(POWERS), powers=POWERS)
        self.query, self.key, self.value, self.out = (
            nn.Linear(CHANNELS, CHANNELS) for _ in range(4)
        )
        self.far = StoneConv(CHANNELS // HEADS)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        query, key, value = (
            lin(x).view(1, len(x), HEADS, -1).transpose(1, 2)  # [1, H, N, D]
            for lin in (self.query, self.key, self.value)
        )
        graph = stone_graph(query, key, config=STONES)  # H hypergraphs of N nodes, one batch
        far = self.far(value.flatten(0, 2), graph.hyperedge_index, graph.hyperedge_weight)
        far = far.view(HEADS, len(x), -1).transpose(0, 1).flatten(1)  # [N, C]
        return self.near(x, edge_index) + self.out(far)


VARIANTS: dict[str, Callable[[], nn.Module]] = {
    "no edges": lambda: Sequential("x, edge_index", [(nn.Linear(CHANNELS, CHANNELS), "x -> x")]),
    "GCNConv": lambda: GCNConv(CHANNELS, CHANNELS),
    "MixHopConv": lambda: MixHopConv(CHANNELS, CHANNELS // len(POWERS), list(POWERS)),
    "MixHop and stones": StoneMixHop,
    "GPSConv": lambda: GPSConv(CHANNELS, GINConv(feed_forward(CHANNELS, CHANNELS)), HEADS, DROPOUT),
    "GPS, jump attention": lambda: JumpGPSConv(CHANNELS, HEADS, JUMPS, DROPOUT),
}


class NodeClassifier(nn.Module):
    """Logits of every node, from its features and layers along the edges."""

    def __init__(self, make_layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, CHANNELS)
        self.layers = nn.ModuleList(make_layer() for _ in range(LAYERS))
        self.last = nn.Linear(CHANNELS, CLASSES)

    def forward(self, graph: Data) -> Tensor:
        x = self.first(graph.x)
        for layer in self.layers:
            x = F.dropout(layer(x, graph.edge_index).relu(), DROPOUT, self.training)
        return self.last(x)


def check(run: Run) -> None:
    """Refuse shares, sizes and variants that there are not."""
    run.refuse_model()
    read_share(run)
    run.count("epochs", EPOCHS)
    if (nodes := run.count("nodes", NODES)) < 2 * CLASSES:
        raise ValueError(f"nodes must be at least {2 * CLASSES}, got {nodes}")
    run.refuse_others([*VARIANTS])


def read_share(run: Run) -> float:
    """Return the homophily that a task names."""
    return float(run.read_task(r"homophily (0(?:\.\d+)?|1)", "'homophily 0.5', in [0, 1]")[1])


def run(run: Run) -> dict[str, Any]:
    """Draw a graph and train on it; return the record."""
    graph = draw(run.count("nodes", NODES), read_share(run), run.seed)
    torch.manual_seed(run.seed)
    model = NodeClassifier(VARIANTS[run.variant.name])
    right = fit(model, graph, run.count("epochs", EPOCHS))
    return {"scores": {"test": {"right": right}}}


def draw(nodes: int, homophily: float, seed: int) -> Data:
    """Draw a graph, the features of its nodes, and which of them are for what."""
    torch.manual_seed(seed)
    sizes = CLASSES, nodes // CLASSES, homophily, DEGREE
    return SPLIT(of_classes(RandomPartitionGraphDataset, *sizes))


def fit(model: NodeClassifier, graph: Data, epochs: int) -> float:
    """Train, and return the score after the epoch that was best on the nodes for choosing."""
    train, reached = graph.train_mask, []
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    losses = (F.cross_entropy(model.train()(graph)[train], graph.y[train]) for _ in range(epochs))
    for _ in questions.descend(model, losses, optimizer):
        with torch.no_grad():
            right = (model.eval()(graph).argmax(-1) == graph.y).float()
        reached.append([float(right[mask].mean()) for mask in (graph.val_mask, graph.test_mask)])
    return max(reached, key=lambda pair: pair[0])[1]
