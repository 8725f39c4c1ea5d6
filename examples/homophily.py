"""Classify nodes with informative or useless edges: jumps beside GCN, MixHop and GPS.

``python -m examples.homophily`` draws graphs of PyG's ``RandomPartitionGraphDataset``, which are
stochastic block models: a node is of one of five classes, and homophily is the share of its
neighbours that are of the same. With 0.2 its neighbours are those of any node, and edges say
nothing; with 0.8 they nearly say all. A node's features are the mean of its class and much noise.

Attention makes a graph of its own from features. Does it help where the given one does not? Two
ways to jump are compared, each with what it adds to: jump attention in a GPS layer with PyG's
``GPSConv``, and a hypergraph of stones that attention scores make, walked by
:class:`jat_graph.nn.StoneConv`, beside MixHop with PyG's ``MixHopConv``.

All layers have the same width, depth, epochs and learning rate, and see the same graphs and splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
import torch.nn.functional as F
from scipy.stats import ttest_rel
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.datasets import RandomPartitionGraphDataset
from torch_geometric.nn import GCNConv, GINConv, GPSConv, MixHopConv, Sequential
from torch_geometric.transforms import RandomNodeSplit

from examples.options import example, option
from jat_graph import JatConfig, PairGraph, stone_graph
from jat_graph.nn import JumpConv, StoneConv
from models.jat_graph_transformer import JumpGPSConv, feed_forward

CLASSES, DEGREE, FEATURES = 5, 8, 16
CHANNELS, HEADS, LAYERS, POWERS, DROPOUT = 48, 4, 2, (0, 1, 2), 0.5
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
        """Return features of the same shape."""
        query, key, value = (
            lin(x).view(1, len(x), HEADS, -1).transpose(1, 2)  # [1, H, N, D]
            for lin in (self.query, self.key, self.value)
        )
        graph = stone_graph(query, key, config=STONES)  # H hypergraphs of N nodes, one batch
        far = self.far(value.flatten(0, 2), graph.hyperedge_index, graph.hyperedge_weight)
        far = far.view(HEADS, len(x), -1).transpose(0, 1).flatten(1)  # [N, C]
        return self.near(x, edge_index) + self.out(far)


class Variant(NamedTuple):
    """A kind of layer, and the variant that it is compared with."""

    make: Callable[[], nn.Module]
    base: str | None = None


VARIANTS = {
    "no edges": Variant(
        lambda: Sequential("x, edge_index", [(nn.Linear(CHANNELS, CHANNELS), "x -> x")])
    ),
    "GCNConv": Variant(lambda: GCNConv(CHANNELS, CHANNELS)),
    "MixHopConv": Variant(lambda: MixHopConv(CHANNELS, CHANNELS // len(POWERS), list(POWERS))),
    "MixHop and stones": Variant(StoneMixHop, base="MixHopConv"),
    "GPSConv": Variant(
        lambda: GPSConv(CHANNELS, GINConv(feed_forward(CHANNELS, CHANNELS)), HEADS, DROPOUT)
    ),
    "GPS, jump attention": Variant(
        lambda: JumpGPSConv(CHANNELS, HEADS, JUMPS, DROPOUT), base="GPSConv"
    ),
}


class NodeClassifier(nn.Module):
    """Logits of every node, from its features and layers along the edges."""

    def __init__(self, make_layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, CHANNELS)
        self.layers = nn.ModuleList(make_layer() for _ in range(LAYERS))
        self.last = nn.Linear(CHANNELS, CLASSES)

    def forward(self, graph: Data) -> Tensor:
        """Return logits ``[N, classes]``."""
        x = self.first(graph.x)
        for layer in self.layers:
            x = F.dropout(layer(x, graph.edge_index).relu(), DROPOUT, self.training)
        logits: Tensor = self.last(x)
        return logits


@dataclass
class Options:
    """What is asked for."""

    homophily: list[float] = option("shares of neighbours of the same class", [0.2, 0.5, 0.8])
    nodes: int = option("nodes of a graph", 500)
    noise: float = option("noise of features", 3.0)
    epochs: int = 60
    learning_rate: float = 1e-2
    seeds: int = 5


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train each variant; yield the rows of the table."""
    if args.nodes < 2 * CLASSES:
        raise ValueError(f"nodes must be at least {2 * CLASSES}, got {args.nodes}")
    if not all(0 <= share <= 1 for share in args.homophily):
        raise ValueError(f"homophily must be in [0, 1], got {args.homophily}")
    graphs = {h: [draw(args, h, seed) for seed in range(args.seeds)] for h in args.homophily}
    columns = [f"homophily {homophily:g}" for homophily in args.homophily]
    yield row("test nodes right, %", columns, "parameters")
    scores: dict[str, dict[float, list[float]]] = {}
    for name, variant in VARIANTS.items():
        found = scores[name] = {h: score(variant, own, args) for h, own in graphs.items()}
        weights = sum(weight.numel() for weight in NodeClassifier(variant.make).parameters())
        yield row(name, [spread(found[h]) for h in graphs], f"{weights}")
        if variant.base is not None:
            changes = [change(found[h], scores[variant.base][h]) for h in graphs]
            yield row(f"  - {variant.base}", changes, "")


