"""Sums of short rows that stay in vector registers, as instructions that numba lacks.

In a plain loop the compiler cannot know that the sum and the rows it reads do not overlap, and
stores the sum after each addition: three times the time.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# Features in a row: one cache line in float32.
WIDTH = 16

# Sums are kept in float64: their error does not grow with the number of rows.
_SUM = ir.VectorType(ir.DoubleType(), WIDTH)
_BYTE = ir.IntType(8)


@intrinsic
def new_sum(typing: Any) -> Any:
    """Return a sum of rows, which is not zero yet."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(cgutils.alloca_once(builder, _SUM), _BYTE.as_pointer())

    return types.voidptr(), generate


@intrinsic
def clear(typing: Any, total: Any) -> Any:
    """Set a sum to zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(ir.Constant(_SUM, [0.0] * WIDTH), _sum(builder, arguments[0]))
        return context.get_dummy_value()

    return types.void(total), generate


@intrinsic
def add(typing: Any, total: Any, rows: Any, index: Any) -> Any:
    """Add ``rows[index]`` to a sum."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _sum(builder, arguments[0])
        row = _load(context, builder, signature.args[1], *arguments[1:])
        row = row if row.type == _SUM else builder.fpext(row, _SUM)
        builder.store(builder.fadd(builder.load(place), row), place)
        return context.get_dummy_value()

    return types.void(total, rows, index), generate


@intrinsic
def store(typing: Any, total: Any, rows: Any, index: Any) -> Any:
    """Write a sum to ``rows[index]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(_sum(builder, arguments[0]))
        place, size = _row(context, builder, signature.args[1], *arguments[1:])
        row = place.type.pointee
        value = value if row == _SUM else builder.fptrunc(value, row)
        builder.store(value, place, align=size)
        return context.get_dummy_value()

    return types.void(total, rows, index), generate


@intrinsic
def add_row(typing: Any, target: Any, index: Any, rows: Any, source: Any) -> Any:
    """Add ``rows[source]`` to ``target[index]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, size = _row(context, builder, signature.args[0], *arguments[:2])
        row = _load(context, builder, signature.args[2], *arguments[2:])
        builder.store(builder.fadd(builder.load(place, align=size), row), place, align=size)
        return context.get_dummy_value()

    return types.void(target, index, rows, source), generate


def _sum(builder: Any, pointer: Any) -> Any:
    return builder.bitcast(pointer, _SUM.as_pointer())


def _row(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> tuple[Any, int]:
    """Return a pointer to a row of a contiguous ``[L, WIDTH]`` array, and its alignment."""
    data = context.make_array(array_type)(context, builder, array).data
    element = context.get_value_type(array_type.dtype)
    place = builder.gep(data, [builder.mul(index, ir.Constant(index.type, WIDTH))])
    pointer = ir.VectorType(element, WIDTH).as_pointer()
    return builder.bitcast(place, pointer), array_type.dtype.bitwidth // 8


def _load(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    place, size = _row(context, builder, array_type, array, index)
    return builder.load(place, align=size)
