"""Name the relations in dependency trees: jump attention, and layers in heads, beside GPSConv.

``python -m examples.jat_graph_transformer --data-dir DIR`` reads the dependency trees of
UD English EWT as graphs. A node is a word, of which only the part of speech is known; an edge joins
it with the word that it depends on. Words, their order, and which end of an edge is the head are
hidden. What relation has each word to its head: subject, object, or is it the root? A line for each
kind of layers says how many words of trees that were not seen get the right relation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, GPSConv
from torch_geometric.transforms import AddRandomWalkPE
from torch_geometric.utils import to_undirected

from examples import questions
from examples.options import example, option
from examples.tasks.base import find_file
from jat_graph import JatConfig, PairGraph
from jat_graph.probes import Sentence, read_treebank
from jat_graph.training import parameter_groups
from models.jat_graph_transformer import GraphTransformer, JumpGPSConv, feed_forward

CHANNELS, HEADS, LAYERS, WALK_LENGTH = 64, 4, 3, 8
# A key votes for two nodes that both score it above 0: this needs no scale, which scores of a layer
# trained from scratch do not have yet.
GRAPH = PairGraph(threshold=0.0, same_sign_only=True)
JUMPS = JatConfig(graph=GRAPH, heads=HEADS // 2, hop_weights=(0.5, 0.5))
# The same graphs with a layer on them; how far it moves queries, keys and values is learned from 0.
LAYER = JatConfig(graph=GRAPH, heads=HEADS // 2, conv="GATv2Conv")
STRENGTH_LR = 0.1
ORDINARY = JatConfig(heads=HEADS // 2, hop_weights=(1.0,))
LAYERS_BY_NAME: dict[str, Callable[[int], nn.Module]] = {
    "GPSConv": lambda channels: GPSConv(
        channels, GINConv(feed_forward(channels, channels)), heads=HEADS
    ),
    "jump attention": lambda channels: JumpGPSConv(channels, HEADS, JUMPS),
    "GATv2Conv in the heads": lambda channels: JumpGPSConv(channels, HEADS, LAYER),
    "the same, no jumps": lambda channels: JumpGPSConv(channels, HEADS, ORDINARY),
}


@dataclass
class Options:
    """What is asked for."""

    data_dir: Path = option("folder of UD English EWT")
    trees: int = option("to train on", 3000)
    epochs: int = 2
    learning_rate: float = 2e-3
    seeds: int = 3


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train each kind of layers; yield a line for each."""
    train, test = (
        [tree for tree in read_trees(args.data_dir, split) if len(tree) > 1]
        for split in ("train", "dev")
    )
    names = (
        sorted({tag for tree in train for tag in tree.tags}),
        sorted({relation for tree in train for relation in tree.relations}),
    )
    graphs = [to_graph(tree, *names) for tree in train[: args.trees]]
    unseen = [to_graph(tree, *names) for tree in test]
    for name, make_layer in LAYERS_BY_NAME.items():
        start, found = time.perf_counter(), []
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            sizes = len(names[0]), WALK_LENGTH, len(names[1]), CHANNELS, LAYERS
            model = GraphTransformer(*sizes, make_layer)
            fit(model, graphs, args.epochs, args.learning_rate)
            found.append(evaluate(model, unseen))
        spread = f"{min(found):.2%} to {max(found):.2%}, {args.seeds} seeds"
        seconds = (time.perf_counter() - start) / args.seeds
        yield f"{name}: {statistics.mean(found):.2%} right ({spread}), {seconds:.0f} s a seed"


def read_trees(folder: Path, split: str) -> list[Sentence]:
    """Return the trees of a split; subtypes of relations are cut."""
    trees = read_treebank(find_file(folder, "ud_english_ewt", f"en_ewt-ud-{split}.conllu"))
    return [
        replace(tree, relations=tuple(name.partition(":")[0] for name in tree.relations))
        for tree in trees
    ]


def to_graph(tree: Sentence, tags: list[str], relations: list[str]) -> Data:
    """Return a tree as an undirected graph, with chances of random walks as positions."""
    graph = Data(
        kind=torch.tensor([tags.index(tag) for tag in tree.tags]),
        edge_index=to_undirected(torch.tensor(tree.edges).T),
        y=torch.tensor([relations.index(relation) for relation in tree.relations]),
        num_nodes=len(tree),
    )
    return AddRandomWalkPE(WALK_LENGTH, attr_name="walk")(graph)


def fit(model: GraphTransformer, graphs: list[Data], epochs: int, rate: float) -> None:
    """Train on the graphs."""
    loader = DataLoader(graphs, batch_size=64, shuffle=True)
    groups = parameter_groups(model, lr=rate, strength_lr=STRENGTH_LR, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    rates = [group["lr"] for group in groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, epochs * len(loader))
    model.train()
    every = chain.from_iterable(repeat(loader, epochs))
    said = ((model(x.kind, x.walk, x.edge_index, x.batch), x.y) for x in every)
    losses = (F.cross_entropy(logits, right) for logits, right in said)
    for _ in questions.descend(model, losses, optimizer, schedule):
        pass


@torch.no_grad()
def evaluate(model: GraphTransformer, graphs: list[Data]) -> float:
    """Return the share of nodes whose class is right."""
    model.eval()
    right = [
        model(batch.kind, batch.walk, batch.edge_index, batch.batch).argmax(-1) == batch.y
        for batch in DataLoader(graphs, batch_size=64)
    ]
    return float(torch.cat(right).float().mean())


if __name__ == "__main__":
    main()
