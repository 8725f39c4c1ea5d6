"""Sweeps of the kind ``readers``: small networks read a frozen model's states and attention.

A node is a word with the model's states of one layer, or a token where a sentence is classified,
by the mean over its tokens; an edge goes where some head attends, and says how much each head does.
The model itself learns nothing. Six readers of what it gives have the same budget and seeds: a
linear probe and an MLP, which see a word's states only, and two layers of GATv2 along the edges,
along none, along edges that are dealt out at random, and along those between nearby words. Of
``study`` are the ``layer`` whose states are read, and ``max_neighbors`` that each head keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise, repeat
from typing import Any

import torch
import torch.nn.functional as F
from filelock import FileLock
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import MLP, GATv2Conv, global_mean_pool
from transformers import AutoModel, AutoTokenizer

from examples import questions
from examples.sweeps import training
from examples.sweeps.definition import Run
from examples.tasks import get_task
from jat_graph.data import AttentionGraphs

CHANNELS, HEADS = 128, 4
NEAR = 2  # words to each side


def check(run: Run) -> None:
    """Refuse tasks and variants that there are not."""
    training.shape(run.model)
    run.refuse_others([*READERS])
    if get_task(run.task).kind not in ("tagging", "classification"):
        raise ValueError(f"tasks must be of tags or classes, got {run.task!r}")


def run(run: Run) -> dict[str, Any]:
    """Make graphs, unless they are there, train a reader and test it; return its record."""
    train, unseen = read_graphs(run)
    train.transform = unseen.transform = READERS[run.variant.name]
    torch.manual_seed(run.seed)
    reader = make_reader(run.variant.name, train, get_task(run.task).kind == "tagging")
    torch.manual_seed(run.seed)  # readers draw unequally many weights; batches are the same
    fit(reader, train, run.count("num_train_epochs", 5), run.options["learning_rate"])
    said, right = answer(reader, unseen)
    return {
        "scores": {"validation": get_task(run.task).measure(said, right)},
        "answers": {"validation": {"said": said, "right": right}},
    }


def read_graphs(run: Run) -> list[AttentionGraphs]:
    """Return the graphs of the training sentences and of the dev set."""
    task, options = get_task(run.task), dict(run.sweep.study)
    texts, y = "text", "label"
    if task.kind == "tagging":
        options["nodes"], texts, y = "words", "tokens", "tags"
    data = task.load(run.data_dir, ["train", "validation"])
    parts = [data["train"][: run.count("max_train_samples", 1000)], data["validation"][:]]
    model = AutoModel.from_pretrained(run.model, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    folder = run.output / "graphs"
    with FileLock(f"{folder}.lock"):  # other readers may make them
        return [
            AttentionGraphs(folder, part[texts], model, tokenizer, y=part[y], **options)
            for part in parts
        ]


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


def make_reader(name: str, graphs: AttentionGraphs, of_words: bool = True) -> Reader:
    """Return a reader that gives logits of the nodes of a batch of graphs, or of the graphs."""
    sizes = [graphs.num_features, CHANNELS, CHANNELS, graphs.num_classes]
    if name == "linear probe":
        return Reader(nn.Linear(sizes[0], sizes[-1]), of_words=of_words)
    if name == "MLP":
        return Reader(MLP(sizes, norm=None), of_words=of_words)
    layers = make_layers(sizes, graphs.num_edge_features)
    return Reader(nn.Linear(*sizes[-2:]), layers, of_words)


def make_layers(sizes: list[int], edge_channels: int) -> list[nn.Module]:
    """Return layers of GATv2 that weigh neighbours by states and by what each head attends to."""
    settings = {"heads": HEADS, "edge_dim": edge_channels, "residual": True}
    pairs = pairwise(sizes[:-1])
    return [GATv2Conv(here, there // HEADS, **settings) for here, there in pairs]


class Reader(nn.Module):
    """Logits from layers along edges, or without a layer from each node's states alone."""

    def __init__(
        self, last: nn.Module, layers: Sequence[nn.Module] = (), of_words: bool = True
    ) -> None:
        super().__init__()
        self.layers, self.last, self.of_words = nn.ModuleList(layers), last, of_words

    def forward(self, batch: Data) -> Tensor:
        """Return logits ``[n, classes]`` of nodes, or the means of each graph's."""
        x = batch.x
        for layer in self.layers:
            x = layer(x, batch.edge_index, batch.edge_attr).relu()
        logits: Tensor = self.last(x)
        return logits if self.of_words else global_mean_pool(logits, batch.batch)


def fit(reader: nn.Module, graphs: AttentionGraphs, epochs: int, rate: float) -> None:
    """Train on the graphs."""
    loader = DataLoader(graphs, batch_size=32, shuffle=True)
    optimizer = torch.optim.AdamW(reader.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, epochs * len(loader))
    reader.train()
    every = chain.from_iterable(repeat(loader, epochs))
    losses = (F.cross_entropy(reader(batch), batch.y) for batch in every)
    for _ in questions.descend(reader, losses, optimizer, schedule):
        pass


@torch.no_grad()
def answer(reader: Reader, graphs: AttentionGraphs) -> tuple[list[Any], list[Any]]:
    """Return what is said of each sentence, or of each of its words, and what is right."""
    reader.eval()
    said, right = list[Any](), list[Any]()
    for batch in DataLoader(graphs, batch_size=64):
        sizes = batch.ptr.diff().tolist()
        for found, own in ((said, reader(batch).argmax(-1)), (right, batch.y)):
            parts = own.split(sizes) if reader.of_words else own
            found += [part.tolist() for part in parts]
    return said, right
