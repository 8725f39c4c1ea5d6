"""Sweeps of the kind ``tables``: questions about tables larger than those of the training.

A table has names of columns, names of rows and numbers from 0 to 9. A question asks for the number
of a row and a column; which of two rows has the larger one in a column; or for the sum of two
columns of a row. Names are drawn anew for each table, so that none says where it stands. Answers
are the same 22 whatever the size of a table: a number from 0 to 18; the first row, neither or the
second.

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
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples import questions
from examples.sweeps.definition import Run
from examples.sweeps.programs import FASTER, FEATURES, WAYS, GraphEncoder

QUESTIONS = ("look up", "compare", "sum")
KINDS = ("name of the row", "name of the column", "same row", "same column")  # of edges
NUMBERS, NAMES = 10, 32
VOCABULARY = 1 + len(QUESTIONS) + NUMBERS + NAMES  # 0 is a blank
ANSWERS = 2 * NUMBERS + 2
ASKED, WORDS = 12, 4  # questions about a table, and words of each: its kind and up to three names
QUESTION, COLUMN_NAME, ROW_NAME, NUMBER = ROLES = range(4)

BATCH, RATE = 32, 4e-3
SIZES = (4, 8, 12)  # rows, and columns, of tables
PLACES, LINES = 256, NAMES // 2  # of tokens, and rows or columns, that are drawn from
METRICS = ("all", *QUESTIONS, "names")
VARIANTS = ("line", "cells", *(f"{graph}-{way}" for graph in ("table", "random") for way in WAYS))


class Tables(NamedTuple):
    """Square tables of one size, as tokens: questions, then names and numbers line by line."""

    words: Tensor  # [B, L, WORDS]
    roles: Tensor  # [L]
    rows: Tensor  # [L], from 1; 0 of questions and of the names of columns
    columns: Tensor  # [L], from 1; 0 of questions and of the names of rows
    answers: Tensor  # [B, ASKED], of all kinds of questions in turn
    names: Tensor  # [B, numbers, 2], of each one's row and column, counted from 0


def draw_tables(count: int, size: int, draw: torch.Generator) -> Tables:
    """Draw tables, and questions of all kinds in turn."""
    named = torch.rand(count, NAMES, generator=draw).topk(2 * size).indices.split(size, dim=1)
    grid = torch.zeros(count, size + 1, size + 1, dtype=torch.long)
    grid[:, 1:, 0], grid[:, 0, 1:] = (x + VOCABULARY - NAMES for x in named)
    numbers = torch.randint(NUMBERS, (count, size, size), generator=draw)
    grid[:, 1:, 1:] = numbers + 1 + len(QUESTIONS)
    asked, answers = _ask(grid, numbers, draw)

    rows, columns = torch.cartesian_prod(*[torch.arange(size + 1)] * 2)[1:].T  # without the corner
    roles = torch.where(rows == 0, COLUMN_NAME, torch.where(columns == 0, ROW_NAME, NUMBER))
    words = torch.cat([asked, F.pad(grid.flatten(1)[:, 1:, None], (0, WORDS - 1))], dim=1)
    rows, columns, roles = (F.pad(one, (ASKED, 0)) for one in (rows, columns, roles))
    own = torch.broadcast_tensors(named[0][:, :, None], named[1][:, None])
    return Tables(words, roles, rows, columns, answers, torch.stack(own, dim=-1).flatten(1, 2))


def _ask(
    grid: Tensor, numbers: Tensor, draw: torch.Generator
) -> tuple[Tensor, Tensor]:  # [B, ASKED, WORDS], [B, ASKED]
    """Draw questions about numbers, and answer them."""
    kinds = torch.arange(ASKED) % len(QUESTIONS)
    compares, sums = kinds == 1, kinds == 2
    count, size, _ = numbers.shape
    each = torch.arange(count)[:, None]
    row, column = torch.rand(2, count, ASKED, size, generator=draw).topk(2).indices.unbind()
    (row, other_row), (column, other_column) = row.unbind(-1), column.unbind(-1)
    first = numbers[each, row, column]
    then = torch.where(compares, other_row, row), torch.where(sums, other_column, column)
    second = numbers[each, then[0], then[1]]
    of_rows, of_columns = grid[:, 1:, 0], grid[:, 0, 1:]
    other = compares * of_rows[each, other_row] + sums * of_columns[each, other_column]
    names = (of_rows[each, row], other, of_columns[each, column])
    larger = ANSWERS - 2 + (second - first).sign()
    answers = torch.where(compares, larger, first + sums * second)
    return torch.stack([(1 + kinds).expand(count, -1), *names], dim=-1), answers


def edges_of(tables: Tables, graph: str, draw: torch.Generator) -> Tensor:  # bool [B, kinds, L, L]
    """Return which numbers, in rows, the edges of each kind join with which names or numbers.

    In a ``random`` graph the numbers of each table were dealt to its cells anew.
    """
    count, cells = len(tables.words), tables.roles == NUMBER
    order = torch.arange(len(cells)).repeat(count, 1)
    if graph == "random":
        dealt = torch.rand(count, int(cells.sum()), generator=draw).argsort(-1)
        order[:, cells] = cells.nonzero()[:, 0][dealt]
    rows, columns = tables.rows[order], tables.columns[order]
    same_row, same_column = (x.unsqueeze(-1) == x.unsqueeze(-2) for x in (rows, columns))
    others = cells & ~torch.eye(len(cells), dtype=torch.bool)
    ends = (tables.roles == ROW_NAME, tables.roles == COLUMN_NAME, others, others)
    same = (same_row, same_column, same_row, same_column)
    joined = [one & end for one, end in zip(same, ends, strict=True)]
    return torch.stack(joined, dim=1) & cells[:, None]


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
        sizes = {"vocab_size": VOCABULARY, "type_vocab_size": len(ROLES)}
        sizes |= {"max_position_embeddings": PLACES, "hidden_dropout_prob": 0.0}
        self.encoder = GraphEncoder(self.way, **sizes)
        last = self.encoder.base.encoder.layer[-1].attention.self
        last.key.load_state_dict(last.query.state_dict())  # so that it begins to read what is alike
        self.parts = nn.Parameter(torch.ones(WORDS, FEATURES))  # of a question
        self.lines = nn.Parameter(0.5 * FEATURES**-0.5 * torch.randn(2, LINES + 1, FEATURES))
        self.answer = nn.Linear(FEATURES, ANSWERS)

    def forward(self, batch: Tables, draw: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return logits of answers ``[B, ASKED, ANSWERS]``, and of names as ``Tables`` has them."""
        vectors, places = self.embed(batch, draw)
        asks, itself = batch.roles == QUESTION, torch.eye(len(batch.roles), dtype=torch.bool)
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
        names = self.encoder.base.embeddings.word_embeddings.weight[-NAMES:]
        told = out.hidden_states[1][:, batch.roles == NUMBER] @ names.T
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
        right = hits.unflatten(1, (-1, len(QUESTIONS)))
        both = names.topk(2).indices.sort(-1).values == batch.names.sort(-1).values
        shares = [right.mean((1, 2)), *right.mean(1).T, both.all(-1).double().mean(1)]
        rows.append(torch.stack(shares, dim=1))
    return dict(zip(METRICS, torch.cat(rows).mean(0).tolist(), strict=True))
