"""Find the wrong variable of a program, with the program's graph in the heads, or without.

``python -m examples.variable_misuse --output FILE.jsonl`` trains small encoders on functions of
Python's standard library, in half of which one use of a variable was put in the place of another. A
model points at the wrong token, or at the first one if all are right, and at where the right
variable stands. Of a graph's four kinds of edges head h jumps along the hth (propagation); or a
learned number of each kind is added to each head's scores (bias); or only tokens that are joined
read each other, beside themselves and the first one (pairs).

Within a seed all variants begin at the same weights and see the same programs. What the file has is
not run again; without runs left, tables are printed, and ``--plot`` draws what it has.
"""

from __future__ import annotations

import json
import platform
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from pandas import DataFrame, Series
from scipy.stats import t
from torch import Tensor, nn
from torch_geometric.utils import dense_to_sparse
from transformers import BertConfig, BertModel, get_linear_schedule_with_warmup

import jat_graph
from examples.options import example, option
from examples.sweeps.statistics import Difference, holm, over_seeds
from examples.tasks import programs
from examples.tasks.base import read_lines, reading
from examples.tasks.programs import KINDS, Program, corrupt
from jat_graph.core.files import check_target
from jat_graph.training import parameter_groups
from jat_graph.viz import save_figure

LAYERS, FEATURES, BATCH = 2, 64, 32
RATE, FASTER = 2e-3, 5  # of learning; by how much strengths and the bias learn faster
LEAST = torch.finfo(torch.float32).min
GRAPHS = {"program": "C0", "random": "C1", "nearby": "C2"}  # and how lines are drawn
WAYS = {"propagation": "o-", "bias": "s--", "pairs": "^:"}
VARIANTS = ["none", *(f"{graph}-{way}" for way in WAYS for graph in GRAPHS)]
CONTROLS = [(f"program-{way}", f"{graph}-{way}") for way in WAYS for graph in [*GRAPHS][1:]]
COMPARED = [*((x, y) for y in ("", "none") for x in VARIANTS if x != y), *CONTROLS]
ASKED = [*((f"program-{way}", "none") for way in WAYS), *CONTROLS]
LONGER = 4  # times the steps, for no graph as a control
# Titles of panels: of a wrong variable, and of programs without one.
MEASURES = {
    "told": "found and repaired, if told of one",
    "joint": "found and repaired",
    "localisation": "wrong token found",
    "repair": "right name found",
    "uncorrupted": "right programs left alone",
}
JUMPS = jat_graph.JatConfig(jat_graph.PairGraph(), heads="all", strength="learned")


class Batch(NamedTuple):
    """Programs as tensors."""

    words: Tensor  # [B, L, pieces of a name]
    roles: Tensor  # [B, L], 1 where a variable is read, 2 where it is bound, else 0
    edges: Tensor  # bool [B, kinds, L, L]
    wrong: Tensor  # [B], 0 if all variables are right
    right: Tensor  # bool [B, L], where its name is what should be there


