"""Tell acceptable sentences from a frozen model's attention: a GNN beside probes of its states.

``python -m examples.attention_sentences --model PATH --data-dir DIR`` lets a pretrained model read
sentences of CoLA, and asks of each graph whether the sentence is one that speakers would say. The
readers are those of ``examples.attention_relations``, the mean over a sentence's tokens is what
they say of it. A line for each gives the Matthews correlation on the dev set.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_mean_pool
from transformers import AutoModel, AutoTokenizer

from examples.attention_relations import READERS, ReaderOptions, fit, make_reader
from examples.options import example, option
from examples.tasks import get_task
from jat_graph.data import AttentionGraphs

TASK = get_task("cola")


@dataclass
class Options(ReaderOptions):
    """What is asked for."""

    sentences: int = option("to train on", 3000)
    learning_rate: float = 5e-3


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train each reader; yield a line for each."""
    train, unseen = read_graphs(args)
    for name in READERS:
        train.transform = unseen.transform = READERS[name]
        start, found = time.perf_counter(), []
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            reader = Pooled(make_reader(name, train))
            fit(reader, train, args.epochs, args.learning_rate)
            found.append(evaluate(reader, unseen))
        spread = f"{min(found):.3f} to {max(found):.3f}, {args.seeds} seeds"
        seconds = (time.perf_counter() - start) / args.seeds
        yield f"{name}: {statistics.mean(found):.3f} ({spread}), {seconds:.0f} s a seed"


def read_graphs(args: Options) -> list[AttentionGraphs]:
    """Return the graphs of the training sentences and of the dev set."""
    data = TASK.load(args.data_dir)
    model = AutoModel.from_pretrained(args.model, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    parts = [data["train"][: args.sentences], data["validation"][:]]
    settings = {"layer": args.layer, "max_neighbors": args.max_neighbors}
    return [
        AttentionGraphs(args.graphs, part["text"], model, tokenizer, y=part["label"], **settings)
        for part in parts
    ]


class Pooled(nn.Module):
    """What a reader says of the nodes of each graph, on average."""

    def __init__(self, reader: nn.Module) -> None:
        super().__init__()
        self.reader = reader

    def forward(self, batch: Batch) -> Tensor:
        """Return logits ``[graphs, classes]``."""
        logits: Tensor = global_mean_pool(self.reader(batch), batch.batch)
        return logits


@torch.no_grad()
def evaluate(reader: nn.Module, graphs: AttentionGraphs) -> float:
    """Return the Matthews correlation."""
    reader.eval()
    batches = list(DataLoader(graphs, batch_size=64))
    logits, labels = (
        torch.cat(parts).numpy()
        for parts in ([reader(batch) for batch in batches], [batch.y for batch in batches])
    )
    return TASK.measure(logits.argmax(-1).tolist(), labels.tolist())[TASK.primary_metric]


if __name__ == "__main__":
    main()
