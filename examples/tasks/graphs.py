"""Graphs for layers of PyG, drawn from a seed: six tasks that need no download.

A node's class is in ``y``, or ``UNASKED``. Houses are those of Ying et al., *GNNExplainer*, 2019;
infections of Baldassarre and Azizpour, *Explainability Techniques for Graph Convolutional
Networks*, 2019; mines of Platonov et al., *A critical look at the evaluation of GNNs under
heterophily*, 2023; rings of Bodnar et al., *Weisfeiler and Lehman Go Cellular*, 2021; trees of Alon
and Yahav, *On the Bottleneck of Graph Neural Networks*, 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr
from functools import cache, partial
from io import StringIO
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch_geometric import datasets, seed_everything
from torch_geometric.data import Data
from torch_geometric.datasets.graph_generator import ERGraph
from torch_geometric.transforms import AddRandomWalkPE, RandomNodeSplit
from torch_geometric.utils import grid, remove_self_loops, scatter, to_undirected

Graphs: TypeAlias = list[Data]
UNASKED = -100  # cross_entropy leaves it out
SPLIT = RandomNodeSplit("train_rest", num_val=0.2, num_test=0.6)
WALK = AddRandomWalkPE(8, attr_name=None)  # where a node is in its graph, beside its features


class Task(NamedTuple):
    """How a task's graphs are drawn, and the size of what is trained on them."""

    draw: Callable[[int], Graphs]  # so many graphs
    graphs: tuple[int, int, int]  # to train on, to choose by, to test on
    layers: int
    batch: int = 1
    steps: int = 100
    dropout: float = 0.0


def communities(number: int, size: int = 100, noise: float = 3.0) -> Graphs:
    """Draw a stochastic block model of five classes, half of whose edges stay in a class."""
    probs = 0.01 + 0.03 * torch.eye(5)
    graph = of_classes(datasets.StochasticBlockModelDataset, [size] * 5, probs, noise=noise)
    split = SPLIT(WALK(graph))
    asked = (split.train_mask, split.val_mask, split.test_mask)  # of one graph
    labels = [split.y.where(mask, UNASKED) for mask in asked[:number]]
    return [Data(x=split.x, edge_index=split.edge_index, y=y) for y in labels]


def of_classes(kind: Callable[..., Any], *sizes: Any, noise: float = 3.0) -> Data:
    """Draw a graph of five classes, whose nodes have the mean of their class and much noise."""
    with TemporaryDirectory() as folder, redirect_stderr(StringIO()):  # it says what it is at
        graph = kind(folder, *sizes)[0]
    # PyG's own features ask scikit-learn for what its newer versions refuse.
    graph.x = torch.randn(5, 16)[graph.y] + noise * torch.randn(len(graph.y), 16)
    return graph


def houses(number: int, nodes: int = 200, motifs: int = 40) -> Graphs:
    """Draw random graphs with houses: what part of a house is a node, if of any?"""
    drawn = datasets.ExplainerDataset(ERGraph(nodes, 3 / nodes), "house", motifs, number)
    # Positions are the only features that are no constants, of which batch norm makes noise.
    return [WALK(Data(x=torch.ones(len(g.y), 1), edge_index=g.edge_index, y=g.y)) for g in drawn]


def infections(number: int, nodes: int = 500) -> Graphs:
    """Draw random graphs, a fiftieth infected: how far is the nearest of these, up to six edges?"""
    drawn = datasets.InfectionDataset(ERGraph(nodes, 2 / nodes), nodes // 50, 6, number)
    return [WALK(Data(x=g.x, edge_index=g.edge_index, y=g.y)) for g in drawn]


def mines(number: int, side: int = 24) -> Graphs:
    """Draw fields, a fifth of them mines, where half of the nodes count mines around them."""
    edge_index = remove_self_loops(grid(side, side)[0])[0]
    found = []
    for _ in range(number):
        y = (torch.rand(side**2) < 0.2).long()
        counts = F.one_hot(scatter(y[edge_index[0]], edge_index[1], dim_size=len(y)), 9)
        x = torch.cat([counts, torch.zeros(len(y), 1)], dim=1)
        x[torch.rand(len(y)) < 0.5] = torch.tensor([0.0] * 9 + [1.0])  # unknown
        found.append(WALK(Data(x=x, edge_index=edge_index, y=y)))
    return found


def rings(number: int, nodes: int) -> Graphs:
    """Draw rings: which of five classes has the node at the other end?"""
    ring, found = torch.arange(nodes), []
    edge_index = to_undirected(torch.stack([ring, ring.roll(1)]))
    for kind in torch.randint(5, (number,)).tolist():
        x, y = torch.ones(nodes, 5), torch.full((nodes,), UNASKED)
        x[0], x[nodes // 2], y[0] = 0.0, F.one_hot(torch.tensor(kind), 5).float(), kind
        found.append(Data(x=x, edge_index=edge_index, y=y))
    return found


def trees(number: int, depth: int) -> Graphs:
    """Draw binary trees whose leaves have a key and a value; the root asks for the value of one."""
    leaves = 2**depth
    child = torch.arange(1, 2 * leaves - 1)
    edge_index = torch.stack([child, (child - 1) // 2])
    found = []
    for key in torch.randint(leaves, (number,)).tolist():
        values, y = torch.randperm(leaves), torch.full((2 * leaves - 1,), UNASKED)
        x = torch.zeros(2 * leaves - 1, 2 * leaves)
        x[0, key], y[0] = 1.0, values[key]
        x[leaves - 1 :] = torch.cat([torch.eye(leaves), F.one_hot(values, leaves)], dim=1)
        found.append(Data(x=x, edge_index=edge_index, y=y))
    return found


FEW, RINGS, TREES = (4, 2, 4), (320, 50, 100), (4000, 200, 300)
TASKS = {
    "communities": Task(communities, (1, 1, 1), 2, dropout=0.5),
    "houses": Task(houses, FEW, 3),
    "infections": Task(infections, FEW, 4),
    "mines": Task(mines, (8, 4, 8), 3),
    **{f"ring-{n}": Task(partial(rings, nodes=n), RINGS, n // 2, 32) for n in (10, 20, 30)},
    "tree-3": Task(partial(trees, depth=3), TREES, 4, 32, 300),
    "tree-4": Task(partial(trees, depth=4), TREES, 5, 32, 400),
}
LARGE = [name for name in TASKS if not name.startswith(("ring", "tree"))]  # graphs of 400 nodes up


@cache
def draw(name: str, seed: int) -> tuple[Graphs, ...]:
    """Draw graphs to train on, to choose by, and to test on, the same for the same seed."""
    seed_everything(seed)
    drawn = iter(TASKS[name].draw(sum(TASKS[name].graphs)))
    return tuple([*islice(drawn, number)] for number in TASKS[name].graphs)
