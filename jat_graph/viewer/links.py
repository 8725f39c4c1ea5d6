"""Which entries of matrices go into the file, and how many the file has room for."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.viewer.content import Links

FILE_BYTES = 20_000_000  # that no file passes
LINK_BYTES, JUMP_BYTES = 14_000_000, 5_000_000  # of them; the rest is for what is around
LINK_SIZE, ROW_SIZE, MATRIX_SIZE = 16 / 3, 8 / 3, 160  # a key and a value, a count, names: base 64
JUMP_SIZE = 300  # with its stones, in digits
MOST_LINKS, MOST_JUMPS = 4096, 60  # of a matrix and of a head: more than the eye takes in


def links_with_room(rows: int, matrices: int) -> int:
    """Return how many links of each matrix the file has room for; ``rows`` are of all of them."""
    room = (LINK_BYTES - ROW_SIZE * rows - MATRIX_SIZE * matrices) / max(1, matrices)
    most = min(MOST_LINKS, int(room / LINK_SIZE))
    if most < rows / max(1, matrices):  # not even one of each row
        raise ValueError(
            f"the page must stay below {FILE_BYTES // 10**6} MB, got {matrices} matrices of "
            f"{rows} rows: show fewer texts, layers, heads or tokens"
        )
    return most


def jumps_with_room(heads: int) -> int:
    """Return how many jumps of each head the file has room for."""
    return min(MOST_JUMPS, JUMP_BYTES // (JUMP_SIZE * max(1, heads)))


def strongest_links(matrix: Tensor, most: int, shown: int | None = None) -> Links:  # [n, m]
    """Keep the strongest entry of each row, and the strongest of all others up to ``most``.

    Columns from ``shown`` on are of tokens that are not shown: none of theirs is kept, and what
    they have counts as hidden. Entries of 0 are no links.
    """
    size = matrix.abs().double()
    own = size[:, :shown]
    total, visible = float(size.sum()), float(own.sum())
    first = own.argmax(1, keepdim=True)
    ranks = own.scatter(1, first, torch.inf).masked_fill(own == 0, 0)
    chosen = ranks.flatten().topk(min(most, int(own.count_nonzero()))).indices.sort().values
    queries, keys = chosen // own.size(1), chosen % own.size(1)
    # Rounding may put what is left below 0, and 0/0 is nothing.
    weak, hidden = max(0.0, visible - float(own[queries, keys].sum())), max(0.0, total - visible)
    return Links(
        queries, keys, matrix[queries, keys], weak / (total or 1.0), hidden / (total or 1.0)
    )
