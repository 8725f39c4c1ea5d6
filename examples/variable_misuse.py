"""Find the variable that is the wrong one, with the program's graph in the heads, or without.

``python -m examples.variable_misuse --output FILE.jsonl`` trains small encoders on functions of
Python's standard library, in half of which one use of a variable was put in the place of another
(``examples/tasks/programs.py``). A model points at the wrong token, or at the first one if all are
right, and at where the right variable stands. It is trained once a variant, size of the training
set and seed: without a graph, with the program's, with one in which each token has as many edges
that are dealt out at random, and with edges between tokens that are near each other. Graphs come
into heads in three ways. By propagation, head h jumps along edges of kind h. As a bias, a learned
number of each kind is added to the scores of each head. As pairs, only tokens that are joined may
read each other, beside themselves and the first token.

Within a seed all variants begin at the same weights and see the same programs in the same order;
bias and strengths begin at 0. A line is written for each run, and what the file has is not run
again. Without runs left, tables are printed; ``--plot`` draws what the file has.
"""

from __future__ import annotations

import json
import platform
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from transformers import BertConfig, BertModel, get_linear_schedule_with_warmup

import jat_graph
from examples.options import example, option
from examples.sweeps.statistics import over_seeds
from examples.tasks.base import read_lines, reading
from examples.tasks.programs import (
    BUCKETS,
    KINDS,
    LONGEST,
    PIECES,
    SPLITS,
    Function,
    Pair,
    Program,
    corrupt,
    edges_of,
    intact,
    nearby,
    pieces,
    read_functions,
    rewired,
)
from jat_graph.files import check_target
from jat_graph.training import parameter_groups
from jat_graph.viz import save_figure

LAYERS, FEATURES, BATCH = 2, 64, 32
HEADS = len(KINDS)
RATE, GRAPH_RATE = 2e-3, 1e-2  # of weights; of strengths and of the bias
LEAST = torch.finfo(torch.float32).min
NONE, GRAPHS, WAYS = "none", ("program", "random", "nearby"), ("propagation", "bias", "pairs")
VARIANTS = (NONE, *(f"{graph}-{way}" for way in WAYS for graph in GRAPHS))
MEASURES = ("localisation", "repair", "joint", "uncorrupted", "right")
KEPT = ("variant", "size", "seed", *MEASURES)  # of a line, to go on and for tables
COMPARED = [(name, NONE) for name in VARIANTS[1:]]
COMPARED += [(f"program-{way}", f"{graph}-{way}") for way in WAYS for graph in GRAPHS[1:]]
COLOURS = dict(zip((NONE, *GRAPHS), ("#222222", "#0072b2", "#e69f00", "#009e73"), strict=True))
STYLES = {"": "o-", "propagation": "o-", "bias": "s--", "pairs": "^:"}
JUMPS = jat_graph.JatConfig(jat_graph.PairGraph(), heads="all", strength="learned")

Graph: TypeAlias = Callable[[Program], list[set[Pair]]]  # edges of each kind


class Batch(NamedTuple):
    """Programs as tensors."""

    words: Tensor  # [B, L, PIECES]
    roles: Tensor  # [B, L], 1 where a variable is read, 2 where it is bound, else 0
    valid: Tensor  # [B, L]
    edges: Tensor  # bool [B, KINDS, L, L]
    wrong: Tensor  # [B], 0 if all variables are right
    right: Tensor  # bool [B, L], where the right variable stands


