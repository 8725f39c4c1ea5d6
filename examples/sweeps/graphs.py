"""Sweeps of the kind ``graphs``: jumps, stones and clusters as a graph transformer's attention.

PyG's ``GPSConv`` classifies the nodes of graphs that are drawn: without attention, with PyG's own,
``multihead`` or ``performer``, and with :class:`jat_graph.nn.JumpSelfAttention`. What ``multihead``
has learned is read by clusters, too, as it is. A learning rate is chosen for each variant and task
with a seed of its own. ``right`` is the share of nodes that are right, of two classes the area
under the ROC curve; ``reach`` is from how many edges away nodes of large graphs count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from typing import Any

import torch
import torch.nn.functional as F
from filelock import FileLock
from torch import Tensor, nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, GPSConv, MixHopConv
from torch_geometric.utils import total_influence
from torchmetrics.functional.classification import binary_auroc

from examples import questions
from examples.sweeps.definition import Run
from examples.tasks.graphs import LARGE, TASKS, UNASKED, Graphs, draw
from jat_graph import JatConfig, PairGraph
from jat_graph.core.files import write_text
from jat_graph.nn import JumpSelfAttention
from jat_graph.training import parameter_groups
from models.jat_graph_transformer import feed_forward

CHANNELS, HEADS = 48, 4
RATES, FASTER, TUNING = (1e-3, 4e-3), 10, 100  # of learning; of strengths, times; the seed
HOPS, NODES = 8, 8  # how far influence is followed, and from how many nodes
GRAPH = PairGraph(threshold=0.0, same_sign_only=True, key_selection="significance")
CONFIGS = {
    "jumps": JatConfig(GRAPH, heads="all", strength="learned"),
    "stones": JatConfig.stones(key_selection="significance"),
    # For graphs of a few dozen nodes, too.
    "clusters": JatConfig.clustered(keys=8, size=2, segment=16, dense_below=0),
}
READ = "multihead, read by clusters"


class Layer(GPSConv):  # type: ignore[misc]  # PyG is not typed
    """PyG's GPS layer with attention that takes a batch of graphs, or without any."""

    def __init__(self, conv: nn.Module, dropout: float, attention: nn.Module | None = None) -> None:
        super().__init__(CHANNELS, conv, HEADS, dropout)
        self.attn = attention

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return features of the same shape, ``[N, C]``."""
        drop = self.mlp[-1]
        out = self.norm1(x + drop(self.conv(x, edge_index)))
        if self.attn is not None:
            out = out + self.norm2(x + drop(self.attn(x, batch=batch)))
        out = out + self.mlp(out)
        return self.norm3(out)


def gin() -> GINConv:
    """Return the message passing beside all attention."""
    return GINConv(feed_forward(CHANNELS, CHANNELS))


# Heads of the size that all others have.
PERFORMER: dict[str, Any] = {"attn_type": "performer", "attn_kwargs": {"head_channels": 12}}
LAYERS: dict[str, Callable[[float], GPSConv]] = {
    "GCN": lambda p: Layer(GCNConv(CHANNELS, CHANNELS), p),
    "GAT": lambda p: Layer(GATConv(CHANNELS, CHANNELS // HEADS, HEADS), p),
    "MixHop": lambda p: Layer(MixHopConv(CHANNELS, CHANNELS // 3, [0, 1, 2]), p),
    "GIN": lambda p: Layer(gin(), p),
    "multihead": lambda p: GPSConv(CHANNELS, gin(), HEADS, p),
    "performer": lambda p: GPSConv(CHANNELS, gin(), HEADS, p, **PERFORMER),
}
VARIANTS = [*LAYERS, *CONFIGS]


class Classifier(nn.Module):
    """Logits of every node."""

    def __init__(self, name: str, task: str, features: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, CHANNELS)
        make, dropout = LAYERS.get(name, LAYERS["multihead"]), TASKS[task].dropout
        self.layers = nn.ModuleList(make(dropout) for _ in range(TASKS[task].layers))
        self.last = nn.Linear(CHANNELS, classes)
        if name in CONFIGS:
            self.read_with(CONFIGS[name])

    def read_with(self, config: JatConfig) -> None:
        """Put this library's attention in the place of PyG's, with its weights."""
        self.layers = nn.ModuleList(with_heads(layer, config) for layer in self.layers)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return logits ``[N, classes]``."""
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, edge_index, batch)
        return self.last(x)


