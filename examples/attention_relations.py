"""Name the relations of words from a frozen model's attention: a GNN beside probes of its states.

``python -m examples.attention_relations --model PATH --data-dir DIR`` lets a pretrained model read
sentences of UD English EWT. A node is a word, with the model's states of one layer; an edge goes
where some head attends, and says how much each head does. What relation has each word to its head:
subject, object, or is it the root?

The model itself learns nothing. Six readers of what it gives have the same budget and seeds: a
linear probe and an MLP, which see a word's states only, and two layers of GATv2 along the edges,
along none, along edges that are dealt out at random, and along those between nearby words. A line
for each says how many words of sentences that were not seen get the right relation, and how many
more than with the linear probe, with 95 % intervals. ``--json`` writes all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MLP, GATv2Conv
from torch_geometric.utils import scatter
from transformers import AutoModel, AutoTokenizer

from examples.options import example, option
from examples.word_scores import WordScores, settings_of
from jat_graph.core.files import check_target
from jat_graph.data import AttentionGraphs
from jat_graph.looking.probes.treebank import Sentence, read_treebank

CHANNELS, HEADS = 128, 4
NEAR = 2  # words to each side


@dataclass
class ReaderOptions:
    """What is asked for of readers."""

    model: str = option("folder or Hub name of a pretrained model")
    data_dir: Path = option("folder of UD English EWT, or CoLA")
    graphs: Path = option("folder for graphs", Path("graphs"))
    sentences: int = option("sentences to train on", 1000)
    layer: int = option("layer whose states are read", 3)
    max_neighbors: int = option("neighbours that are kept in each head", 1)
    epochs: int = 5
    learning_rate: float = 1e-2
    seeds: int = 3


@dataclass
class Options(ReaderOptions):
    """What is asked for."""

    json: Path | None = option("file for scores and counts", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train each reader; yield a line for each."""
    check_target(args.json)
    train, unseen = read_graphs(args)
    scores = WordScores(next(iter(READERS)), [graph.num_nodes for graph in unseen])
    for name in READERS:
        train.transform = unseen.transform = READERS[name]
        start = time.perf_counter()
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            reader = make_reader(name, train)
            torch.manual_seed(seed)  # readers draw unequally many weights; batches are the same
            fit(reader, train, args.epochs, args.learning_rate)
            scores.right.setdefault(name, []).append(count_right(reader, unseen))
        seconds = (time.perf_counter() - start) / args.seeds
        if args.json is not None:
            scores.save(args.json, settings_of(args, channels=CHANNELS, heads=HEADS))
        yield f"{scores.told(name)}, {seconds:.0f} s a seed"


def read_graphs(args: Options) -> list[AttentionGraphs]:
    """Return the graphs of the training sentences and of those that are not seen."""
    parts = [
        read_treebank(args.data_dir, split=split, most=most)
        for split, most in (("train", args.sentences), ("dev", None))
    ]
    told = [[relations(tree) for tree in part] for part in parts]
    names = sorted({name for part in told for own in part for name in own})
    model = AutoModel.from_pretrained(args.model, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    return [
        AttentionGraphs(
            args.graphs,
            [list(tree.words) for tree in part],
            model,
            tokenizer,
            y=[[names.index(relation) for relation in own] for own in of_trees],
            nodes="words",
            layer=args.layer,
            max_neighbors=args.max_neighbors,
        )
        for part, of_trees in zip(parts, told, strict=True)
    ]


def relations(tree: Sentence) -> list[str]:
    """Return the relation of each word to its head, without subtypes."""
    return [name.partition(":")[0] for name in tree.relations]


def without_edges(graph: Data) -> Data:
    """Take all edges out of a graph."""
    graph.edge_index, graph.edge_attr = graph.edge_index[:, :0], graph.edge_attr[:0]
    return graph


def dealt_edges(graph: Data) -> Data:
    """Deal out anew where a graph's edges begin, which keeps each word's number of them."""
    number = graph.num_edges
    dealt = torch.randperm(number, generator=torch.Generator().manual_seed(number))
    graph.edge_index = torch.stack([graph.edge_index[0, dealt], graph.edge_index[1]])
    return graph


def nearby_words(graph: Data) -> Data:
    """Put edges between nearby words in place of a graph's own; they say how far it is."""
    index = torch.arange(graph.num_nodes)
    distance = index[:, None] - index  # [n, n]
    graph.edge_index = ((distance != 0) & (distance.abs() <= NEAR)).nonzero().T
    graph.edge_attr = F.one_hot(distance[tuple(graph.edge_index)] + NEAR, 2 * NEAR + 1).float()
    return graph


# What each reader changes in the graphs.
READERS: dict[str, Callable[[Data], Data] | None] = {
    "linear probe": None,
    "MLP": None,
    "GATv2": None,
    "GATv2 without edges": without_edges,
    "GATv2 on dealt edges": dealt_edges,
    "GATv2 on nearby words": nearby_words,
}


def make_reader(name: str, graphs: AttentionGraphs) -> nn.Module:
    """Return a reader that gives logits ``[n, classes]`` of the nodes of a batch of graphs."""
    sizes = [graphs.num_features, CHANNELS, CHANNELS, graphs.num_classes]
    if name == "linear probe":
        return Reader(nn.Linear(sizes[0], sizes[-1]))
    if name == "MLP":
        return Reader(MLP(sizes, norm=None))
    return make_gnn(sizes, graphs.num_edge_features)


def make_gnn(sizes: list[int], edge_channels: int) -> nn.Module:
    """Return layers of GATv2 that weigh neighbours by states and by what each head attends to."""
    settings = {"heads": HEADS, "edge_dim": edge_channels, "residual": True}
    pairs = pairwise(sizes[:-1])
    layers = [GATv2Conv(here, there // HEADS, **settings) for here, there in pairs]
    return Reader(nn.Linear(*sizes[-2:]), layers)


class Reader(nn.Module):
    """Logits of nodes from layers along edges; without a layer, from each node's states alone."""

    def __init__(self, last: nn.Module, layers: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.layers, self.last = nn.ModuleList(layers), last

    def forward(self, batch: Data) -> Tensor:
        """Return logits."""
        x = batch.x
        for layer in self.layers:
            x = layer(x, batch.edge_index, batch.edge_attr).relu()
        logits: Tensor = self.last(x)
        return logits


def fit(reader: nn.Module, graphs: AttentionGraphs, epochs: int, rate: float) -> None:
    """Train on the graphs."""
    loader = DataLoader(graphs, batch_size=32, shuffle=True)
    optimizer = torch.optim.AdamW(reader.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, epochs * len(loader))
    reader.train()
    for _ in range(epochs):
        for batch in loader:
            loss = F.cross_entropy(reader(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def count_right(reader: nn.Module, graphs: AttentionGraphs) -> list[int]:
    """Return how many words of each sentence get the right relation."""
    reader.eval()
    found: list[int] = []
    for batch in DataLoader(graphs, batch_size=64):
        right = (reader(batch).argmax(-1) == batch.y).long()
        found += scatter(right, batch.batch, dim_size=batch.num_graphs, reduce="sum").tolist()
    return found


if __name__ == "__main__":
    main()
