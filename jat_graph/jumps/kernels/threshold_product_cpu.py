"""Multiply by a sum of threshold graphs in numba: running sums of rows, read where they end.

Apart from the other forms, because it gives numba instructions that numba lacks: sums of short rows
that stay in vector registers. In a plain loop the compiler cannot know that the sum and the rows it
reads do not overlap, and stores the sum after each addition: three times the time.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from torch import Tensor

from jat_graph.core.compiling import Array, loop

# Features in a row: one cache line in float32.
WIDTH = 16

HELD = 128  # running sums at a time: they fit the fastest cache

# Sums are kept in float64: their error does not grow with the number of rows.
_SUM = ir.VectorType(ir.DoubleType(), WIDTH)
_BYTE = ir.IntType(8)


def add_joined_numba(x: Tensor, order: Tensor, reach: Tensor) -> Tensor:
    """Return y_i = Σ_j Σ_k 1[j joins (i, k)] x_k: [G, L, D], two [G, U, L] -> [G, L, D]."""
    total = x.new_empty(x.shape)
    # Large NumPy arrays lie on huge pages, which random rows need.
    scratch = np.empty((numba.config.NUMBA_NUM_THREADS, 2, x.size(1), WIDTH), x.numpy().dtype)
    _add_joined(x.numpy(), order.numpy(), reach.numpy(), total.numpy(), scratch)
    return total


@loop(parallel=True)
def _add_joined(x: Array, order: Array, reach: Array, total: Array, scratch: Array) -> None:
    graphs, length, features = x.shape
    slices = (features + WIDTH - 1) // WIDTH
    for task in numba.prange(graphs * slices):
        graph, first = task // slices, task % slices * WIDTH
        last = min(first + WIDTH, features)
        rows, sums = scratch[numba.get_thread_id()]
        rows[:, last - first :] = 0
        sums[:] = 0
        for token in range(length):
            for feature in range(first, last):
                rows[token, feature - first] = x[graph, token, feature]
        _add_keys(rows, order[graph], reach[graph], sums)
        for token in range(length):
            for feature in range(first, last):
                total[graph, token, feature] = sums[token, feature - first]


@loop()
def _add_keys(rows: Array, order: Array, reach: Array, sums: Array) -> None:
    running = np.empty((HELD, WIDTH), rows.dtype)
    for key in range(len(order)):
        _add_side(rows, order[key], reach[key], 1, running, sums)
        _add_side(rows, order[key][::-1], reach[key][::-1], -1, running, sums)


@loop()
def _add_side(
    rows: Array, order: Array, reach: Array, sign: int, running: Array, sums: Array
) -> None:
    """Add to each token's sum the running sum of rows, in the order, up to its reach.

    Towards the end of the order the reach rises. In chunks: a loop that adds rows until the next
    token's reach would guess wrong at every token.
    """
    length = len(order)
    size = 0
    while size < length and sign * reach[size] > 0:
        size += 1
    # A score of zero, where it votes, joins everybody from the middle.
    zeros = 0
    while zeros < size and sign * reach[size - 1 - zeros] == length:
        zeros += 1
    total = new_sum()
    index, token = 0, size - 1 - zeros
    while token >= 0:
        stop = min(index + HELD, sign * reach[0])
        for here in range(index, stop):
            add(total, rows, np.uintp(order[here]))
            store(total, running, np.uintp(here - index))
        last = token
        while token >= 0 and sign * reach[token] <= stop:
            token -= 1
        for target in range(token + 1, last + 1):
            end = sign * reach[target] - 1 - index
            add_row(sums, np.uintp(order[target]), running, np.uintp(end))
        index = stop
    if zeros:
        for here in range(index, length):
            add(total, rows, np.uintp(order[here]))
        store(total, running, np.uintp(0))
        for target in range(size - zeros, size):
            add_row(sums, np.uintp(order[target]), running, np.uintp(0))


@intrinsic
def new_sum(typing: Any) -> Any:
    """Return a sum of no rows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total = cgutils.alloca_once(builder, _SUM)
        builder.store(ir.Constant(_SUM, [0.0] * WIDTH), total)
        return builder.bitcast(total, _BYTE.as_pointer())

    return types.voidptr(), generate


@intrinsic
def add(typing: Any, total: Any, rows: Any, index: Any) -> Any:
    """Add ``rows[index]`` to a sum."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total = builder.bitcast(arguments[0], _SUM.as_pointer())
        row = _load(context, builder, signature.args[1], *arguments[1:])
        row = row if row.type == _SUM else builder.fpext(row, _SUM)
        builder.store(builder.fadd(builder.load(total), row), total)
        return context.get_dummy_value()

    return types.void(total, rows, index), generate


@intrinsic
def store(typing: Any, total: Any, rows: Any, index: Any) -> Any:
    """Write a sum to ``rows[index]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(builder.bitcast(arguments[0], _SUM.as_pointer()))
        pointer, size = _row(context, builder, signature.args[1], *arguments[1:])
        row = pointer.type.pointee
        value = value if row == _SUM else builder.fptrunc(value, row)
        builder.store(value, pointer, align=size)
        return context.get_dummy_value()

    return types.void(total, rows, index), generate


@intrinsic
def add_row(typing: Any, target: Any, index: Any, rows: Any, source: Any) -> Any:
    """Add ``rows[source]`` to ``target[index]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, size = _row(context, builder, signature.args[0], *arguments[:2])
        row = _load(context, builder, signature.args[2], *arguments[2:])
        builder.store(builder.fadd(builder.load(pointer, align=size), row), pointer, align=size)
        return context.get_dummy_value()

    return types.void(target, index, rows, source), generate


def _row(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> tuple[Any, int]:
    """Return a pointer to a row of a contiguous ``[L, WIDTH]`` array, and its alignment."""
    data = context.make_array(array_type)(context, builder, array).data
    element = context.get_value_type(array_type.dtype)
    first = builder.gep(data, [builder.mul(index, ir.Constant(index.type, WIDTH))])
    pointer = builder.bitcast(first, ir.VectorType(element, WIDTH).as_pointer())
    return pointer, array_type.dtype.bitwidth // 8


def _load(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    pointer, size = _row(context, builder, array_type, array, index)
    return builder.load(pointer, align=size)
