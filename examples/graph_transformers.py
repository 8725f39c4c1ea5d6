"""Classify nodes with jumps, stones and clusters as a graph transformer's global attention.

``python -m examples.graph_transformers --output FILE.jsonl`` trains PyG's ``GPSConv`` on graphs
that it draws: without attention, with PyG's own, ``multihead`` or ``performer``, and with
:class:`jat_graph.nn.JumpSelfAttention`, whose heads take steps of learned size by ``JumpConv`` over
nodes that score a key alike (jumps) or by ``StoneConv`` over keys that are scored unusually high
(stones), or read by clusters. What ``multihead`` has learned is read by clusters, too, as it is.

A learning rate is chosen for each variant and task with a seed of its own. What the file has is not
run again; ``--plot`` draws it. ``--times`` measures one layer instead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, product, repeat
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor, nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, GPSConv, MixHopConv
from torch_geometric.utils import total_influence
from torchmetrics.functional.classification import binary_auroc

from examples.options import example, option
from examples.sweeps.statistics import holm, over_seeds
from examples.tasks.base import read_lines, reading
from examples.tasks.graphs import LARGE, TASKS, UNASKED, Graphs, draw
from jat_graph import JatConfig, PairGraph
from jat_graph.core.files import check_target
from jat_graph.nn import JumpSelfAttention
from jat_graph.training import parameter_groups
from jat_graph.viz import save_figure
from models.jat_graph_transformer import feed_forward

CHANNELS, HEADS = 48, 4
RATES, FASTER, TUNING = (1e-3, 4e-3), 10, 100  # of learning; of strengths, times; the seed
HOPS, NODES = 8, 8  # how far influence is followed, and from how many nodes
ROUNDS, MOST = 3, 20_000  # of times; nodes with which a layer of all pairs is measured
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
        normed: Tensor = self.norm3(out)
        return normed


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
ASKED = [("jumps", "multihead"), ("stones", "multihead"), ("clusters", "performer")]
COMPARED = [*ASKED, ("clusters", "multihead"), (READ, "multihead"), (READ, "performer")]
COMPARED += [("multihead", "GIN"), ("performer", "multihead")]
FAMILY = 2 * len(TASKS) + len(LARGE)  # of comparisons that are asked


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
        logits: Tensor = self.last(x)
        return logits


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


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the runs, one line each; finished runs are kept")
    plot: Path | None = option("picture of all runs in the file", None)
    tasks: list[str] = option(f"some of {', '.join(TASKS)}", [*TASKS])
    variants: list[str] = option(f"some of {', '.join(VARIANTS)}", [*VARIANTS])
    steps: int | None = option("training steps; default: each task's own", None)
    seeds: int = 3
    times: list[int] = option("numbers of nodes: measure the time of layers instead", [])


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train what the file lacks; yield a line for each run, and the tables."""
    for what, given, known in (("tasks", args.tasks, TASKS), ("variants", args.variants, VARIANTS)):
        if not {*given} <= {*known}:
            raise ValueError(f"{what} must be of {', '.join(known)}, got {', '.join(given)}")
    for path in (args.output, args.plot):
        check_target(path)
    for row in measure(args.times) if args.times else train(args):
        with args.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        yield ", ".join(f"{name} {x}" for name, x in row.items() if name != "influence")
    rows = [] if args.times else [row for row in read_runs(args) if row["seed"] != TUNING]
    if rows and args.plot is not None:
        save_figure(draw_scores(DataFrame(rows)), args.plot)
    yield from tables(DataFrame(rows)) if rows else ()


def read_runs(args: Options) -> list[dict[str, Any]]:
    """Return the runs that the file has, if it is there, with as many steps."""
    rows = [row for _, row in read_lines(args.output)] if args.output.exists() else []
    with reading(args.output, "runs of graph_transformers"):
        return [row for row in rows if row["steps"] == (args.steps or TASKS[row["task"]].steps)]


def train(args: Options) -> Iterator[dict[str, Any]]:
    """Yield the runs that the file lacks: first those that choose a rate."""
    rows = read_runs(args)
    for seed, task, name in product((TUNING, *range(args.seeds)), args.tasks, args.variants):
        if name == "clusters" and task not in LARGE:
            continue
        own = [row for row in rows if (row["task"], row["variant"]) == (task, name)]
        tried = {row["rate"]: row["validation"] for row in own if row["seed"] == TUNING}
        for rate in RATES if seed == TUNING else [max(RATES, key=tried.__getitem__)]:
            if (seed, rate) not in {(row["seed"], row["rate"]) for row in own}:
                rows += (found := run(name, task, seed, rate, args.steps or TASKS[task].steps))
                yield from found