class Finder(nn.Module):
    """A small encoder that points at the wrong variable, and at the right one."""

    def __init__(self, way: str = "") -> None:
        super().__init__()
        self.way = way
        config = BertConfig(
            vocab_size=1,  # it is given vectors
            hidden_size=FEATURES,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=2 * FEATURES,
            max_position_embeddings=LONGEST,
            type_vocab_size=3,
            attention_probs_dropout_prob=0.0,
            initializer_range=FEATURES**-0.5,
        )
        self.base = BertModel(config, add_pooling_layer=False)
        self.names = nn.Embedding(BUCKETS + 1, FEATURES, padding_idx=0)
        self.point = nn.Linear(FEATURES, 2)
        self.bias = nn.Parameter(torch.zeros(HEADS, len(KINDS))) if way == "bias" else None
        if way == "propagation":
            jat_graph.attach(self.base, JUMPS)

    def forward(self, batch: Batch) -> Tensor:
        """Return logits of tokens as the wrong one, and as one to copy, ``[B, 2, L]``."""
        given = batch.words > 0
        vectors = self.names(batch.words).sum(-2) / given.sum(-1, keepdim=True).clamp(min=1)
        jumps = self.way == "propagation"
        with jat_graph.using_graphs(self.base, matrix(batch)) if jumps else nullcontext():
            states = self.base(
                inputs_embeds=vectors,
                attention_mask=self.mask(batch),
                token_type_ids=batch.roles,
            ).last_hidden_state
        first = torch.arange(batch.roles.size(1)) == 0
        allowed = torch.stack([first | (batch.roles == 1), batch.roles > 0], dim=1)
        logits: Tensor = self.point(states).transpose(1, 2)
        return logits.masked_fill(~allowed, LEAST)

    def mask(self, batch: Batch) -> Tensor:
        """Return which tokens may be read, ``[B, L]``, or what to add to scores ``[B, H, L, L]``."""
        hidden = ~batch.valid[:, None, None]
        if self.bias is not None:
            added = torch.einsum("hk, bkij -> bhij", self.bias, batch.edges.float())
            return added.masked_fill(hidden, LEAST)
        if self.way != "pairs":
            return batch.valid.long()
        joined = batch.edges.any(1, keepdim=True) | torch.eye(hidden.size(-1), dtype=torch.bool)
        joined[..., 0] = joined[..., 0, :] = True
        return torch.zeros(joined.shape).masked_fill(~joined | hidden, LEAST)


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the runs, a line each; what it has is kept")
    plot: Path | None = option("picture of all that the file has", None)
    variants: list[str] = option(f"of {', '.join(VARIANTS)}", [*VARIANTS])
    sizes: list[int] = option("functions to train on", [500, 2000, 8000])
    tests: int = option("functions to test on, half of them with a wrong variable", 1000)
    steps: int = option(f"of {BATCH} programs", 1000)
    seeds: int = 5


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train what the file lacks; yield a line for each run, or the tables."""
    unknown = next((name for name in args.variants if name not in VARIANTS), None)
    if unknown is not None:
        raise ValueError(f"variants must be of {', '.join(VARIANTS)}, got {unknown!r}")
    for path in (args.output, args.plot):
        check_target(path)
    done = {(row["variant"], row["size"], row["seed"]) for row in read_runs(args)}
    every = (
        (name, size, seed)
        for seed in range(args.seeds)
        for size in args.sizes
        for name in args.variants
    )
    missing = [run for run in every if run not in done]
    for name, size, seed in missing:
        line = json.dumps(run(name, size, seed, args))
        with args.output.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        yield line
    rows = read_runs(args)
    if not missing:
        yield from tables(rows)
    if args.plot is not None:
        save_figure(draw(rows), args.plot)


def read_runs(args: Options) -> list[dict[str, Any]]:
    """Return the lines of the file, if it is there; they must be of as many steps and tests."""
    rows = []
    for where, row in read_lines(args.output) if args.output.exists() else ():
        with reading(where, "a run of variable_misuse"):
            found = row["steps"], row["tests"]
            row = {name: row[name] for name in KEPT}
        if found != (args.steps, args.tests):
            wanted = f"{args.steps} steps and {args.tests} tests"
            raise ValueError(f"{where} must be a run of {wanted}, got {found[0]} and {found[1]}")
        rows.append(row)
    return rows


def run(name: str, size: int, seed: int, args: Options) -> dict[str, Any]:
    """Train one model and test it; return what there is to say of it."""
    train, test = map(read_functions, SPLITS)
    for what, number, functions in (("sizes", size, train), ("tests", args.tests, test)):
        if not 2 <= number <= len(functions):
            raise ValueError(f"{what} must be 2 to {len(functions)} functions, got {number}")
    start = time.perf_counter()
    graph, _, way = name.partition("-")
    torch.manual_seed(seed)
    model = Finder(way)
    edges = edges_by(graph, random.Random(f"edges {seed}"))
    losses = fit(model, train[:size], edges, args.steps, seed)
    own = {"variant": name, "size": size, "seed": seed, "steps": args.steps, "tests": args.tests}
    own |= measure(model, show(test[: args.tests]), edges_by(graph, random.Random("edges")))
    seconds = round(time.perf_counter() - start)
    return own | {"losses": losses, "seconds": seconds, "python": platform.python_version()}


def edges_by(graph: str, draw: random.Random) -> Graph:
    """Return what makes the edges of a kind of graph."""
    if graph == "random":
        return lambda program: [rewired(edges, draw) for edges in edges_of(program)]
    if graph == "nearby":
        return lambda program: nearby(len(program.tokens))
    return edges_of if graph == "program" else lambda program: [set() for _ in KINDS]


def show(functions: Sequence[Function]) -> list[Program]:
    """Return the programs to test on, every second one with a wrong variable."""
    draw = random.Random(0)
    return [corrupt(one, draw) if i % 2 else intact(one) for i, one in enumerate(functions)]


def make_batch(programs: Sequence[Program], graph: Graph) -> Batch:
    """Make tensors of some programs."""
    shape = len(programs), max(len(program.tokens) for program in programs)
    words = torch.zeros(*shape, PIECES, dtype=torch.long)
    roles, right = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    joined = []
    for row, program in enumerate(programs):
        words[row, : len(program.tokens)] = torch.tensor([*map(pieces, program.tokens)])
        reads, binds = program.function.reads, program.function.binds
        roles[row, list(reads)], roles[row, list(binds)] = 1, 2
        same = [i for i in (*reads, *binds) if program.tokens[i] == program.right]
        right[row, same] = True
        for kind, pairs in enumerate(graph(program)):
            joined += [(row, kind, *pair) for pair in pairs]
    edges = torch.zeros(shape[0], len(KINDS), shape[1], shape[1], dtype=torch.bool)
    edges[tuple(torch.tensor(joined, dtype=torch.long).view(-1, 4).T)] = True
    wrong = torch.tensor([program.wrong for program in programs])
    valid = words[..., 0] > 0
    return Batch(words, roles, valid, edges | edges.transpose(-1, -2), wrong, right)


def matrix(batch: Batch) -> Tensor:
    """Return the edges as one sparse matrix over the tokens of all sequences and heads."""
    row, kind, target, source = batch.edges.nonzero().T
    first = (row * len(KINDS) + kind) * batch.roles.size(1)
    index, number = torch.stack([first + target, first + source]), batch.edges[..., 0].numel()
    return torch.sparse_coo_tensor(index, torch.ones(len(row)), (number, number))


def loss_of(logits: Tensor, batch: Batch) -> Tensor:
    """Return the loss of pointing at the wrong token, and of all copies of the right variable."""
    found, copied = logits.unbind(1)
    is_wrong = batch.wrong > 0
    whole = copied[is_wrong].logsumexp(-1)
    right = copied[is_wrong].masked_fill(~batch.right[is_wrong], LEAST).logsumexp(-1)
    return F.cross_entropy(found, batch.wrong) + (whole - right).sum() / len(is_wrong)


def fit(
    model: Finder, functions: Sequence[Function], graph: Graph, steps: int, seed: int
) -> list[float]:
    """Train on programs that are drawn anew each time; return the loss of tenths of the steps."""
    groups = parameter_groups(model, lr=RATE, strength_lr=GRAPH_RATE, weight_decay=0.01)
    if model.bias is not None:  # it learns as strengths do
        for group in groups:
            group["params"] = [weight for weight in group["params"] if weight is not model.bias]
        groups[-1]["params"].append(model.bias)
    optimizer = torch.optim.AdamW(groups)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    draw, order, seen = random.Random(seed), list[Function](), list[float]()
    model.train()
    for _ in range(steps):
        while len(order) < BATCH:
            order += draw.sample(functions, len(functions))
        own, order = order[:BATCH], order[BATCH:]
        shown = [corrupt(one, draw) if draw.random() < 0.5 else intact(one) for one in own]
        batch = make_batch(shown, graph)
        loss = loss_of(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        seen.append(loss.item())
    return [round(float(part.mean()), 4) for part in torch.tensor(seen).chunk(10)]


@torch.no_grad()
def measure(model: Finder, programs: Sequence[Program], graph: Graph) -> dict[str, float]:
    """Return shares: of wrong tokens found, of names repaired, of both, of nothing found amiss.

    The first three are of the programs with a wrong variable, the fourth of those without one;
    ``right`` counts both, and of all programs those about which all that is said is right.
    """
    model.eval()
    wrong, clean = [], []
    for start in range(0, len(programs), BATCH):
        own = programs[start : start + BATCH]
        logits = model(make_batch(own, graph))
        for program, place, shares in zip(
            own, logits[:, 0].argmax(-1).tolist(), logits[:, 1].softmax(-1).tolist(), strict=True
        ):
            if not program.wrong:
                clean.append(place == 0)
                continue
            by_name: dict[str, float] = defaultdict(float)
            for word, share in zip(program.tokens, shares, strict=False):
                by_name[word] += share
            repaired = max(by_name, key=by_name.__getitem__) == program.right
            wrong.append((place == program.wrong, repaired, place == program.wrong and repaired))
    right = [*clean, *(both for _, _, both in wrong)]
    means = [*map(fmean, zip(*wrong, strict=True)), fmean(clean), fmean(right)]
    return dict(zip(MEASURES, means, strict=True))


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table a measure: means over seeds in percent, and what is more than others have.

    Differences are paired by seeds, with Student's intervals of 95 %.
    """
    found: dict[tuple[str, int], dict[int, dict[str, float]]] = defaultdict(dict)
    for row in rows:
        found[row["variant"], row["size"]][row["seed"]] = row
    sizes = sorted({size for _, size in found})
    for name in MEASURES:
        yield f"{name}, %".ljust(44) + "".join(f"{size:>24}" for size in sizes)
        scores = {
            key: {seed: 100 * row[name] for seed, row in own.items()} for key, own in found.items()
        }
        for variant in VARIANTS:
            cells = [spread([*scores.get((variant, size), {}).values()]) for size in sizes]
            if any(cells):
                yield variant.ljust(44) + "".join(f"{cell:>24}" for cell in cells)
        for variant, base in COMPARED:
            cells = [
                difference(*(scores.get((x, size), {}) for x in (variant, base))) for size in sizes
            ]
            if any(cells):
                yield f"{variant} less {base}".ljust(44) + "".join(f"{x:>24}" for x in cells)