class Finder(nn.Module):
    """A small encoder that points at the wrong variable, and at the right one."""

    def __init__(self, way: str = "") -> None:
        super().__init__()
        size: dict[str, Any] = {"hidden_size": FEATURES, "intermediate_size": 2 * FEATURES}
        size |= {"num_hidden_layers": LAYERS, "num_attention_heads": len(KINDS)}
        size |= {"initializer_range": FEATURES**-0.5, "attention_probs_dropout_prob": 0.0}
        config = BertConfig(vocab_size=1, type_vocab_size=3, **size)  # it is given vectors
        self.base = BertModel(config, add_pooling_layer=False)
        self.names = nn.Embedding(programs.BUCKETS + 1, FEATURES, padding_idx=0)
        self.point = nn.Linear(FEATURES, 2)
        self.way = way
        self.bias = nn.Parameter(torch.zeros(len(KINDS), len(KINDS))) if way == "bias" else None
        if way == "propagation":
            jat_graph.attach(self.base, JUMPS)

    def forward(self, batch: Batch) -> Tensor:
        """Return logits of tokens as the wrong one, and as one to copy, ``[B, 2, L]``."""
        given = (batch.words > 0).sum(-1, keepdim=True)
        vectors = self.names(batch.words).sum(-2) / given.clamp(min=1)
        mask, jumps = self.mask(batch), nullcontext()
        if self.way == "propagation":
            edges = batch.edges.flatten(0, 1).float()  # of all sequences and heads
            (index, weight), size = dense_to_sparse(edges), [edges[..., 0].numel()] * 2
            graph = torch.sparse_coo_tensor(index, weight, size, check_invariants=False)
            jumps = jat_graph.using_graphs(self.base, graph)
        with jumps:
            out = self.base(inputs_embeds=vectors, attention_mask=mask, token_type_ids=batch.roles)
        first = torch.arange(batch.roles.size(1)) == 0
        allowed = torch.stack([first | (batch.roles == 1), batch.roles > 0], dim=1)
        logits: Tensor = self.point(out.last_hidden_state).transpose(1, 2)
        return logits.masked_fill(~allowed, LEAST)

    def mask(self, batch: Batch) -> Tensor:
        """Return which tokens may be read ``[B, L]``, or what scores get added ``[B, H, L, L]``."""
        valid = batch.words[..., 0] > 0
        if self.bias is not None:
            added = torch.einsum("hk, bkij -> bhij", FASTER * self.bias, batch.edges.float())
            return added.masked_fill(~valid[:, None, None], LEAST)
        if self.way != "pairs":
            return valid.long()
        joined = batch.edges.any(1, keepdim=True) | torch.eye(valid.size(1), dtype=torch.bool)
        joined[..., 0] = joined[..., 0, :] = True
        return torch.zeros(joined.shape).masked_fill(~(joined & valid[:, None, None]), LEAST)


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the runs, one line each; finished runs are kept")
    plot: Path | None = option("picture of all runs in the file", None)
    variants: list[str] = option(f"some of {', '.join(VARIANTS)}", VARIANTS)
    sizes: list[int] = option("functions to train on", [500, 2000, 8000])
    tests: int = option("functions to test on, half of them with a wrong variable", 1000)
    steps: int = option(f"training steps of {BATCH} programs", 1000)
    seeds: int = 5


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train what the file lacks; yield a line for each run, or the tables."""
    unknown = next((name for name in args.variants if name not in VARIANTS), None)
    if unknown is not None:
        raise ValueError(f"variants must be of {', '.join(VARIANTS)}, got {unknown!r}")
    for path in (args.output, args.plot):
        check_target(path)
    done = {(row["seed"], row["size"], row["variant"]) for row in read_runs(args)}
    every = product(range(args.seeds), args.sizes, args.variants)
    missing = [own for own in every if own not in done]
    for seed, size, name in missing:
        line = json.dumps(run(name, size, seed, args))
        with args.output.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        yield line
    frame = DataFrame(read_runs(args)).pivot_table([*MEASURES], "seed", ["variant", "size"])
    if args.plot is not None:
        save_figure(draw(100 * frame), args.plot)
    if not missing:
        yield from tables_of(100 * frame, MEASURES, COMPARED)
        yield from verdicts_of(100 * frame["told"], ASKED)
        longer = DataFrame(read_runs(replace(args, steps=LONGER * args.steps)))
        if not longer.empty:
            told = longer[longer["variant"] == "none"].set_index(["size", "seed"])["told"]
            yield from against_longer(100 * frame["told"], 100 * told)


def against_longer(told: DataFrame, longer: Series) -> Iterator[str]:
    """Yield what the program's graph brings against no graph that is trained longer."""
    for size, way in product(longer.index.unique("size"), WAYS):
        if (f"program-{way}", size) in told:
            change = over_seeds((told[f"program-{way}", size] - longer[size]).dropna().to_dict())
            title = f"{size}: program-{way} less none after {LONGER} times the steps"
            yield f"{title.ljust(64)}{written(change)}"


