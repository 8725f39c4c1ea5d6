"""How trees are read on GPUs: what the kernel takes."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.clusters import naive
from jat_graph.clusters.choice import Choice, Nodes, wide
from jat_graph.clusters.draws import Dropout
from jat_graph.clusters.gpu.backward import add_gradients
from jat_graph.clusters.gpu.launching import ROWS, launch

WIDEST = 256  # features of heads that kernels are compiled for


def unsupported(key: Tensor, choice: Choice, kept: Dropout = None) -> str | None:
    """Return why the kernel does not read a choice, or None."""
    rule = choice.rule
    if kept is not None:
        return "dropout"
    if key.dtype == torch.float64:
        return "float64"
    if not rule.keys:
        return "keys=0"
    if rule.causal and rule.segment % ROWS:
        return f"a segment that is no multiple of {ROWS}"
    if key.size(-1) > WIDEST:
        return f"heads of more than {WIDEST} features"
    if key[0].numel() >= 2**31:
        return "as many keys as no index counts"
    return None


def choose(query: Tensor, key: Tensor, empty: Choice, nodes: Nodes, kept: Dropout = None) -> Choice:
    """Let tokens descend the tree, as they do to read; the query is scaled."""
    if unsupported(key, empty, kept):
        return naive.choose(wide(query), key, _emptied(empty), nodes)
    launch(query, key, key, empty, nodes, chosen=False)
    return empty


def read(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    choice: Choice,
    nodes: Nodes,
    chosen: bool = True,
    kept: Dropout = None,
) -> tuple[Tensor, Tensor]:  # [H, T, Dv], [H, T]
    """Return what tokens read, and the logarithm of the sum of e to their scores."""
    if unsupported(key, choice, kept):
        choice = choice if chosen else _emptied(choice)
        return naive.read(wide(query), key, value, choice, nodes, chosen, kept)
    return launch(query, key, value, choice, nodes, chosen)


def differentiate(
    grad: Tensor,
    output: Tensor,
    lse: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    choice: Choice,
    nodes: Nodes,
    kept: Dropout = None,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Return the gradients of queries, keys and values, and those of the means of both."""
    if unsupported(key, choice, kept):
        grad, output, query, key, value = map(wide, (grad, output, query, key, value))
        return naive.differentiate(grad, output, lse, query, key, value, choice, nodes, kept)
    less = (wide(grad) * output).sum(-1)
    query, grad, lse, key, value = (x.contiguous() for x in (query, grad, lse, key, value))
    by_query, _ = launch(query, key, value, choice, nodes, chosen=True, back=(grad, lse, less))
    keys, values = add_gradients(query, grad, lse, less, key, value, choice, nodes)
    return by_query, keys[0], values[0], keys[1:], values[1:]


def _emptied(choice: Choice) -> Choice:
    """Return a choice whose lists are written to have nothing."""
    choice.opened.fill_(-1)
    choice.read.fill_(-1)
    return choice
