"""Functions of Python's standard library, in some of which one variable is the wrong one.

They are read from the library that runs this, with ``ast`` and ``tokenize``. A use of a local
variable is put in the place of another one; which token is wrong, and what should be there, is
known exactly, and as many examples can be drawn as are wanted. Comments and docstrings are left
out, and so is what is harder to follow: functions within functions, classes, lambdas, f-strings,
``global`` and ``nonlocal``. ``self``, ``cls`` and what a comprehension binds are no variables here.

Edges join tokens, of four kinds: a variable's use and its last one before, in the text's order; a
variable and those that it is computed from; a node of the syntax tree and its parent; and all
names that read alike. They are those of the program as it is shown, with the wrong variable.

Reference:
    Allamanis et al., *Learning to Represent Programs with Graphs*, ICLR 2018, for task and edges;
    Vasic et al., *Neural Program Repair by Jointly Learning to Localize and Repair*, ICLR 2019.
"""

from __future__ import annotations

import ast
import io
import keyword
import random
import re
import sysconfig
import tokenize
import warnings
import zlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, dropwhile, pairwise, product
from pathlib import Path
from typing import NamedTuple, TypeAlias

KINDS = ("last use", "computed from", "parent and child", "same name")
SPLITS = ("train", "test")
LONGEST = 96  # tokens of a function, with <start>
PIECES, BUCKETS = 4, 4096  # parts of a name that are read, and the numbers that they share
START, NEWLINE, INDENT, DEDENT = "<start>", "<newline>", "<indent>", "<dedent>"

_SHORT = {tokenize.NEWLINE: NEWLINE, tokenize.INDENT: INDENT, tokenize.DEDENT: DEDENT}
_SHORT |= {tokenize.STRING: "<string>"}
_LEFT_OUT = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
_HARDER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.JoinedStr)
_HARDER += (ast.Global, ast.Nonlocal)

Pair: TypeAlias = tuple[int, int]  # of tokens
Place: TypeAlias = tuple[int, int]  # line and column


class Function(NamedTuple):
    """A function as it is in the library; tokens are told by their number, with <start> as 0."""

    module: str  # the first part of its dotted name
    name: str
    tokens: tuple[str, ...]
    reads: tuple[int, ...]  # where local variables are used
    binds: tuple[int, ...]  # where they get values
    tree: frozenset[Pair]  # of the syntax, parent first
    flows: frozenset[Pair]  # from a variable to one that is computed from it


class Program(NamedTuple):
    """A function as it is shown."""

    function: Function
    tokens: tuple[str, ...]
    wrong: int  # the token that should be another variable; 0 if none should
    right: str  # what it should be


