"""Classify nodes with jumps, stones and clusters as a graph transformer's global attention.

``python -m examples.graph_transformers --output FILE.jsonl`` trains small models on graphs that it
draws. Layers are PyG's ``GPSConv``: message passing along the edges, attention among all nodes of a
graph, their sum, and two linear layers. Four variants pass messages only, by GCN, GAT, MixHop or
GIN; the others have GIN and attention: PyG's own, which is ``multihead`` or ``performer``, or
:class:`jat_graph.nn.JumpSelfAttention`. Its heads take steps of learned size by ``JumpConv`` over
pairs of nodes that score a key alike (jumps), or by ``StoneConv`` over keys that are scored
unusually high (stones); or they read some keys exactly and all others by clusters. What
``multihead`` has learned is read by clusters, too, as it is.

A learning rate is chosen for each variant and task, with a seed of its own. Within a seed all see
the same graphs. What the file has is not run again; ``--plot`` draws it. ``--times`` measures one
layer instead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from copy import deepcopy
from dataclasses import dataclass
from io import StringIO
from itertools import chain, product, repeat
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from pandas import DataFrame
from scipy.stats import mannwhitneyu
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, GPSConv, MixHopConv
from torch_geometric.utils import total_influence

from examples.options import example, option
from examples.sweeps.statistics import Difference, holm, over_seeds
from examples.tasks.base import read_lines, reading
from examples.tasks.graphs import LARGE, TASKS, UNASKED, Graphs, draw
from jat_graph import JatConfig, PairGraph
from jat_graph.files import check_target
from jat_graph.nn import JumpSelfAttention
from jat_graph.training import parameter_groups
from jat_graph.viz import save_figure
from models.jat_graph_transformer import feed_forward

CHANNELS, HEADS = 48, 4
RATES, FASTER, TUNING = (1e-3, 4e-3), 10, 100  # of learning; of strengths, times; the seed
HOPS, NODES = 8, 8  # how far influence is followed, and from how many nodes
ROUNDS, LONG = 5, 20.0  # of times; seconds forward after which nothing more is measured
GRAPH = PairGraph(threshold=0.0, same_sign_only=True, key_selection="significance")
CONFIGS = {
    "jumps": JatConfig(GRAPH, heads="all", strength="learned"),
    "stones": JatConfig.stones(key_selection="significance"),
    # The order of nodes means nothing, so that there is no window; and no graph is too small.
    "clusters": JatConfig.clustered(keys=8, block=0, dense_below=0),
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
        return self.norm3(out + self.mlp(out))


def gin() -> GINConv:
    """Return the message passing beside all attention."""
    return GINConv(feed_forward(CHANNELS, CHANNELS))


SIZE = {"head_channels": CHANNELS // HEADS}  # that of the others, where performer's own is 64
LAYERS: dict[str, Callable[[float], GPSConv]] = {
    "GCN": lambda p: Layer(GCNConv(CHANNELS, CHANNELS), p),
    "GAT": lambda p: Layer(GATConv(CHANNELS, CHANNELS // HEADS, HEADS), p),
    "MixHop": lambda p: Layer(MixHopConv(CHANNELS, CHANNELS // 3, [0, 1, 2]), p),
    "GIN": lambda p: Layer(gin(), p),
    "multihead": lambda p: GPSConv(CHANNELS, gin(), HEADS, p),
    "performer": lambda p: GPSConv(
        CHANNELS, gin(), HEADS, p, attn_type="performer", attn_kwargs=SIZE
    ),
}
VARIANTS = [*LAYERS, *CONFIGS]
ASKED = [("jumps", "multihead"), ("stones", "multihead"), ("clusters", "performer")]
COMPARED = [*ASKED, ("clusters", "multihead"), (READ, "multihead"), (READ, "performer")]
COMPARED += [("multihead", "GIN"), ("performer", "multihead")]
FAMILY = 2 * len(TASKS) + len(LARGE)  # of comparisons that are asked


def with_heads(layer: GPSConv, config: JatConfig) -> Layer:
    """Return a layer of PyG's with the same weights, whose attention is of this library."""
    attention = JumpSelfAttention(CHANNELS, HEADS, config, qkv_bias=True)
    own = Layer(gin(), layer.dropout, attention)
    state = {name: value for name, value in layer.state_dict().items() if "attn." not in name}
    for kind in ("weight", "bias"):
        parts = getattr(layer.attn, f"in_proj_{kind}").chunk(3)
        state |= {f"attn.{name}.{kind}": x for name, x in zip("qkv", parts, strict=True)}
        state[f"attn.attn_out.{kind}"] = getattr(layer.attn.out_proj, kind)
    own.load_state_dict(own.state_dict() | state)  # learned strengths begin at nothing
    return own


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
        """Put this library's attention in the place of PyG's, as it was drawn or trained."""
        self.layers = nn.ModuleList(with_heads(layer, config) for layer in self.layers)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return logits ``[N, classes]``."""
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, edge_index, batch)
        logits: Tensor = self.last(x)
        return logits


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the runs, a line each; what it has is kept")
    plot: Path | None = option("picture of all that the file has", None)
    tasks: list[str] = option(f"of {', '.join(TASKS)}", [*TASKS])
    variants: list[str] = option(f"of {', '.join(VARIANTS)}", [*VARIANTS])
    steps: int | None = option("of training; None for each task's own", None)
    seeds: int = 3
    times: list[int] = option("numbers of nodes: measure layers instead", [])


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
    frame = DataFrame([] if args.times else read_runs(args))
    frame = frame[frame["seed"] != TUNING] if len(frame) else frame
    if len(frame):
        yield from tables(frame)
    if len(frame) and args.plot is not None:
        save_figure(draw_scores(frame), args.plot)


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
    rows = [own | {"validation": score(model, validation), "test": score(model, test)}]
    rows[0]["parameters"] = sum(x.numel() for x in model.parameters())
    rows[0]["seconds"] = round(time.process_time() - start, 1)
    if task in LARGE and seed != TUNING:
        rows[0] |= influence(model, test[0])
    if name == "multihead" and seed != TUNING:
        model.read_with(CONFIGS["clusters"])
        rows.append(own | {"variant": READ, "test": score(model, test)})
    return rows


def fit(model: Classifier, loader: DataLoader, validation: Graphs, rate: float, steps: int) -> None:
    """Train, and leave the model as it was when it was best on validation nodes, of ten times."""
    groups = parameter_groups(model, lr=rate, strength_lr=FASTER * rate, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    rates = [group["lr"] for group in groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, steps)
    batches = chain.from_iterable(repeat(loader))
    best, state = -1.0, model.state_dict()
    for step in range(1, steps + 1):
        batch = next(batches)
        model.train()
        logits = model(batch.x, batch.edge_index, batch.batch)
        optimizer.zero_grad()
        F.cross_entropy(logits, batch.y, ignore_index=UNASKED).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(steps // 10, 1) == 0 and (found := score(model, validation)) > best:
            best, state = found, deepcopy(model.state_dict())
    model.load_state_dict(state)


@torch.no_grad()
def score(model: Classifier, graphs: Graphs) -> float:
    """Return the share of nodes that are right; of two classes the area under the ROC curve."""
    model.eval()
    batches = DataLoader(graphs, 64)
    found = [(model(batch.x, batch.edge_index, batch.batch), batch.y) for batch in batches]
    logits, y = (torch.cat(part) for part in zip(*found, strict=True))
    logits, y = logits[y != UNASKED].double(), y[y != UNASKED]
    if logits.size(1) != 2:
        return float((logits.argmax(-1) == y).double().mean())
    high, low = ((logits[y == kind] @ logits.new_tensor([-1, 1])).numpy() for kind in (1, 0))
    return float(mannwhitneyu(high, low).statistic / (len(high) * len(low)))


def influence(model: Classifier, graph: Data) -> dict[str, Any]:
    """Return how much nodes count by distance, and from how far on the mean."""
    torch.manual_seed(0)  # the same nodes for all
    with redirect_stderr(StringIO()):  # it says what it is at
        by_hop, reach = total_influence(model, graph, HOPS, NODES, vectorize=False)
    return {"influence": [round(x, 6) for x in by_hop.tolist()], "reach": round(reach, 4)}


def measure(sizes: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the seconds of one layer with attention, forward, and forward and backward."""
    for nodes in sizes:
        x, edge_index = torch.randn(nodes, CHANNELS), torch.randint(nodes, (2, 8 * nodes))
        layers = {name: LAYERS.get(name, LAYERS["multihead"])(0.0) for name in VARIANTS[3:]}
        layers |= {name: with_heads(layers[name], CONFIGS[name]) for name in CONFIGS}
        for layer in layers.values():
            layer(x[:100], edge_index % 100)  # loops are compiled when they are first run
        slow: set[str] = set()
        for turn, name in product(range(ROUNDS), layers):
            if name not in slow:
                row: dict[str, Any] = {"nodes": nodes, "variant": name, "round": turn}
                start = time.perf_counter()
                with torch.no_grad():
                    layers[name](x, edge_index)
                row["forward"] = time.perf_counter() - start
                if row["forward"] > LONG:
                    slow.add(name)
                else:
                    start = time.perf_counter()
                    layers[name](x, edge_index).square().mean().backward()
                    row["step"] = time.perf_counter() - start
                yield row


