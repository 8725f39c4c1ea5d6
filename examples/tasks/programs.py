"""Functions of Python's standard library, in some of which one variable is the wrong one.

They are read from the library that runs this, with ``ast`` and ``tokenize``. Another local variable
is put in the place of one; which token is wrong, and what should be there, is known exactly, and as
many examples can be drawn as are wanted. Comments are left out, and so is what is harder to follow:
functions within functions, classes, lambdas, f-strings, ``global`` and ``nonlocal``. ``self``,
``cls`` and what a comprehension binds are no variables here.

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

KINDS = ("last use", "computed from", "parent and child", "same name")  # of edges
SPLITS = ("train", "test")
LONGEST = 96  # tokens of a function
PIECES, BUCKETS = 4, 4096  # parts of a name that are read, and the numbers that they share

_LAYOUT = {tokenize.NEWLINE: "<newline>", tokenize.INDENT: "<indent>", tokenize.DEDENT: "<dedent>"}
_SHORT = _LAYOUT | {tokenize.STRING: "<string>"}
_LEFT_OUT = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_HARDER = (*_FUNCTION, ast.ClassDef, ast.Lambda, ast.JoinedStr, ast.Global, ast.Nonlocal)
_VALUE, _TARGET = ("value", "iter", "context_expr"), ("target", "targets", "optional_vars")

Pair: TypeAlias = tuple[int, int]  # of tokens; or a line and a column


class Program(NamedTuple):
    """A function; its tokens are told by their number, ``<start>`` is 0."""

    tokens: tuple[str, ...]
    reads: tuple[int, ...]  # where local variables are used
    binds: tuple[int, ...]  # where they get values
    tree: frozenset[Pair]  # a node of the syntax and its parent, the lower number first
    flows: frozenset[Pair]  # a variable and one that is computed from it
    wrong: int = 0  # the token that should be another variable, if one should
    right: str = ""  # what it should be


@cache
def read_functions(split: str, folder: Path | None = None) -> tuple[Program, ...]:
    """Read a split's functions, each once, shuffled the same way; a package is of one split."""
    home = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    found: dict[tuple[str, ...], Program] = {}
    for path in sorted(home.rglob("*.py")):
        parts = path.relative_to(home).with_suffix("").parts
        own = SPLITS[zlib.crc32(parts[0].encode()) % 5 == 0]
        if own == split and "site-packages" not in parts:
            for function in functions_of(path.read_bytes()):
                found.setdefault(function.tokens, function)
    return tuple(random.Random(split).sample([*found.values()], len(found)))


def functions_of(source: bytes) -> Iterator[Program]:
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
        parts = [*ast.walk(node)] if isinstance(node, _FUNCTION) else []
        if parts and not any(isinstance(part, _HARDER) for part in parts[1:]):
            found = _read(parts, kept)
            if len(found.tokens) <= LONGEST and any(others(found, read) for read in found.reads):
                yield found


def _read(parts: Sequence[Any], every: Sequence[tokenize.TokenInfo]) -> Program:
    """Read a function out of its nodes, itself as the first, and the tokens of its module."""
    ends = (*_start(parts[0]), True), (parts[0].end_lineno, parts[0].end_col_offset, False)
    low, high = (bisect_left(every, end, key=lambda t: (*t.start, t.string != "")) for end in ends)
    tokens = every[low:high]  # without the empty one that ends what was before
    at = {token.start: number for number, token in enumerate(tokens, start=1) if token.string}
    used = [one for one in parts if isinstance(one, ast.Name)]
    names = {_start(one): one.id for one in used}
    names |= {_start(one): one.arg for one in parts if isinstance(one, ast.arg)}
    bound = names.keys() - {_start(one) for one in used if not isinstance(one.ctx, ast.Store)}
    apart = [x for one in parts if isinstance(one, ast.comprehension) for x in _names(one, _TARGET)]
    local = {names[x] for x in bound} - {names[x] for x in apart} - {"self", "cls"}
    number = {place: at[place] for place in names.keys() & at.keys() if names[place] in local}
    flows = [pair for one in parts for pair in product(_names(one, _VALUE), _names(one, _TARGET))]
    flows = [(min(pair), max(pair)) for pair in flows]  # the earlier place first
    return Program(
        ("<start>", *(_SHORT.get(token.type, token.string) for token in tokens)),
        tuple(sorted(number[place] for place in number.keys() - bound)),
        tuple(sorted(number[place] for place in number.keys() & bound)),
        frozenset(_tree(parts[0], 1, at)),
        frozenset((number[x], number[y]) for x, y in flows if {x, y} <= number.keys()),
    )