def run(name: str, task: str, seed: int, rate: float, steps: int) -> list[dict[str, Any]]:
    """Train one model and test it; return what there is to say of it, and of it by clusters."""
    splits = graphs, validation, test = draw(task, seed)
    start = time.process_time()
    torch.manual_seed(seed)
    classes = int(max(graph.y.max() for graph in chain(*splits))) + 1
    model = Classifier(name, task, graphs[0].num_features, classes)
    torch.manual_seed(seed)  # the same batches, whatever was drawn for the weights
    fit(model, DataLoader(graphs, TASKS[task].batch, shuffle=True), validation, rate, steps)
    own = {"task": task, "variant": name, "seed": seed, "rate": rate, "steps": steps}
    own["parameters"] = sum(x.numel() for x in model.parameters())
    rows = [own | {"validation": score(model, validation), "test": score(model, test)}]
    rows[0]["seconds"] = round(time.process_time() - start, 1)
    if task in LARGE and seed != TUNING:
        torch.manual_seed(0)  # the same nodes for all
        by_hop, reach = total_influence(model, test[0], HOPS, NODES, vectorize=False)
        rows[0] |= {"influence": by_hop.tolist(), "reach": reach}
    if name == "multihead" and seed != TUNING:
        model.read_with(CONFIGS["clusters"])
        rows.append(own | {"variant": READ, "test": score(model, test)})
    return rows


def fit(model: Classifier, loader: DataLoader, held: Graphs, rate: float, steps: int) -> None:
    """Train, and leave the model as it was when it was best on what is held out, of ten times."""
    groups = parameter_groups(model, lr=rate, strength_lr=FASTER * rate, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    rates = [group["lr"] for group in groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, steps)
    best, state = -1.0, model.state_dict()
    for step, batch in enumerate(islice(chain.from_iterable(repeat(loader)), steps), start=1):
        model.train()
        optimizer.zero_grad()
        logits = model(batch.x, batch.edge_index, batch.batch)
        F.cross_entropy(logits, batch.y, ignore_index=UNASKED).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
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


def measure(sizes: list[int]) -> Iterator[dict[str, Any]]:
    """Yield processor seconds of a layer with attention, forward, and forward and backward."""
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


def tables(frame: DataFrame) -> Iterator[str]:
    """Yield means over seeds and paired differences, intervals of 95 %, and p by Holm's method."""
    scores = frame.assign(test=100 * frame["test"]).pivot_table("test", "variant", ["task", "seed"])
    rows = {name: scores.loc[name] for name in (*VARIANTS, READ) if name in scores.index}
    pairs = [pair for pair in COMPARED if {*pair} <= {*rows}]
    rows |= {f"{one} less {base}": rows[one] - rows[base] for one, base in pairs}
    tasks, asked = [task for task in TASKS if task in scores.columns], dict[str, float]()
    yield "right, %; of mines area under ROC".ljust(44) + "".join(f"{x:>15}" for x in tasks)
    for title, own in rows.items():
        found = {x: over_seeds(own[x].dropna().to_dict()) for x in tasks if own[x].count()}
        halves = {x: f" ± {y.interval[1] - y.mean:.1f}" for x, y in found.items() if y.interval}
        cells = {x: f"{y.mean:.1f}" + halves.get(x, "") for x, y in found.items()}
        yield title.ljust(44) + "".join(f"{cells.get(task, ''):>15}" for task in tasks)
        if title in (f"{one} less {base}" for one, base in ASKED):
            asked |= {f"{title}, {x}": y.p for x, y in found.items() if y.p is not None}
    for title, p in zip(asked, holm([*asked.values()], FAMILY), strict=True):
        yield f"{title}: p = {p:.3f}"
    if "reach" in frame:  # of large graphs alone
        yield frame.pivot_table("reach", "variant", "task", sort=False).round(2).to_string()


def draw_scores(frame: DataFrame) -> Figure:
    """Draw how many nodes are right, and from how far nodes count: dots a seed, lines the mean."""
    frame = frame.assign(test=100 * frame["test"])
    measures = [what for what in ("test", "reach") if what in frame]
    tasks = [task for task in TASKS if task in set(frame["task"])]
    names = [name for name in (READ, *VARIANTS[::-1]) if name in set(frame["variant"])]
    colours = dict.fromkeys(LAYERS, "0.3") | dict.fromkeys(CONFIGS, "C0") | {READ: "C1"}
    figure = Figure(figsize=(6.8, 2.2 * len(measures)), layout="constrained")
    axes = figure.subplots(len(measures), len(tasks), sharey=True, squeeze=False)
    for (row, what), (column, task) in product(enumerate(measures), enumerate(tasks)):
        axis, own = axes[row, column], frame[frame["task"] == task].dropna(subset=what)
        for name, seeds in own.groupby("variant")[what]:
            at, looks = names.index(name), {"color": colours[name], "alpha": 0.6}
            axis.plot(seeds, [at] * len(seeds), ".", seeds.mean(), at, "|", markersize=6, **looks)
        unit = "edges" if what == "reach" else "AUC, %" if task == "mines" else "right, %"
        axis.set(title="" if row else task, xlabel=unit, xmargin=0.2, visible=len(own) > 0)
        axis.set_yticks(range(len(names)), names)
        axis.locator_params("x", nbins=2)
    return figure


if __name__ == "__main__":
    main()
