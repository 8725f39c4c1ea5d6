"""Questions about tables of any size, and the graph that rows and columns make of their cells.

A table has names of columns, names of rows and numbers from 0 to 9. A question asks for the number
of a row and a column; which of two rows has the larger one in a column; or for the sum of two
columns of a row. Names are drawn anew for each table, so that none says where it stands. Answers
are the same 22 whatever the size of a table: a number from 0 to 18; the first row, neither or the
second.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

QUESTIONS = ("look up", "compare", "sum")
KINDS = ("name of the row", "name of the column", "same row", "same column")  # of edges
NUMBERS, NAMES = 10, 32
VOCABULARY = 1 + len(QUESTIONS) + NUMBERS + NAMES  # 0 is a blank
ANSWERS = 2 * NUMBERS + 2
ASKED, WORDS = 12, 4  # questions about a table, and words of each: its kind and up to three names
QUESTION, COLUMN_NAME, ROW_NAME, NUMBER = ROLES = range(4)


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