def _start(node: Any) -> Pair:
    return node.lineno, node.col_offset


def _names(node: ast.AST, fields: tuple[str, ...]) -> list[Pair]:
    """Return where the names in some fields of a node begin."""
    own = (value for field, value in ast.iter_fields(node) if field in fields)
    parts = (part for value in own for part in (value if isinstance(value, list) else [value]))
    every = (one for part in parts if isinstance(part, ast.AST) for one in ast.walk(part))
    return [_start(one) for one in every if isinstance(one, ast.Name)]


def _tree(node: ast.AST, above: int, at: Mapping[Pair, int]) -> Iterator[Pair]:
    """Yield the tokens of nodes and their parents; nodes that share a token are one."""
    for child in ast.iter_child_nodes(node):
        own = at.get(_anchor(child), above) if hasattr(child, "lineno") else above
        if own != above:
            yield min(above, own), max(above, own)
        yield from _tree(child, own, at)


def _anchor(node: ast.AST) -> Pair:
    """Return where the token of a node begins: the name of an attribute, else the first one."""
    match node:
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return _anchor(inner)
        case ast.Attribute(attr=name):
            return node.end_lineno or 0, (node.end_col_offset or 0) - len(name)
    return _start(node)


def others(program: Program, read: int) -> list[str]:
    """Return the variables, with a value from an earlier line, that could stand in a place."""
    tokens = program.tokens
    line = next((i for i in range(read, 0, -1) if tokens[i] in _LAYOUT.values()), 0)
    return sorted({tokens[bind] for bind in program.binds if bind < line} - {tokens[read]})


def corrupt(program: Program, draw: random.Random) -> Program:
    """Put another variable in the place of one use."""
    read = draw.choice([read for read in program.reads if others(program, read)])
    tokens = [*program.tokens]
    tokens[read] = draw.choice(others(program, read))
    return program._replace(tokens=tuple(tokens), wrong=read, right=program.tokens[read])


def edges_of(program: Program, graph: str, draw: random.Random) -> list[Collection[Pair]]:
    """Return the edges of each kind, as pairs of tokens, the lower number first.

    The graph is that of the ``program`` as it is shown; a ``random`` one with as many edges at each
    token; or one of ``nearby`` tokens, one to four apart. Any other has no edges.
    """
    if graph not in ("program", "random"):
        near, length = graph == "nearby", len(program.tokens)
        return [[(i, i + gap) for i in range(near * (length - gap))] for gap in (1, 2, 3, 4)]
    variables, names = defaultdict(list), defaultdict(list)
    for place, word in enumerate(program.tokens):
        if word.isidentifier() and not keyword.iskeyword(word):
            names[word].append(place)
            if place in program.reads or place in program.binds:
                variables[word].append(place)
    last = {pair for places in variables.values() for pair in pairwise(places)}
    same = {pair for places in names.values() for pair in combinations(places, 2)}
    edges = [last, program.flows, program.tree, same]
    return [rewired(own, draw) for own in edges] if graph == "random" else edges


def rewired(edges: Collection[Pair], draw: random.Random) -> set[Pair]:
    """Return other edges in which every token has as many: their ends are exchanged at random."""
    pairs, there = sorted(edges), set(edges)
    for _ in range(5 * len(pairs) if len(pairs) > 1 else 0):
        first, second = draw.sample(range(len(pairs)), 2)
        (a, b), (c, d) = pairs[first], pairs[second][:: draw.choice((1, -1))]
        new = [(min(pair), max(pair)) for pair in ((a, d), (b, c))]
        if a != d and b != c and new[0] != new[1] and not there & {*new}:
            there -= {pairs[first], pairs[second]}
            there |= {*new}
            pairs[first], pairs[second] = new
    return there


@cache
def pieces(word: str) -> list[int]:
    """Return numbers of a token and of the parts of its name, hashed; 0 is none."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", word)]
    own = [word, *(f"part {part}" for part in parts if len(parts) > 1)][:PIECES]
    numbers = [zlib.crc32(part.encode()) % BUCKETS + 1 for part in own]
    return numbers + [0] * (PIECES - len(own))