def read_runs(args: Options) -> list[dict[str, Any]]:
    """Return the runs that the file has, if it is there, with as many steps and tests."""
    rows = [row for _, row in read_lines(args.output)] if args.output.exists() else []
    with reading(args.output, "runs of variable_misuse"):
        return [row for row in rows if (row["steps"], row["tests"]) == (args.steps, args.tests)]


def run(name: str, size: int, seed: int, args: Options) -> dict[str, Any]:
    """Train one model and test it; return what there is to say of it."""
    train, test = map(programs.read_functions, programs.SPLITS)
    for what, number, functions in (("sizes", size, train), ("tests", args.tests, test)):
        if not 2 <= number <= len(functions):
            raise ValueError(f"{what} must be 2 to {len(functions)} functions, got {number}")
    start = time.perf_counter()
    torch.manual_seed(seed)
    graph, _, way = name.partition("-")
    model = Finder(way)
    losses = fit(model, train[:size], graph, args.steps, seed)
    draw = random.Random(0)  # the same programs for all, every second one with a wrong variable
    shown = [corrupt(x, draw) if i % 2 else x for i, x in enumerate(test[: args.tests])]
    own = {"variant": name, "size": size, "seed": seed, "steps": args.steps, "tests": args.tests}
    own |= measure(model, shown, graph) | {"losses": losses, "python": platform.python_version()}
    return own | {"seconds": round(time.perf_counter() - start)}


def make_batch(shown: Sequence[Program], graph: str, draw: random.Random) -> Batch:
    """Make tensors of some programs."""
    shape = len(shown), max(len(program.tokens) for program in shown)
    words = torch.zeros(*shape, programs.PIECES, dtype=torch.long)
    roles, right = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    joined = []
    for row, program in enumerate(shown):
        words[row, : len(program.tokens)] = torch.tensor([*map(programs.pieces, program.tokens)])
        roles[row, [*program.reads]], roles[row, [*program.binds]] = 1, 2
        same = [x == program.right for x in program.tokens]
        right[row, : len(same)] = torch.tensor(same)
        for kind, pairs in enumerate(programs.edges_of(program, graph, draw)):
            joined += [(row, kind, *pair) for pair in pairs]
    edges = torch.zeros(shape[0], len(KINDS), shape[1], shape[1], dtype=torch.bool)
    edges[tuple(torch.tensor(joined, dtype=torch.long).view(-1, 4).T)] = True
    return Batch(words, roles, edges | edges.mT, torch.tensor([x.wrong for x in shown]), right)


def loss_of(logits: Tensor, batch: Batch) -> Tensor:
    """Return the loss of pointing at the wrong token, and of all copies of the right variable."""
    found, copied = logits.unbind(1)
    copied, right = copied[batch.wrong > 0], batch.right[batch.wrong > 0]
    missed = copied.logsumexp(-1) - copied.masked_fill(~right, LEAST).logsumexp(-1)
    return F.cross_entropy(found, batch.wrong) + missed.sum() / len(found)


