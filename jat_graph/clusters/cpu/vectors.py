"""Operations on vectors of numbers that numba's loops call, written in LLVM's own language.

numba leaves it to LLVM to find vectors in loops, which does it badly for products of a query with
scattered rows of keys: here they stand in registers, 16 numbers wide on any processor. Integers of
16 bits are widened as they are read: they are bfloat16, which numpy does not have.
Rows are as long as a total or a query, of which columns beyond a multiple of 16 are left out.
Operations take matrices and the number of a row, as a loop pays for each view that it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from jat_graph.clusters.cpu.emitter import INDEX, INT32, LANES, ROWS, Emitter, Numbers, same

STEEP = 60.0  # e to more than this is left to the caller, who finds a larger shift


def _operation(result: Any = types.void) -> Callable[[Callable[..., Any]], Any]:
    """Let loops call an operation; its result is of a type, or of that of its first argument."""

    def decorate(write: Callable[..., Any]) -> Any:
        def typed(context: Any, *kinds: Any) -> Any:
            returned = getattr(kinds[0], "dtype", kinds[0]) if result is None else result

            def generate(context: Any, builder: Any, own: Any, values: Any) -> Any:
                parts = []
                for kind, value in zip(own.args, values, strict=True):
                    parts.append(value)
                    if isinstance(kind, types.Array):
                        made = context.make_array(kind)(context, builder, value)
                        # Numbers of a row stand side by side; its rows may be far apart.
                        (length,) = cgutils.unpack_tuple(builder, made.shape)[-1:]
                        step = cgutils.unpack_tuple(builder, made.strides)[0]
                        step = length if kind.layout == "C" else builder.sdiv(step, made.itemsize)
                        parts[-1] = Numbers(made.data, length, kind.dtype, step)
                found = write(Emitter(builder), *parts)
                return context.get_dummy_value() if found is None else found

            return returned(*kinds), generate

        typed.__name__ = write.__name__
        typed.__signature__ = signature(write)  # type: ignore[attr-defined]  # which numba looks at
        return intrinsic(typed)

    return decorate


@_operation()
def score_eight(
    emit: Emitter, query: Numbers, row: Any, keys: Numbers, rows: Numbers, place: Any,
    scores: Numbers, into: Any, at: Any,
) -> None:  # fmt: skip
    """Score eight listed rows of keys, from a place on, for a row of queries."""
    found = emit.products(emit.row(query, row), emit.rows(keys, rows, place))
    emit.store(found, emit.row(scores, into), at)


@_operation()
def add_eight(
    emit: Emitter, totals: Numbers, row: Any, weights: Numbers, of: Any, first: Any,
    values: Numbers, rows: Numbers, place: Any,
) -> None:  # fmt: skip
    """Add eight listed rows of values, each times its weight, to a row of totals."""
    own = emit.load(emit.row(weights, of), first, ROWS)
    emit.add_rows(emit.row(totals, row), own, emit.rows(values, rows, place))


@_operation()
def spread_eight(
    emit: Emitter, totals: Numbers, rows: Numbers, place: Any, weights: Numbers, of: Any,
    first: Any, parts: Numbers, row: Any,
) -> None:  # fmt: skip
    """Add a row of parts to eight listed rows of totals, each time times another weight."""
    own = emit.load(emit.row(weights, of), first, ROWS)
    emit.spread_rows(emit.rows(totals, rows, place), own, emit.row(parts, row))


@_operation(None)
def read_eight(
    emit: Emitter, totals: Numbers, queries: Numbers, row: Any, keys: Numbers,
    values: Numbers, rows: Numbers, node: Any, place: Any, shift: Any, drawn: Any, most: Any,
    factor: Any,
) -> Any:  # fmt: skip
    """Add eight values that a node lists, each times e to the score of its key less a shift.

    Return the sum of these weights before dropout, if it has a factor; or -1, nothing being added,
    where one of them is huge.
    """
    build = emit.build
    own = emit.row(rows, node)
    scores = emit.products(emit.row(queries, row), emit.rows(keys, own, place))
    scores = build.fsub(scores, emit.spread(shift, ROWS))
    result = cgutils.alloca_once_value(build, shift.type(-1.0))
    steep = build.fcmp_ordered(">", emit.reduced(scores, emit.larger), shift.type(STEEP))
    with cgutils.if_likely(build, build.not_(steep)):
        weights = emit.exp(scores)
        build.store(emit.reduced(weights, build.fadd), result)
        weights = build.fmul(weights, emit.mask(own, place, drawn, most, factor))
        emit.add_rows(emit.row(totals, row), weights, emit.rows(values, own, place))
    return build.load(result)


@_operation()
def differentiate_eight(
    emit: Emitter, queries: Numbers, grads: Numbers, row: Any, keys: Numbers, values: Numbers,
    rows: Numbers, node: Any, place: Any, lse: Any, delta: Any, drawn: Any, most: Any, factor: Any,
    by_query: Numbers, by_key: Numbers, by_value: Numbers,
) -> None:  # fmt: skip
    """Add the gradients of a row that reads eight keys and values that a node lists."""
    build = emit.build
    own = emit.row(rows, node)
    query, grad = emit.row(queries, row), emit.row(grads, row)
    its = emit.rows(keys, own, place)
    weights = emit.exp(build.fsub(emit.products(query, its), emit.spread(lse, ROWS)))
    by_score = emit.products(grad, emit.rows(values, own, place))
    mask = emit.mask(own, place, drawn, most, factor)
    by_score = build.fsub(build.fmul(by_score, mask), emit.spread(delta, ROWS))
    by_score, weights = build.fmul(weights, by_score), build.fmul(weights, mask)
    emit.add_rows(emit.row(by_query, row), by_score, its)
    emit.spread_rows(emit.rows(by_key, own, place), by_score, query)
    emit.spread_rows(emit.rows(by_value, own, place), weights, grad)


@_operation(None)
def highest(emit: Emitter, scores: Numbers, row: Any, start: Any, length: Any) -> Any:
    """Return the highest of some scores of a row, 16 or a multiple of it."""
    own = emit.row(scores, row)
    most = cgutils.alloca_once_value(emit.build, emit.load(own, start))
    for place in emit.columns(length, start):
        emit.build.store(emit.larger(emit.load(own, place), emit.build.load(most)), most)
    return emit.reduced(emit.build.load(most), emit.larger)


@_operation()
def keep_larger(
    emit: Emitter, scores: Numbers, row: Any, start: Any, most: Numbers, into: Any, place: Any
) -> None:
    """Let 16 numbers from a place on grow to as many scores of a row from a start on."""
    one, other = emit.row(scores, row), emit.row(most, into)
    emit.store(emit.larger(emit.load(one, start), emit.load(other, place)), other, place)


@_operation(None)
def take_exp(emit: Emitter, scores: Numbers, row: Any, start: Any, length: Any, shift: Any) -> Any:
    """Take e to some scores of a row less a shift, 16 or a multiple of it, and return the sum."""
    own = emit.row(scores, row)
    less = emit.spread(shift)
    total = cgutils.alloca_once_value(emit.build, same(own.data.type.pointee, 0.0))
    for place in emit.columns(length, start):
        part = emit.exp(emit.build.fsub(emit.load(own, place), less))
        emit.store(part, own, place)
        emit.build.store(emit.build.fadd(part, emit.build.load(total)), total)
    return emit.reduced(emit.build.load(total), emit.build.fadd)


@_operation()
def drop(
    emit: Emitter, weights: Numbers, row: Any, names: Numbers, of: Any, length: Any, drawn: Any,
    most: Any, factor: Any,
) -> None:  # fmt: skip
    """Drop some weights of a row, 16 or a multiple of it, and multiply the others by a factor."""
    own, called = emit.row(weights, row), emit.row(names, of)
    for place in emit.columns(length):
        mask = emit.kept(emit.load(called, place), drawn, most, factor)
        emit.store(emit.build.fmul(emit.load(own, place), mask), own, place)


@_operation(types.intp)
def count_from(
    emit: Emitter, scores: Numbers, row: Any, start: Any, length: Any, bound: Any
) -> Any:
    """Return how many of some scores of a row, 16 or a multiple of it, are a bound or more."""
    numbers = ir.VectorType(INT32, LANES)
    least = emit.spread(bound)
    own = emit.row(scores, row)
    total = cgutils.alloca_once_value(emit.build, same(INT32, 0))
    for place in emit.columns(length, start):
        there = emit.build.fcmp_ordered(">=", emit.load(own, place), least)
        part = emit.build.add(emit.build.load(total), emit.build.zext(there, numbers))
        emit.build.store(part, total)
    return emit.build.sext(emit.reduced(emit.build.load(total), emit.build.add), INDEX)


@_operation(types.intp)
def bits_from(emit: Emitter, scores: Numbers, row: Any, start: Any, bound: Any) -> Any:
    """Return as bits which of 16 scores of a row are a bound or more."""
    part = emit.load(emit.row(scores, row), start)
    there = emit.build.fcmp_ordered(">=", part, emit.spread(bound))
    return emit.build.zext(emit.build.bitcast(there, ir.IntType(LANES)), INDEX)


@_operation(types.intp)
def lowest_bit(emit: Emitter, bits: Any) -> Any:
    """Return which bit is the lowest that is set."""
    return emit.build.cttz(bits, ir.Constant(ir.IntType(1), 0))


@_operation(None)
def number_at(emit: Emitter, like: Numbers, x: Numbers, row: Any, column: Any) -> Any:
    """Return one number of a matrix in the precision of another."""
    return emit.build.extract_element(emit.load(emit.row(x, row), column, 1), INT32(0))


@_operation()
def fetch(emit: Emitter, x: Numbers, row: Any) -> None:
    """Let a row come nearer, 64 bytes at a time, as it is read soon."""
    byte = ir.IntType(8).as_pointer()
    name = "llvm.prefetch.p0"
    kinds = ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32])
    made = emit.build.module.globals.get(name) or ir.Function(emit.build.module, kinds, name)
    start = emit.build.bitcast(emit.row(x, row).data, byte)
    length = emit.build.mul(x.length, INDEX(x.kind.bitwidth // 8))
    with cgutils.for_range(emit.build, emit.build.udiv(length, INDEX(64))) as loop:
        own = emit.build.gep(start, [emit.build.mul(loop.index, INDEX(64))])
        emit.build.call(made, [own, INT32(0), INT32(2), INT32(1)])
