"""Sweeps of the kind ``readers``: small networks read a frozen model's states and attention.

A node is a word with the model's states of one layer, or a token where a sentence is classified,
by the mean over its tokens; an edge goes where some head attends, and says how much each head does.
The model itself learns nothing. Six readers of what it gives have the same budget and seeds: a
linear probe and an MLP, which see a word's states only, and two layers of GATv2 along the edges,
along none, along edges that are dealt out at random, and along those between nearby words. Of
``study`` are the ``layer`` whose states are read, and ``max_neighbors`` that each head keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

import torch
import torch.nn.functional as F
from filelock import FileLock
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GAT, MLP, global_mean_pool
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
    run.refuse_others(READERS)
    if get_task(run.task).kind not in ("tagging", "classification"):
        raise ValueError(f"tasks must be of tags or classes, got {run.task!r}")


def run(run: Run) -> dict[str, Any]:
    """Make graphs, unless they are there, train a reader and test it; return its record."""
    train, unseen = read_graphs(run)
    train.transform = unseen.transform = GNNS.get(run.variant.name)
    torch.manual_seed(run.seed)
    sizes = train.num_features, train.num_edge_features, train.num_classes
    reader = Reader(run.variant.name, *sizes, get_task(run.task).kind == "tagging")
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


# What each changes in the graphs.
GNNS: dict[str, Callable[[Data], Data] | None] = {
    "GATv2": None,
    "GATv2 without edges": without_edges,
    "GATv2 on dealt edges": dealt_edges,
    "GATv2 on nearby words": nearby_words,
}
READERS = ("linear probe", "MLP", *GNNS)


class Reader(nn.Module):
    """Logits of words or of sentences, from layers along edges or from each node's states alone."""

    def __init__(self, name: str, features: int, edges: int, classes: int, of_words: bool) -> None:
        super().__init__()
        self.of_words = of_words
        if name in GNNS:  # which weigh neighbours by states, and by what each head attends to
            settings = {"v2": True, "heads": HEADS, "edge_dim": edges, "residual": True}
            self.network = GAT(features, CHANNELS, 2, classes, jk="last", **settings)
        elif name == "MLP":
            self.network = MLP([features, CHANNELS, CHANNELS, classes], norm=None)
        else:
            self.network = nn.Linear(features, classes)

    def forward(self, batch: Data) -> Tensor:
        """Return logits ``[n, classes]`` of nodes, or the means of each graph's."""
        given = {}
        if isinstance(self.network, GAT):
            given = {"edge_index": batch.edge_index, "edge_attr": batch.edge_attr}
        logits: Tensor = self.network(batch.x, **given)
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
