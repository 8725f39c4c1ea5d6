"""Sweeps of the kind ``tables``: questions about tables larger than those of the training.

Small encoders are trained on tables of as many rows and columns as the task says, and tested on
tables of up to 12. Without a graph a token knows its place in the line of all tokens (``line``), or
its row and its column (``cells``); all are drawn from more than a training table has, so that those
of a larger table were seen, too. The graph joins numbers with the names of their row and column and
with numbers beside them, and comes to models that know places in the line as
:mod:`examples.sweeps.programs` says. Within a seed all variants begin at the same weights and see
the same tables.

Reference:
    Ruoss et al., *Randomized Positional Encodings Boost Length Generalization of Transformers*, ACL
    2023; Herzig et al., *TaPas*, ACL 2020, for rows and columns; Yang et al., *TableFormer*, ACL
    2022, for the bias; Eisenschlos et al., *MATE*, EMNLP 2021, for heads on rows and on columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples import questions
from examples.sweeps.definition import Run
from examples.sweeps.programs import FASTER, FEATURES, WAYS, GraphEncoder
from examples.tasks import tables
from examples.tasks.tables import Tables, draw_tables, edges_of

BATCH, RATE = 32, 4e-3
SIZES = (4, 8, 12)  # rows, and columns, of tables
PLACES, LINES = 256, tables.NAMES // 2  # of tokens, and rows or columns, that are drawn from
METRICS = ("all", *tables.QUESTIONS, "names")
VARIANTS = ("line", "cells", *(f"{graph}-{way}" for graph in ("table", "random") for way in WAYS))


def check(run: Run) -> None:
    """Refuse sizes and variants that there are not."""
    run.refuse_model()
    run.count("steps", 2000)
    run.count("tests", 320)
    read_size(run)
    run.refuse_others([*VARIANTS])


def read_size(run: Run) -> int:
    """Return how many rows and columns the tables of the training have."""
    return int(run.read_task(r"([3-9]|1[0-2]) × \1", "'4 × 4'")[1])


def run(run: Run) -> dict[str, Any]:
    """Train one model and test it on tables of each size; return its record."""
    torch.manual_seed(run.seed)
    model = Reader(run.variant.name)
    losses = fit(model, read_size(run), run.count("steps", 2000), run.seed)
    tests = run.count("tests", 320)
    scores = {f"rows {size}": measure(model, size, tests) for size in SIZES}
    return {"scores": scores, "losses": losses}


class Reader(nn.Module):
    """A small encoder that reads a table and answers questions about it."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self.graph, _, self.way = variant.partition("-")
        sizes = {"vocab_size": tables.VOCABULARY, "type_vocab_size": len(tables.ROLES)}
        sizes |= {"max_position_embeddings": PLACES, "hidden_dropout_prob": 0.0}
        self.encoder = GraphEncoder(self.way, **sizes)
        last = self.encoder.base.encoder.layer[-1].attention.self
        last.key.load_state_dict(last.query.state_dict())  # so that it begins to read what is alike
        self.parts = nn.Parameter(torch.ones(tables.WORDS, FEATURES))  # of a question
        self.lines = nn.Parameter(0.5 * FEATURES**-0.5 * torch.randn(2, LINES + 1, FEATURES))
        self.answer = nn.Linear(FEATURES, tables.ANSWERS)

    def forward(self, batch: Tables, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return logits of answers ``[B, ASKED, ANSWERS]``, and of names as ``Tables`` has them."""
        vectors, places = self.embed(batch, draw)
        asks, itself = batch.roles == tables.QUESTION, torch.eye(len(batch.roles), dtype=torch.bool)
        edges = edges_of(batch, self.graph, draw) if self.way else torch.zeros(())
        out = self.encoder(
            edges,
            read=(itself | ~asks)[None, None],
            joined=(edges > 0) | itself | asks[:, None],
            inputs_embeds=vectors,
            position_ids=places,
            token_type_ids=batch.roles.expand(len(vectors), -1),
            output_hidden_states=True,
        )
        names = self.encoder.base.embeddings.word_embeddings.weight[-tables.NAMES :]
        told = out.hidden_states[1][:, batch.roles == tables.NUMBER] @ names.T
        return self.answer(out.last_hidden_state[:, asks]), told

    def embed(self, batch: Tables, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens as vectors ``[B, L, D]``, and their places, both with what is drawn."""
        embedded = self.encoder.base.embeddings.word_embeddings(batch.words)
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


def fit(model: Reader, size: int, steps: int, seed: int) -> list[float]:
    """Train on small tables, drawn anew each time; return the loss of tenths of the steps."""
    draw, places = (torch.Generator().manual_seed(seed) for _ in range(2))

    def losses() -> Iterator[Tensor]:
        for _ in range(steps):
            batch = draw_tables(BATCH, size, draw)
            answers, names = model(batch, places)
            loss = F.cross_entropy(answers.flatten(0, 1), batch.answers.flatten())
            yield loss - names.log_softmax(-1).gather(-1, batch.names).mean()

    model.train()
    optimizer, schedule = questions.warm_adam(model, RATE, FASTER * RATE, steps)
    return questions.tenths(questions.descend(model, losses(), optimizer, schedule, clip=1.0))


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
    return dict(zip(METRICS, torch.cat(rows).mean(0).tolist(), strict=True))
