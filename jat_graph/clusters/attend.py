"""Choosing what tokens read, and reading it: two functions; and what stands beside a cache."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.clusters import naive
from jat_graph.clusters.choice import (
    BY_TRITON,
    Choice,
    Nodes,
    Rule,
    empty_choice,
    grow_for,
    wide,
)
from jat_graph.clusters.tree import SINKS, Tree, spread_gradients
from jat_graph.core.compiling import HAS_NUMBA, HAS_TRITON

Parts = tuple[Tensor, Tensor, Tensor]


class Kernel(NamedTuple):
    """How a kind of device computes: three functions, as :mod:`jat_graph.clusters.naive` has them.

    Args:
        choose: Lets tokens descend the tree, and fills in a choice.
        read: Returns what tokens read, and the logarithm of the sum of e to their scores.
        differentiate: Returns the gradients of queries, keys and values, and of the nodes' means.

    All take ``kept``, the share that dropout keeps and a seed; None is no dropout.
    """

    choose: Callable[..., Choice]
    read: Callable[..., tuple[Tensor, Tensor]]
    differentiate: Callable[..., tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]]


KERNELS: dict[str, Kernel] = {}


def register_kernel(device: str, kernel: Kernel | ModuleType) -> None:
    """Let a kernel choose and read on a kind of device, in the place of the one that did.

    Args:
        device: The type of a ``torch.device``, as ``"cuda"``.
        kernel: Three functions; or a module that has them, under their names. On CUDA, those that
            choose write every entry of a choice's lists, -1 for none.
    """
    KERNELS[device] = Kernel(kernel.choose, kernel.read, kernel.differentiate)


def kernel_for(device: torch.device) -> Kernel:
    """Return what computes on a device: the formula where nothing else does."""
    if HAS_NUMBA and "cpu" not in KERNELS:
        from jat_graph.clusters.cpu import gradients, kernel  # which import numba

        register_kernel("cpu", Kernel(kernel.choose, kernel.read, gradients.differentiate))
    if HAS_TRITON and device.type == "cuda" and "cuda" not in KERNELS:
        register_kernel("cuda", import_module("jat_graph.clusters.gpu.kernel"))
    return KERNELS.get(device.type, KERNELS["naive"])


register_kernel("naive", naive)


def choose(
    query: Tensor, key: Tensor, rule: Rule | None = None, scale: float | None = None
) -> Choice:
    r"""Return what tokens read that descend the tree of their keys, by default in causal order.

    Args:
        query: Queries of the last T of n tokens, ``[H, T, D]``.
        key: Keys of all tokens, ``[Hkv, n, D]``, each for as many neighbouring heads of queries.
        rule: How they descend it. (default: None, which means ``Rule()``)
        scale: Factor of the scores. (default: None, which means 1/√D)

    Returns:
        The choice: constants, for :func:`attend` to read.

    Shapes:
        - **output:** ``opened`` ``[H, T, levels, groups]``, ``read`` ``[H, T, clusters]``

    Reference:
        This library's own: clusters of keys as in Multipole Attention (Hooper et al. 2025), a tree
        of them, and a descent for each token in prefill, generation and training alike.
    """
    rule = Rule() if rule is None else rule
    own, key = (wide(x.detach()) for x in (query, key))
    tree = grow_for(rule, key)
    empty = empty_choice(own, key.size(1), tree, rule)
    own = own * (query.size(-1) ** -0.5 if scale is None else scale)
    return kernel_for(key.device).choose(own, key, empty, Nodes.of(tree, key, key, rule))


def attend(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, scale: float | None = None
) -> Tensor:
    r"""Return what tokens read along a choice: some keys exactly, all others by means.

    With E_i the keys that token i reads exactly, and a(i, j) the node above key j at which it
    stopped, its scores are

    .. math::
        s_{ij} = \begin{cases}
            \text{scale} \cdot q_i \cdot k_j & j \in E_i \\
            \text{scale} \cdot q_i \cdot (P_{a(i, j)} k)_j & \text{elsewhere}
        \end{cases}

    where P_a is the mean over the keys of a node, and the output is softmax(s) V. Gradients are
    exact, the choice being constant.

    Args:
        query: Queries of the last T of n tokens, ``[H, T, D]``.
        key: Keys of all tokens, ``[Hkv, n, D]``.
        value: Values of all tokens, ``[Hkv, n, Dv]``.
        choice: Of :func:`choose`, or any other that fits.
        scale: Factor of the scores. (default: None, which means 1/√D)

    Returns:
        The heads' outputs.

    Shapes:
        - **output:** ``[H, T, Dv]``

    Reference:
        This library's own.
    """
    scale = query.size(-1) ** -0.5 if scale is None else scale
    own, key, rows = (wide(x) for x in (query, key, value))
    output: Tensor = _Attend.apply(own * scale, key, rows, choice)
    return output.to(value.dtype)


class State(NamedTuple):
    """A tree and the means of its nodes: a function of keys and values alone."""

    tree: Tree
    nodes: Nodes

    def crop(self, length: int) -> State:
        """Return what the first tokens alone leave behind."""
        tree = self.tree.crop(max(0, length - SINKS) // self.tree.segment)
        if tree.clusters == self.tree.clusters:
            return self
        return State(tree, self.nodes.crop(tree.clusters))


def read_next(
    query: Tensor,  # of the last T tokens, [H, T, D]
    key: Tensor,  # of all, [Hkv, n, D]
    value: Tensor,  # [Hkv, n, Dv]
    rule: Rule,
    scale: float,
    kept: State | None = None,  # what the tokens before them left behind
) -> tuple[Tensor, State]:  # [H, T, Dv]
    """Return what the last tokens of a sequence read, and what all leave behind."""
    known, nodes = kept or (None, None)
    tree = grow_for(rule, key, known)
    if nodes is None or tree is not known:
        nodes = Nodes.of(tree, key, value, rule, nodes)
    first = None
    if key.device.type in BY_TRITON:
        first = read_first(query[None], key[None], value[None], rule, scale)
    else:
        query = wide(query)
    if first is not None:
        query = query[:, first.size(2) :]
        if not query.size(1):
            return first[0], State(tree, nodes)
    own = torch.mul(query, scale, out=query.new_empty(query.shape))  # a head's stand together
    empty = empty_choice(own, key.size(1), tree, rule)
    output, _ = kernel_for(key.device).read(own, key, value, empty, nodes, chosen=False)
    output = output.to(value.dtype)
    if first is not None:  # heads of a token stand together
        output = torch.cat([x.transpose(0, 1) for x in (first[0], output)]).transpose(0, 1)
    return output, State(tree, nodes)


def read_first(
    query: Tensor,  # of the last T tokens, [B, H, T, D]
    key: Tensor,  # of all, [B, Hkv, n, D]
    value: Tensor,  # [B, Hkv, n, Dv]
    rule: Rule,
    scale: float,
    dropout_p: float = 0.0,
) -> Tensor | None:  # [B, H, t, Dv]
    """Return what the tokens below ``dense_below`` read, by SDPA, if there are such tokens."""
    before = key.size(2) - query.size(2)
    number = min(rule.dense_below - before, query.size(2)) * rule.causal
    if number <= 0:
        return None
    length = before + number
    mask: Any = None
    if before:
        from torch.nn.attention.bias import causal_lower_right  # which imports the compiler

        mask = causal_lower_right(number, length)
    given = query[:, :, :number], key[:, :, :length], value[:, :, :length], mask, dropout_p
    output: Tensor = F.scaled_dot_product_attention(
        *given, is_causal=not before, scale=scale, enable_gqa=True
    )
    return output


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, choice: Choice) -> Tensor:
        nodes = Nodes.of(choice.tree, key, value, choice.rule)
        output, lse = kernel_for(key.device).read(query, key, value, choice, nodes)
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.choice = choice
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, lse = ctx.saved_tensors
        nodes = Nodes.of(ctx.choice.tree, key, value, ctx.choice.rule)
        given = grad, output, lse, query, key, value, ctx.choice, nodes
        return (*differentiate(kernel_for(key.device), given), None)


def differentiate(kernel: Kernel, given: tuple[Any, ...], **options: Any) -> Parts:
    """Return the gradients of queries, keys and values, those of means among them."""
    by_query, by_key, by_value, by_keys, by_values = kernel.differentiate(*given, **options)
    tree: Tree = given[-2].tree
    inside = slice(SINKS, SINKS + tree.keys.size(1))
    if tree.clusters:
        by_key[:, inside] += spread_gradients(tree, by_keys)
        by_value[:, inside] += spread_gradients(tree, by_values)
    return by_query, by_key, by_value