@cache
def read_functions(split: str, folder: Path | None = None) -> tuple[Function, ...]:
    """Read the functions of a split in an order that is shuffled, and always the same.

    A fifth of the modules are for the test; a package counts as one, with its own tests, and so do
    functions that are alike. Most of the functions are in the package ``test``, from which is
    trained; some Pythons come without it.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    home = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    found: dict[tuple[str, ...], Function] = {}
    for path in sorted(home.rglob("*.py")):
        parts = path.relative_to(home).with_suffix("").parts
        tests = zlib.crc32(parts[0].encode()) % 5 == 0
        if tests == (split == "test") and "site-packages" not in parts:
            for function in functions_of(path.read_bytes(), parts[0]):
                found.setdefault(function.tokens, function)
    if not found:
        raise ValueError(f"{home} must hold modules with functions to {split} on, got none")
    functions = [*found.values()]
    random.Random(split).shuffle(functions)
    return tuple(functions)


def functions_of(source: bytes, module: str = "") -> Iterator[Function]:
    """Yield the functions of a module in which a variable could be the wrong one."""
    try:
        text = source.decode("ascii")  # columns of ast are bytes, those of tokenize characters
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings
            tree = ast.parse(text)
        every = [*tokenize.generate_tokens(io.StringIO(text).readline)]
    except (SyntaxError, ValueError, tokenize.TokenError):  # modules for other languages
        return
    kept = [token for token in every if token.type not in _LEFT_OUT]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (one for one in ast.walk(node) if one is not node)
            if not any(isinstance(one, _HARDER) for one in inner):
                function = _read(node, kept, module)
                short = len(function.tokens) <= LONGEST
                if short and any(others(function, read) for read in function.reads):
                    yield function


def _read(
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    every: Sequence[tokenize.TokenInfo],
    module: str,
) -> Function:
    """Read one function out of the tokens of its module."""
    end, hidden = (node.end_lineno or 0, node.end_col_offset or 0), ((0, 0), (0, 0))
    if ast.get_docstring(node) is not None:
        text, node.body = node.body[0], node.body[1:]
        hidden = (_start(text), (text.end_lineno or 0, (text.end_col_offset or 0) + 1))
    low, high = (bisect_left(every, place, key=_place) for place in (_start(node), end))
    inside = (one for one in every[low:high] if not hidden[0] <= one.start < hidden[1])
    tokens = [*dropwhile(lambda one: not one.string, inside)]  # what ends the function before
    at = {token.start: number for number, token in enumerate(tokens, start=1) if token.string}
    words = (_SHORT.get(token.type, token.string) for token in tokens)
    names, binds, reads = _variables(node), set(), set()
    for one in ast.walk(node):
        if isinstance(one, ast.arg | ast.Name) and _name(one) in names and _start(one) in at:
            is_bound = isinstance(one, ast.arg) or isinstance(one.ctx, ast.Store)
            (binds if is_bound else reads).add(at[_start(one)])
    flows = ((at.get(source, 0), at.get(target, 0)) for source, target in _flows(node))
    return Function(
        module,
        node.name,
        (START, *words),
        tuple(sorted(reads)),
        tuple(sorted(binds)),
        frozenset(_tree(node, at.get(_start(node), 0), at)),
        frozenset(pair for pair in flows if {*pair} <= binds | reads),
    )


def _place(token: tokenize.TokenInfo) -> Place:
    return token.start


def _start(node: ast.AST) -> Place:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _name(node: ast.arg | ast.Name) -> str:
    return node.arg if isinstance(node, ast.arg) else node.id


def _variables(node: ast.AST) -> set[str]:
    """Return the names that a function binds, those of comprehensions left out."""
    bound, apart = set(), {"self", "cls"}
    for one in ast.walk(node):
        if isinstance(one, ast.arg) or (
            isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        ):
            bound.add(_name(one))
        elif isinstance(one, ast.comprehension):
            apart |= {name.id for name in ast.walk(one.target) if isinstance(name, ast.Name)}
    return bound - apart


def _flows(node: ast.AST) -> Iterator[tuple[Place, Place]]:
    """Yield where a name is read, and where one is that gets its value from it."""
    for one in ast.walk(node):
        match one:
            case ast.Assign(targets=targets, value=value):
                pass
            case (
                ast.AugAssign(target=target, value=value)
                | ast.NamedExpr(target=target, value=value)
            ):
                targets = [target]
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                targets = [target]
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                targets = [target]
            case _:
                continue
        for target in targets:
            yield from product(_names(value), _names(target))


def _names(node: ast.AST) -> list[Place]:
    """Return where the names in an expression begin."""
    return [_start(one) for one in ast.walk(node) if isinstance(one, ast.Name)]


def _tree(node: ast.AST, above: int, at: Mapping[Place, int]) -> Iterator[Pair]:
    """Yield the tokens of nodes and their parents; nodes that share a token are one."""
    for child in ast.iter_child_nodes(node):
        own = at.get(_anchor(child), above) if hasattr(child, "lineno") else above
        if own != above:
            yield above, own
        yield from _tree(child, own, at)


def _anchor(node: ast.AST) -> Place:
    """Return where the token of a node begins: the name of an attribute, else the first one."""
    match node:
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return _anchor(inner)
        case ast.Attribute(attr=name):
            return node.end_lineno or 0, (node.end_col_offset or 0) - len(name)
    return _start(node)


def others(function: Function, read: int) -> list[str]:
    """Return the variables that could stand in the place of one, in the alphabet's order.

    They have got a value in an earlier line.
    """
    tokens = function.tokens
    line = next((i for i in range(read, 0, -1) if tokens[i] in (NEWLINE, INDENT, DEDENT)), 0)
    return sorted({tokens[bind] for bind in function.binds if bind < line} - {tokens[read]})


def corrupt(function: Function, draw: random.Random) -> Program:
    """Put another variable in the place of one use."""
    read = draw.choice([read for read in function.reads if others(function, read)])
    tokens = [*function.tokens]
    tokens[read] = draw.choice(others(function, read))
    return Program(function, tuple(tokens), read, function.tokens[read])


def intact(function: Function) -> Program:
    """Show a function as it is."""
    return Program(function, function.tokens, 0, "")


def edges_of(program: Program) -> list[set[Pair]]:
    """Return the edges of each kind, as pairs of tokens, the lower number first."""
    function, tokens = program.function, program.tokens
    variables, names = defaultdict(list), defaultdict(list)
    for place in sorted({*function.reads, *function.binds}):
        variables[tokens[place]].append(place)
    for place, word in enumerate(tokens):
        if word.isidentifier() and not keyword.iskeyword(word):
            names[word].append(place)
    return [
        {pair for places in variables.values() for pair in pairwise(places)},
        {(min(pair), max(pair)) for pair in function.flows if pair[0] != pair[1]},
        {(min(pair), max(pair)) for pair in function.tree},
        {pair for places in names.values() for pair in combinations(places, 2)},
    ]


def rewired(edges: set[Pair], draw: random.Random) -> set[Pair]:
    """Return other edges in which every token has as many: their ends are exchanged at random."""
    pairs, there = sorted(edges), set(edges)
    for _ in range(5 * len(pairs) if len(pairs) > 1 else 0):
        first, second = draw.sample(range(len(pairs)), 2)
        (a, b), (c, d) = pairs[first], pairs[second][:: draw.choice((1, -1))]
        new = [(min(a, d), max(a, d)), (min(b, c), max(b, c))]
        if a != d and b != c and new[0] != new[1] and not there & {*new}:
            there -= {pairs[first], pairs[second]}
            there |= {*new}
            pairs[first], pairs[second] = new
    return there


def nearby(length: int) -> list[set[Pair]]:
    """Return edges between tokens that are one, two, three and four apart, a kind each."""
    return [{(i, i + gap) for i in range(length - gap)} for gap in range(1, len(KINDS) + 1)]


@cache
def pieces(word: str) -> list[int]:
    """Return numbers of a token and of the parts of its name, hashed; 0 is none."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", word)]
    own = [word, *(f"part {part}" for part in parts if len(parts) > 1)][:PIECES]
    numbers = [zlib.crc32(part.encode()) % BUCKETS + 1 for part in own]
    return numbers + [0] * (PIECES - len(own))
