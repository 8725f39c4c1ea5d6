"""Instructions on vectors of numbers, in LLVM's own language."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import factorial
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from jat_graph.clusters.draws import MIX, SPREAD

LANES = 16  # numbers of a vector
ROWS = 8  # rows at a time
INDEX: Any = ir.IntType(64)
INT32: Any = ir.IntType(32)
FIRST: Any = INDEX(0)


class Numbers(NamedTuple):
    """A row or a matrix: where its numbers are, its length, numba's type, and from row to row."""

    data: Any
    length: Any
    kind: Any
    step: Any


def same(kind: Any, value: float, lanes: int = LANES) -> Any:
    """Return a vector of a constant."""
    return ir.Constant(ir.VectorType(kind, lanes), [value] * lanes)


class Emitter:
    """Writes instructions, by a builder of LLVM's."""

    def __init__(self, builder: Any) -> None:
        self.build = builder

    def columns(self, length: Any, start: Any = FIRST) -> Iterator[Any]:
        """Go over the first columns of vectors: here once, and as a loop in what is written."""
        with cgutils.for_range(self.build, self.build.udiv(length, INDEX(LANES))) as loop:
            yield self.build.add(start, self.build.mul(loop.index, INDEX(LANES)))

    def shuffle(self, one: Any, other: Any, lanes: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(INT32, len(lanes)), lanes)
        return self.build.shuffle_vector(one, other, mask)

    def spread(self, number: Any, lanes: int = LANES) -> Any:
        """Return a vector of a number."""
        nothing = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
        first = self.build.insert_element(nothing, number, INT32(0))
        return self.shuffle(first, nothing, [0] * lanes)

    def madd(self, one: Any, other: Any, total: Any) -> Any:
        part = self.build.fmul(one, other, flags=["contract"])
        return self.build.fadd(part, total, flags=["contract"])

    def larger(self, one: Any, other: Any) -> Any:
        return self.build.select(self.build.fcmp_ordered(">", one, other), one, other)

    def load(self, x: Numbers, place: Any, lanes: int = LANES) -> Any:
        """Return so many numbers from a place on, those of 16 bits widened."""
        pointer = self.build.gep(x.data, [place])
        kind = x.data.type.pointee
        found = self.build.load(
            self.build.bitcast(pointer, ir.VectorType(kind, lanes).as_pointer())
        )
        found.align = x.kind.bitwidth // 8
        if x.kind.bitwidth != 16:
            return found
        wide = self.build.zext(found, ir.VectorType(INT32, lanes))
        wide = self.build.shl(wide, same(INT32, 16, lanes))
        return self.build.bitcast(wide, ir.VectorType(ir.FloatType(), lanes))

    def store(self, part: Any, x: Numbers, place: Any) -> None:
        pointer = self.build.bitcast(self.build.gep(x.data, [place]), part.type.as_pointer())
        self.build.store(part, pointer).align = x.kind.bitwidth // 8

    def row(self, x: Numbers, row: Any) -> Numbers:
        """Return a row of a matrix."""
        row = row if row.type == INDEX else self.build.sext(row, INDEX)
        return x._replace(data=self.build.gep(x.data, [self.build.mul(row, x.step)]))

    def rows(self, x: Numbers, rows: Numbers, place: Any) -> list[Numbers]:
        """Return each of eight listed rows."""
        places = [self.build.add(place, INDEX(number)) for number in range(ROWS)]
        return [self.row(x, self.build.load(self.build.gep(rows.data, [own]))) for own in places]

    def products(self, query: Numbers, rows: list[Numbers]) -> Any:
        """Return the products of a query with eight rows."""
        totals = [
            cgutils.alloca_once_value(self.build, same(query.data.type.pointee, 0.0)) for _ in rows
        ]
        for column in self.columns(query.length):
            own = self.load(query, column)
            for row, total in zip(rows, totals, strict=True):
                part = self.madd(own, self.load(row, column), self.build.load(total))
                self.build.store(part, total)
        return self.sums([self.build.load(total) for total in totals])

    def sums(self, parts: list[Any]) -> Any:
        """Return the sums of eight vectors, as one; what moves inside 128 bits costs least."""
        blocks = range(0, LANES, 4)
        for pick in ((0, LANES, 1, LANES + 1), (0, 1, LANES, LANES + 1)):
            low, high = ([i + shift + x for i in blocks for x in pick] for shift in (0, 2))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            halves = [[self.shuffle(*pair, lanes) for lanes in (low, high)] for pair in pairs]
            parts = [self.build.fadd(one, other) for one, other in halves]
        for width in (8, 4):
            low = [*range(width)]
            high = [*range(width, 2 * width)]
            halves = [[self.shuffle(x, x, lanes) for lanes in (low, high)] for x in parts]
            parts = [self.build.fadd(one, other) for one, other in halves]
        return self.shuffle(parts[0], parts[1], [*range(ROWS)])

    def reduced(self, x: Any, join: Callable[[Any, Any], Any]) -> Any:
        """Return one number of a vector's."""
        while (width := x.type.count // 2) > 0:
            halves = [*range(width)], [*range(width, 2 * width)]
            low, high = (self.shuffle(x, x, half) for half in halves)
            x = join(low, high)
        return self.build.extract_element(x, INT32(0))

    def add_rows(self, total: Numbers, weights: Any, rows: list[Numbers]) -> None:
        """Add eight rows, each times its weight, to a total."""
        spread = [self.shuffle(weights, weights, [number] * LANES) for number in range(ROWS)]
        for column in self.columns(total.length):
            parts = [self.load(row, column) for row in rows]
            sums = [self.load(total, column), self.build.fmul(spread[0], parts[0])]
            for number in range(1, ROWS):
                sums[number % 2] = self.madd(spread[number], parts[number], sums[number % 2])
            self.store(self.build.fadd(*sums), total, column)

    def spread_rows(self, totals: list[Numbers], weights: Any, part: Numbers) -> None:
        """Add a part to eight rows, each time times another weight."""
        spread = [self.shuffle(weights, weights, [number] * LANES) for number in range(ROWS)]
        for column in self.columns(part.length):
            one = self.load(part, column)
            for total, weight in zip(totals, spread, strict=True):
                self.store(self.madd(weight, one, self.load(total, column)), total, column)

    def exp(self, x: Any) -> Any:
        """Return e to numbers: in single precision by a polynomial, to 2e-6, and 0 below e^-87."""
        lanes, kind = x.type.count, x.type.element
        if isinstance(kind, ir.DoubleType):
            return self._named("exp", x)
        x = self.build.fmul(x, same(kind, 1.4426950216293335, lanes))  # log2(e)
        least = same(kind, -126.0, lanes)
        there = self.build.fcmp_unordered(">", x, least)  # NaN, too
        x = self.build.select(there, x, least)
        whole = self._named("floor", self.build.fadd(x, same(kind, 0.5, lanes)))
        part = self.build.fmul(self.build.fsub(x, whole), same(kind, 0.6931471824645996, lanes))
        total = same(kind, 1 / factorial(6), lanes)
        for power in range(5, -1, -1):
            total = self.madd(total, part, same(kind, 1 / factorial(power), lanes))
        bits = self.build.fptosi(whole, ir.VectorType(INT32, lanes))
        bits = self.build.add(bits, same(INT32, 127, lanes))
        bits = self.build.shl(bits, same(INT32, 23, lanes))
        found = self.build.fmul(total, self.build.bitcast(bits, x.type))
        return self.build.select(there, found, same(kind, 0.0, lanes))

    def kept(self, names: Any, own: Any, most: Any, factor: Any) -> Any:
        """Return what weights are multiplied by in dropout: the formula's mask, by their names."""
        build = self.build
        lanes = names.type.count

        def shifted(x: Any, shift: int) -> Any:
            return build.xor(x, build.lshr(x, same(INT32, shift, lanes)))

        x = build.mul(names, same(INT32, SPREAD, lanes))
        x = build.xor(x, self.spread(own, lanes))
        for shift, times in zip((16, 13), MIX, strict=True):
            x = build.mul(shifted(x, shift), same(INT32, times, lanes))
        least = self.spread(build.trunc(most, INT32), lanes)
        there = build.icmp_unsigned(">", shifted(x, 16), least)
        return build.select(there, self.spread(factor, lanes), same(factor.type, 0.0, lanes))

    def mask(self, rows: Numbers, place: Any, own: Any, most: Any, factor: Any) -> Any:
        """Return what eight listed rows are multiplied by in dropout: by 1 where it has none."""
        found = cgutils.alloca_once_value(self.build, same(factor.type, 1.0, ROWS))
        with self.build.if_then(self.build.fcmp_ordered(">", factor, factor.type(0.0))):
            self.build.store(self.kept(self.load(rows, place, ROWS), own, most, factor), found)
        return self.build.load(found)

    def _named(self, name: str, x: Any) -> Any:
        bits = 64 if isinstance(x.type.element, ir.DoubleType) else 32
        name = f"llvm.{name}.v{x.type.count}f{bits}"
        made = self.build.module.globals.get(name)
        made = made or ir.Function(self.build.module, ir.FunctionType(x.type, [x.type]), name)
        return self.build.call(made, [x])