def with_heads(layer: GPSConv, config: JatConfig) -> Layer:
    """Return a layer of PyG's with the same weights, whose attention is of this library."""
    own = Layer(gin(), layer.dropout, JumpSelfAttention(CHANNELS, HEADS, config, qkv_bias=True))
    state = {name: value for name, value in layer.state_dict().items() if "attn." not in name}
    for kind in ("weight", "bias"):
        parts = getattr(layer.attn, f"in_proj_{kind}").chunk(3)
        state |= {f"attn.{name}.{kind}": x for name, x in zip("qkv", parts, strict=True)}
        state[f"attn.attn_out.{kind}"] = getattr(layer.attn.out_proj, kind)
    own.load_state_dict(own.state_dict() | state)  # learned strengths begin at nothing
    return own


def check(run: Run) -> None:
    """Refuse graphs and variants that there are not."""
    run.refuse_model()
    run.count("steps", 1)
    run.refuse_others([*VARIANTS, READ])
    if run.task not in TASKS:
        raise ValueError(f"tasks must be of {', '.join(TASKS)}, got {run.task!r}")


def run(run: Run) -> dict[str, Any]:
    """Choose a rate, if no other seed has, train one model and test it; return its record."""
    tried = try_rates(run)
    rate = max(RATES, key=lambda rate: tried[f"{rate:g}"])
    start = time.process_time()
    model, graphs = train(run, run.seed, rate)
    seconds = time.process_time() - start
    if run.variant.name == READ:
        model.read_with(CONFIGS["clusters"])
    scores = {"right": score(model, graphs)}
    if run.task in LARGE:
        torch.manual_seed(0)  # the same nodes for all
        _, reach = total_influence(model, graphs[0], HOPS, NODES, vectorize=False)
        scores["reach"] = float(reach)
    return {"rate": rate, "tuning": tried, "seconds": seconds, "scores": {"test": scores}}


def try_rates(run: Run) -> dict[str, float]:
    """Score each rate on the validation graphs, with a seed that no run has; all seeds share it."""
    file = run.folder.parent / "rates.json"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            tried = {}
            for rate in RATES:
                model, _ = train(run, TUNING, rate)
                tried[f"{rate:g}"] = score(model, draw(run.task, TUNING)[1])
            write_text(file, json.dumps(tried))
        found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
    return found


def train(run: Run, seed: int, rate: float) -> tuple[Classifier, Graphs]:
    """Train one model; return it, and the graphs that it is to be tested on."""
    splits = graphs, validation, test = draw(run.task, seed)
    classes = int(max(graph.y.max() for graph in chain(*splits))) + 1
    torch.manual_seed(seed)
    model = Classifier(run.variant.name, run.task, graphs[0].num_features, classes)
    torch.manual_seed(seed)  # the same batches, whatever was drawn for the weights
    task = TASKS[run.task]
    loader = DataLoader(graphs, task.batch, shuffle=True)
    fit(model, loader, validation, rate, run.count("steps", task.steps))
    return model, test


def fit(model: Classifier, loader: DataLoader, held: Graphs, rate: float, steps: int) -> None:
    """Train, and leave the model as it was when it was best on what is held out, of ten times."""

    def losses() -> Iterator[Tensor]:
        for batch in islice(chain.from_iterable(repeat(loader)), steps):
            logits = model.train()(batch.x, batch.edge_index, batch.batch)
            yield F.cross_entropy(logits, batch.y, ignore_index=UNASKED)

    groups = parameter_groups(model, lr=rate, strength_lr=FASTER * rate, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    rates = [group["lr"] for group in groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, steps)
    best, state = -1.0, model.state_dict()
    taken = questions.descend(model, losses(), optimizer, schedule, clip=1.0)
    for step, _ in enumerate(taken, start=1):
        if step % max(steps // 10, 1) == 0 and (found := score(model, held)) > best:
            best, state = found, {name: x.clone() for name, x in model.state_dict().items()}
    model.load_state_dict(state)


@torch.no_grad()
def score(model: Classifier, graphs: Graphs) -> float:
    """Return the share of nodes that are right; of two classes the area under the ROC curve."""
    model.eval()
    batches = DataLoader(graphs, 64)
    found = [(model(batch.x, batch.edge_index, batch.batch), batch.y) for batch in batches]
    logits, y = (torch.cat(part) for part in zip(*found, strict=True))
    logits, y = logits[y != UNASKED], y[y != UNASKED]
    if logits.size(1) == 2:
        return float(binary_auroc(logits.diff()[:, 0], y))
    return float((logits.argmax(-1) == y).double().mean())