def fit(model: Finder, train: Sequence[Program], graph: str, steps: int, seed: int) -> list[float]:
    """Train on programs that are drawn anew each time; return the loss of tenths of the steps."""
    groups = parameter_groups(model, lr=RATE, strength_lr=FASTER * RATE, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    draw, edges, order, seen = random.Random(seed), random.Random(seed), [], []
    model.train()
    for _ in range(steps):
        while len(order) < BATCH:
            order += draw.sample(train, len(train))
        own, order = order[:BATCH], order[BATCH:]
        own = [corrupt(one, draw) if draw.random() < 0.5 else one for one in own]
        batch = make_batch(own, graph, edges)
        loss = loss_of(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        seen.append(loss.item())
    return [round(float(part.mean()), 4) for part in torch.tensor(seen).chunk(10)]


@torch.no_grad()
def measure(model: Finder, shown: Sequence[Program], graph: str) -> dict[str, float]:
    """Return shares of the programs with a wrong variable, and of those without one."""
    model.eval()
    rows, draw = [], random.Random(0)
    for start in range(0, len(shown), BATCH):
        batch = make_batch(shown[start : start + BATCH], graph, draw)
        found, copied = model(batch).unbind(1)
        whole = batch.words[..., 0]
        same = (whole.unsqueeze(-1) == whole.unsqueeze(-2)).float()  # a name is where it stands
        name = torch.einsum("bij, bj -> bi", same, copied.softmax(-1)).argmax(-1, keepdim=True)
        said = found.argmax(-1), found[:, 1:].argmax(-1) + 1  # the second one if told
        answers = [batch.right.gather(1, name)[:, 0], *(place == batch.wrong for place in said)]
        rows.append(torch.stack([batch.wrong > 0, *answers]))
    wrong, repair, found, told = torch.cat(rows, dim=1)
    of_wrong = [own[wrong] for own in (told & repair, found & repair, found, repair)]
    shares = zip(MEASURES, [*of_wrong, found[~wrong]], strict=True)
    return {name: own.double().mean().item() for name, own in shares}


def tables_of(
    frame: DataFrame, measures: Sequence[str], compared: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield a table a measure: means over seeds and paired differences, intervals of 95 %."""
    _, variants, sizes = frame.columns.levels
    for name, scores in ((name, frame[name]) for name in measures):
        yield f"{name}, %".ljust(42) + "".join(f"{size:>24}" for size in sizes)
        for one, base in compared:
            if {one, base or one} <= {*variants}:
                own = (scores[one] - (scores[base] if base else 0)).reindex(columns=sizes)
                mean, half = own.mean(), own.sem() * t.ppf(0.975, own.count() - 1)
                cells = (f"{mean[size]:.1f} ± {half[size]:.1f}" for size in sizes)
                title = f"{one} less {base}" if base else one
                yield title.ljust(42) + "".join(f"{cell:>24}" for cell in cells)


def written(change: Difference) -> str:
    """Return a difference with its interval."""
    return f"{change.mean:+.1f} ({' to '.join(f'{end:+.1f}' for end in change.interval or ())})"


def verdicts_of(scores: DataFrame, asked: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield paired differences, if all are there; their p-values are corrected together."""
    if not {name for pair in asked for name in pair} <= {*scores.columns.levels[0]}:
        return
    found = {}
    for size, (one, base) in product(scores.columns.unique(1), asked):
        change = (scores[one, size] - scores[base, size]).dropna()
        found[f"{size}: {one} less {base}"] = over_seeds(change.to_dict())
    known = {title: change for title, change in found.items() if change.p is not None}
    corrected = holm([change.p for change in known.values() if change.p is not None], len(found))
    for (title, change), p in zip(known.items(), corrected, strict=True):
        yield f"{title.ljust(52)}{written(change)}, corrected p {p:.4f}"


def draw(frame: DataFrame) -> Figure:
    """Draw each measure over the size of the training set, a line a variant."""
    figure = Figure(figsize=(6.8, 4.4), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    looks = {f"{g}-{w}": colour + line for g, colour in GRAPHS.items() for w, line in WAYS.items()}
    for axis, (name, title) in zip(axes[:-1], MEASURES.items(), strict=True):
        means = frame[name].mean().unstack("variant").rename(columns={"none": "no graph"})
        means.plot(ax=axis, style=looks | {"no graph": "ko-"}, logx=True, legend=False)
        axis.set(xlabel="functions to train on", ylabel="%")
        axis.set_title(title, fontsize=9)
        axis.set_xticks(means.index, map(str, means.index))
        axis.set_xticks([], minor=True)
    axes[-1].legend(*axis.get_legend_handles_labels(), loc="center", frameon=False)
    axes[-1].set_axis_off()
    return figure


if __name__ == "__main__":
    main()