def spread(values: list[float]) -> str:
    """Return the mean and the standard deviation over seeds."""
    if not values:
        return ""
    return f"{fmean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def difference(ours: dict[int, float], theirs: dict[int, float]) -> str:
    """Return how much higher ours are, over the seeds that both have, and the interval."""
    both = {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}
    if not both:
        return ""
    found = over_seeds(both)
    if found.interval is None:
        return f"{found.mean:+.1f}"
    return f"{found.mean:+.1f} ({found.interval[0]:+.1f} to {found.interval[1]:+.1f})"


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Draw each measure over the size of the training set, a line a variant."""
    figure = Figure(figsize=(3.2 * len(MEASURES), 3.6), layout="constrained")
    axes = figure.subplots(1, len(MEASURES))
    for axis, name in zip(axes, MEASURES, strict=True):
        for variant in VARIANTS:
            by_size: dict[int, list[float]] = defaultdict(list)
            for row in rows:
                if row["variant"] == variant:
                    by_size[row["size"]].append(100 * row[name])
            sizes = sorted(by_size)
            graph, _, way = variant.partition("-")
            means = [fmean(by_size[size]) for size in sizes]
            axis.plot(sizes, means, STYLES[way], color=COLOURS[graph], label=variant)
        axis.set_title(name, fontsize=9)
        axis.set_xscale("log")
        axis.set_xlabel("functions to train on", fontsize=8)
        axis.set_ylabel("%", fontsize=8)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    handles, labels = axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    return figure


if __name__ == "__main__":
    main()
