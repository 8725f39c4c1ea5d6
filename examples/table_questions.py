"""Answer questions about tables larger than those of the training, with or without their graph.

``python -m examples.table_questions --output FILE.jsonl`` trains small encoders on tables of 4 rows
and 4 columns, and tests them on tables of up to 12. Without a graph a token knows its place in the
line of all tokens, or its row and its column; all of these are drawn from more than a training
table has, in their order, so that those of a larger table were seen, too. The graph joins numbers
with the names of their row and column and with numbers beside them, and comes to models that
know places in the line: of its four kinds of edges head h jumps along the hth (propagation); or a
learned number of each kind is added to each head's scores (bias); or head h reads nothing but what
the hth kind joins (pairs). Questions read the whole table, and nothing reads questions.

Within a seed all variants begin at the same weights and see the same tables. What the file has is
not run again; without runs left, tables are printed, and ``--plot`` draws what it has.

Reference:
    Ruoss et al., *Randomized Positional Encodings Boost Length Generalization of Transformers*, ACL
    2023; Herzig et al., *TaPas*, ACL 2020, for rows and columns; Yang et al., *TableFormer*, ACL
    2022, for the bias; Eisenschlos et al., *MATE*, EMNLP 2021, for heads on rows and on columns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor, nn
from transformers import BertConfig, BertModel, get_linear_schedule_with_warmup

import jat_graph
from examples.options import example, option
from examples.tasks import tables
from examples.tasks.base import read_lines, reading
from examples.tasks.tables import Tables, draw_tables, edges_of
from examples.variable_misuse import FASTER, JUMPS, LEAST, WAYS, tables_of, verdicts_of
from jat_graph.core.files import check_target
from jat_graph.operators import DenseOperator, NormalizedOperator
from jat_graph.training import parameter_groups
from jat_graph.viz import save_figure

LAYERS, FEATURES, BATCH, RATE = 2, 64, 32, 4e-3
TRAINED, SIZES = 4, (4, 8, 12)  # rows, and columns, of tables
PLACES, LINES = 256, tables.NAMES // 2  # of tokens, and rows or columns, that are drawn from
MEASURES = ("all", *tables.QUESTIONS, "names")
VARIANTS = ["line", "cells", *(f"{graph}-{way}" for graph in ("table", "random") for way in WAYS)]
ASKED = [(f"table-{way}", base) for way in WAYS for base in ("line", "cells", f"random-{way}")]
COMPARED = [*((name, "") for name in VARIANTS), *ASKED]


class Reader(nn.Module):
    """A small encoder that reads a table and answers questions about it."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.graph, _, self.way = variant.partition("-")
        size: dict[str, Any] = {"hidden_size": FEATURES, "intermediate_size": 2 * FEATURES}
        size |= {"num_hidden_layers": LAYERS, "num_attention_heads": len(tables.KINDS)}
        size |= {"max_position_embeddings": PLACES, "type_vocab_size": len(tables.ROLES)}
        size |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config = BertConfig(vocab_size=tables.VOCABULARY, initializer_range=FEATURES**-0.5, **size)
        self.base = BertModel(config, add_pooling_layer=False)
        last = self.base.encoder.layer[-1].attention.self
        last.key.load_state_dict(last.query.state_dict())  # so that it begins to read what is alike
        self.parts = nn.Parameter(torch.ones(tables.WORDS, FEATURES))  # of a question
        self.lines = nn.Parameter(0.5 * FEATURES**-0.5 * torch.randn(2, LINES + 1, FEATURES))
        self.bias = nn.Parameter(torch.zeros(len(tables.KINDS), len(tables.KINDS)))
        self.answer = nn.Linear(FEATURES, tables.ANSWERS)
        if self.way == "propagation":
            jat_graph.attach(self.base, JUMPS)

    def forward(self, batch: Tables, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return logits of answers ``[B, ASKED, ANSWERS]``, and of names as ``Tables`` has them."""
        vectors, places = self.embed(batch, draw)
        asks, itself = batch.roles == tables.QUESTION, torch.eye(len(batch.roles), dtype=torch.bool)
        read, scores, jumps = (itself | ~asks)[None, None], torch.zeros(()), nullcontext()
        if self.way:
            edges = edges_of(batch, self.graph, draw)
        if self.way == "pairs":
            read = read & (edges | itself | asks[:, None])
        elif self.way == "bias":
            scores = torch.einsum("hk, bkij -> bhij", FASTER * self.bias, edges.float())
        elif self.way == "propagation":
            operator = NormalizedOperator(DenseOperator(edges.float()))
            jumps = jat_graph.using_graphs(self.base, operator)
        with jumps:
            out = self.base(
                inputs_embeds=vectors,
                attention_mask=torch.where(read, scores, LEAST),
                position_ids=places,
                token_type_ids=batch.roles.expand(len(vectors), -1),
                output_hidden_states=True,
            )
        names = self.base.embeddings.word_embeddings.weight[-tables.NAMES :]
        told = out.hidden_states[1][:, batch.roles == tables.NUMBER] @ names.T
        return self.answer(out.last_hidden_state[:, asks]), told

    def embed(self, batch: Tables, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens as vectors ``[B, L, D]``, and their places, both with what is drawn."""
        embedded = self.base.embeddings.word_embeddings(batch.words)
        vectors = (embedded * self.parts).sum(-2)  # a blank is 0
        count, length, _ = vectors.shape
        if self.graph != "cells":
            return vectors, some(count, length, PLACES, draw)
        for own, every in zip((batch.rows, batch.columns), self.lines, strict=True):
            drawn = F.pad(some(count, int(own.max()), LINES, draw) + 1, (1, 0))
            vectors = vectors + every[drawn[:, own]]
        return vectors, torch.zeros(count, length, dtype=torch.long)


def some(count: int, number: int, most: int, draw: torch.Generator) -> Tensor:
    """Draw different numbers below another one, in their order, ``[count, number]``."""
    return torch.rand(count, most, generator=draw).topk(number).indices.sort(-1).values


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the runs, three lines each; finished runs are kept")
    plot: Path | None = option("picture of all runs in the file", None)
    variants: list[str] = option(f"some of {', '.join(VARIANTS)}", VARIANTS)
    steps: int = option(f"steps of {BATCH} tables with {tables.ASKED} questions each", 2000)
    tests: int = option(f"test tables of each size, with {tables.ASKED} questions each", 320)
    seeds: int = 3


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train what the file lacks; yield a line for each run, or the tables."""
    unknown = next((name for name in args.variants if name not in VARIANTS), None)
    if unknown is not None:
        raise ValueError(f"variants must be of {', '.join(VARIANTS)}, got {unknown!r}")
    for path in (args.output, args.plot):
        check_target(path)
    done = {(row["seed"], row["variant"]) for row in read_runs(args)}
    missing = [own for own in product(range(args.seeds), args.variants) if own not in done]
    for seed, name in missing:
        lines = "\n".join(map(json.dumps, run(name, seed, args)))
        with args.output.open("a", encoding="utf-8") as file:
            file.write(lines + "\n")
        yield lines
    frame = DataFrame(read_runs(args)).pivot_table([*MEASURES], "seed", ["variant", "size"])
    if args.plot is not None:
        save_figure(draw_figure(100 * frame), args.plot)
    if not missing:
        yield from tables_of(100 * frame, MEASURES, COMPARED)
        largest = frame["all"].xs(SIZES[-1], axis=1, level="size", drop_level=False)
        yield from verdicts_of(100 * largest, ASKED)


def read_runs(args: Options) -> list[dict[str, Any]]:
    """Return the runs that the file has, if it is there, with as many steps and tests."""
    rows = [row for _, row in read_lines(args.output)] if args.output.exists() else []
    with reading(args.output, "runs of table_questions"):
        return [row for row in rows if (row["steps"], row["tests"]) == (args.steps, args.tests)]


def run(name: str, seed: int, args: Options) -> list[dict[str, Any]]:
    """Train one model and test it; return what there is to say of it at each size."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    model = Reader(name)
    losses = fit(model, args.steps, seed)
    own = {"variant": name, "seed": seed, "steps": args.steps, "tests": args.tests}
    found = [{"size": size} | measure(model, size, args.tests) for size in SIZES]
    own |= {"losses": losses, "seconds": round(time.perf_counter() - start)}
    return [own | one for one in found]


def fit(model: Reader, steps: int, seed: int) -> list[float]:
    """Train on small tables, drawn anew each time; return the loss of tenths of the steps."""
    groups = parameter_groups(model, lr=RATE, strength_lr=FASTER * RATE, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    draw, places = (torch.Generator().manual_seed(seed) for _ in range(2))
    seen = []
    model.train()
    for _ in range(steps):
        batch = draw_tables(BATCH, TRAINED, draw)
        answers, names = model(batch, places)
        loss = F.cross_entropy(answers.flatten(0, 1), batch.answers.flatten())
        loss = loss - names.log_softmax(-1).gather(-1, batch.names).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        seen.append(loss.item())
    return [round(float(part.mean()), 4) for part in torch.tensor(seen).chunk(10)]


@torch.no_grad()
def measure(model: Reader, size: int, tests: int) -> dict[str, float]:
    """Return shares of what is right, over the same tables and questions for all models."""
    model.eval()
    draw, places = (torch.Generator().manual_seed(size) for _ in range(2))
    rows = []
    for part in torch.arange(tests).split(BATCH):
        batch = draw_tables(len(part), size, draw)
        answers, names = model(batch, places)
        hits = (answers.argmax(-1) == batch.answers).double()
        right = hits.unflatten(1, (-1, len(tables.QUESTIONS)))
        both = names.topk(2).indices.sort(-1).values == batch.names.sort(-1).values
        shares = [right.mean((1, 2)), *right.mean(1).T, both.all(-1).double().mean(1)]
        rows.append(torch.stack(shares, dim=1))
    return dict(zip(MEASURES, torch.cat(rows).mean(0).tolist(), strict=True))


def draw_figure(frame: DataFrame) -> Figure:
    """Draw each kind of question over the size of tables, a line a variant."""
    figure = Figure(figsize=(6.8, 4.4), layout="constrained")
    axes = figure.subplots(2, 3).ravel()
    looks = {f"{g}-{w}": c + WAYS[w] for g, c in (("table", "C0"), ("random", "C1")) for w in WAYS}
    for axis, name in zip(axes[:-1], MEASURES, strict=True):
        means = frame[name].mean().unstack("variant")
        looks |= {"line": "ko:", "cells": "ko-"}
        means.plot(ax=axis, style=looks, legend=False, title=name, xticks=SIZES, ylim=(0, 102))
        axis.set(xlabel="rows and columns", ylabel="% right")
    axes[-1].legend(*axis.get_legend_handles_labels(), loc="center", frameon=False)
    axes[-1].set_axis_off()
    return figure


if __name__ == "__main__":
    main()