def draw(args: Options, homophily: float, seed: int) -> Data:
    """Draw a graph, the features of its nodes, and which of them are for what."""
    torch.manual_seed(seed)
    size = args.nodes // CLASSES
    with TemporaryDirectory() as folder, redirect_stderr(StringIO()):  # it says what it is at
        graph = RandomPartitionGraphDataset(folder, CLASSES, size, homophily, DEGREE)[0]
    # PyG's own features ask scikit-learn for what its newer versions refuse.
    means = torch.randn(CLASSES, FEATURES)
    graph.x = means[graph.y] + args.noise * torch.randn(len(graph.y), FEATURES)
    return RandomNodeSplit("train_rest", num_val=0.2, num_test=0.6)(graph)


def score(variant: Variant, graphs: list[Data], args: Options) -> list[float]:
    """Return the percentage of test nodes that are right, for each seed."""
    found = []
    for seed, graph in enumerate(graphs):
        torch.manual_seed(seed)
        found.append(fit(NodeClassifier(variant.make), graph, args.epochs, args.learning_rate))
    return found


def fit(model: NodeClassifier, graph: Data, epochs: int, rate: float) -> float:
    """Train, and return the score after the epoch that was best on the nodes for choosing."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    reached = []
    for _ in range(epochs):
        model.train()
        logits = model(graph)[graph.train_mask]
        loss = F.cross_entropy(logits, graph.y[graph.train_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(graph).argmax(-1) == graph.y).float()
        reached.append([float(right[mask].mean()) for mask in (graph.val_mask, graph.test_mask)])
    return 100 * max(reached, key=lambda pair: pair[0])[1]


def row(name: str, cells: list[str], last: str) -> str:
    """Return a line of the table: with three columns 79 characters."""
    return "".join([f"{name:<22}", *(f"{cell:>15}" for cell in cells), f"{last:>12}"]).rstrip()


def spread(found: list[float]) -> str:
    """Return mean and standard deviation over the seeds."""
    return f"{fmean(found):.1f}" + (f" ± {stdev(found):.1f}" if len(found) > 1 else "")


def change(found: list[float], base: list[float]) -> str:
    """Return how much higher the scores are, seed by seed, and the half of the 95 % interval."""
    differences = [one - other for one, other in zip(found, base, strict=True)]
    text = f"{fmean(differences):+.1f}"
    if len(set(differences)) < 2:
        return text
    low, high = ttest_rel(found, base).confidence_interval(0.95)
    return f"{text} ± {(high - low) / 2:.1f}"


if __name__ == "__main__":
    main()