def tables(frame: DataFrame) -> Iterator[str]:
    """Yield means over seeds and paired differences, intervals of 95 %, and p by Holm's method."""
    scores = frame.assign(test=100 * frame["test"]).pivot_table("test", "variant", ["task", "seed"])
    tasks = [task for task in TASKS if task in scores.columns]
    rows = {name: scores.loc[name] for name in (*VARIANTS, READ) if name in scores.index}
    changes = {pair: pair for pair in COMPARED if {*pair} <= {*rows}}
    found = {(name, task): over_seeds(rows[name][task].dropna()) for name in rows for task in tasks}
    yield "right, %; of mines area under ROC".ljust(38) + "".join(f"{x:>15}" for x in tasks)
    for name in rows:
        yield name.ljust(38) + "".join(f"{cell(found[name, x]):>15}" for x in tasks)
    asked: dict[str, float] = {}
    for one, base in changes:
        own = {x: over_seeds((rows[one] - rows[base])[x].dropna()) for x in tasks}
        title = f"{one} less {base}"
        yield title.ljust(38) + "".join(f"{cell(change):>15}" for change in own.values())
        if (one, base) in ASKED:
            asked |= {f"{title}, {x}": y.p for x, y in own.items() if y.by_seed and y.p is not None}
    for title, p in zip(asked, holm([*asked.values()], FAMILY), strict=True):
        yield f"{title}: p = {p:.3f}"


def cell(found: Difference) -> str:
    """Return a mean and the half of its interval."""
    half = "" if found.interval is None else f" ± {found.interval[1] - found.mean:.1f}"
    return f"{found.mean:.1f}{half}" if found.by_seed else ""


def draw_scores(frame: DataFrame) -> Figure:
    """Draw how many nodes are right, and from how far nodes count, a bar a variant."""
    figure = Figure(figsize=(15, 7), layout="constrained")
    titles = {"test": "right; of mines area under ROC", "reach": "mean distance of influence"}
    for axis, (what, title) in zip(figure.subplots(2), titles.items(), strict=True):
        means = frame.pivot_table(what, "task", "variant")
        means = means.reindex(
            index=[x for x in TASKS if x in means.index],
            columns=[x for x in (*VARIANTS, READ) if x in {*frame["variant"]}],
        )
        means.plot.bar(ax=axis, rot=0, width=0.85, legend=False, title=title, cmap="tab10")
        axis.set_xlabel("")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


if __name__ == "__main__":
    main()
