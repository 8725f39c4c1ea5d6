"""What a page of the viewer holds, plain data that others fill in, and how much has room there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jat_graph.looking.inspection.reports import Jump
from jat_graph.looking.inspection.selection import EncodedText

# Of a head: what it gives, what it would without jumps, what these change, what they go along.
# Of one that reads by clusters the first three, before standing for exact scores.
AFTER, BEFORE, DIFFERENCE, GRAPH = KINDS = ("attention", "before", "difference", "graph")

FILE_BYTES = 20_000_000  # that no file passes
LINK_BYTES, JUMP_BYTES = 14_000_000, 5_000_000  # of them; the rest is for what is around
LINK_SIZE = 16 / 3
ROW_SIZE = 8 / 3
MATRIX_SIZE = 160  # a key and a value, a count, names: base 64
JUMP_SIZE = 300  # with its stones, in digits
NODE_SIZE = 14  # a node of a token, and its share, in digits
MOST_LINKS, MOST_JUMPS = 4096, 60  # of a matrix and of a head: more than the eye takes in
MOST_NODES = 16  # of a token: those that it reads, and those that stand for their keys


@dataclass(frozen=True)
class Links:
    """The strongest entries of a matrix of a head, in the order of the text."""

    queries: Tensor  # the tokens i that look, [E]
    keys: Tensor  # the tokens k looked at, [E]
    values: Tensor  # what the matrix has there, [E]
    left_out: float  # share of the sum of all magnitudes, between shown tokens, but too weak
    hidden: float = 0.0  # share of it that goes to tokens that are not shown


@dataclass(frozen=True)
class TreeContent:
    """What the tokens that are shown read of the tree over a head's keys."""

    members: Sequence[Sequence[int]]  # keys that are shown, of each node that is named below
    sizes: Sequence[int]  # how many keys it has in all
    exact: Sequence[float]  # the share of each token's attention that is exact
    read: Sequence[Sequence[tuple[int, float]]]  # clusters of such keys, and their shares
    means: Sequence[Sequence[tuple[int, float]]]  # nodes that stand for their keys, as well


@dataclass(frozen=True)
class HeadContent:
    """One head on one text."""

    layer: int
    head: int
    links: dict[str, Links]  # by kind: AFTER, and all KINDS of a head that jumps
    jumps: tuple[Jump, ...] = ()  # edges of its graph, strongest gains first
    num_jumps: int = 0  # how many edges there are
    note: str = ""  # what there is to say of the head, one line
    tree: TreeContent | None = None  # of a head that reads by clusters
    change: float | None = None  # share of the attention that jumps, or clusters, move elsewhere


@dataclass(frozen=True)
class ParsedWords:
    """The dependency tree of a text, over its words."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]  # the position of each word's head, from 0; -1 for the root
    relations: tuple[str, ...]
    tokens: tuple[int, ...]  # the word of each token of the text; -1 for those of no word


@dataclass(frozen=True)
class TextContent:
    """One text and what heads do on it."""

    title: str  # what the list of texts calls it
    tokens: tuple[str, ...]  # that are shown
    heads: tuple[HeadContent, ...]  # layer by layer
    positions: tuple[int, ...] | None = None  # of each token among the model's, else 0, 1, …
    parse: ParsedWords | None = None
    second: int | None = None  # the first token of a second sentence, which a line sets apart


def links_with_room(rows: int, matrices: int) -> int:
    """Return how many links of each matrix the file has room for; they have so many rows in all."""
    room = (LINK_BYTES - ROW_SIZE * rows - MATRIX_SIZE * matrices) / max(1, matrices)
    most = min(MOST_LINKS, int(room / LINK_SIZE))
    if most < rows / max(1, matrices):  # not even one of each row
        raise ValueError(
            f"the page must stay below {FILE_BYTES // 10**6} MB, got {matrices} matrices of "
            f"{rows} rows: show fewer texts, layers, heads or tokens"
        )
    return most


def strongest_links(matrix: Tensor, most: int, shown: int | None = None) -> Links:  # [n, m]
    """Keep the strongest entry of each row, and of all others up to ``most``; 0 is no link."""
    # Columns from `shown` on are of tokens that are not shown, and count as hidden.
    size = matrix.abs().double()
    own = size[:, :shown]
    total, visible = float(size.sum()), float(own.sum())
    first = own.argmax(1, keepdim=True)
    ranks = own.scatter(1, first, torch.inf).masked_fill(own == 0, 0)
    chosen = ranks.flatten().topk(min(most, int(own.count_nonzero()))).indices.sort().values
    queries = chosen // own.size(1)
    keys = chosen % own.size(1)
    # Rounding may put what is left below 0, and 0/0 is nothing.
    weak = max(0.0, visible - float(own[queries, keys].sum()))
    hidden = max(0.0, total - visible)
    total = total or 1.0
    return Links(queries, keys, matrix[queries, keys], weak / total, hidden / total)


def shown_links(matrix: Tensor, text: EncodedText, most: int) -> Links:
    """Return the strongest links between shown tokens, those hidden counted."""
    shown = [token.index for token in text.shown]
    others = sorted(set(range(len(matrix))) - set(shown))
    matrix = matrix.detach().cpu().float()
    return strongest_links(matrix[shown][:, shown + others], most, len(shown))
