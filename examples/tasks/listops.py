"""ListOps: nested lists of digits, and what they come to; text that is made here.

"[MAX 2 9 [MIN 4 7 ] 0 ]" is 9; MED is the median without its fraction, SM the sum modulo 10. In
every split the labels are balanced to one row.

Reference:
    Nangia and Bowman, *ListOps: A Diagnostic Dataset for Latent Tree Learning*, NAACL 2018; Tay et
    al., *Long Range Arena*, ICLR 2021, for long ones.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from examples.tasks.base import Task, label_rows
from examples.tasks.metrics import score_classes

LABELS = tuple("0123456789")
OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "MIN": min,
    "MAX": max,
    "MED": lambda values: int(statistics.median(values)),
    "SM": lambda values: sum(values) % 10,
}

_SHORTEST = 4  # "[MAX 2 9 ]"
_ARGUMENTS = range(2, 6)


def evaluate_listops(expression: str) -> int:
    """Say what an expression comes to; the original files' parentheses mean nothing."""
    stack: list[list[Any]] = [[None]]  # operators that wait for arguments, outermost first
    for word in expression.split():
        if word.startswith("["):
            if word[1:] not in OPERATORS:
                names = ", ".join(f"[{name}" for name in OPERATORS)
                raise ValueError(f"operator must be one of {names}, got {word!r}")
            stack.append([OPERATORS[word[1:]]])
        elif word == "]" and len(stack) > 1 and len(stack[-1]) > 1:
            operator, *values = stack.pop()
            stack[-1].append(operator(values))
        elif word in LABELS:
            stack[-1].append(int(word))
        elif word not in ("(", ")"):
            raise ValueError(f"expression must be digits and lists with arguments, got {word!r}")
    if len(stack) > 1 or len(stack[0]) != 2:
        raise ValueError(f"expression must be one closed list or digit, got {expression!r}")
    return int(stack[0][1])


def listops_task(
    *,
    train: int = 10_000,
    validation: int = 1000,
    test: int = 1000,
    min_length: int = 20,
    max_length: int = 100,
    seed: int = 0,
) -> Task:
    """The task with so many expressions of so many tokens; the seed decides what is drawn."""
    sizes = {"train": train, "validation": validation, "test": test}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be 1 or more, got {size}")
    if not _SHORTEST <= min_length <= max_length:
        raise ValueError(
            f"min_length must be from {_SHORTEST} to max_length, {max_length}, got {min_length}"
        )
    lengths = min_length, max_length

    def read(_: Path | None, split: str) -> Dataset:
        return label_rows(_rows(split, sizes[split], lengths, seed), LABELS)

    return Task("listops", "classification", read, score_classes, ("accuracy",), tuple(sizes))


def _rows(split: str, wanted: int, lengths: tuple[int, int], seed: int) -> list[dict[str, Any]]:
    source = random.Random(f"{split} {seed}")  # a text is hashed the same way everywhere
    missing = [wanted // 10 + (label < wanted % 10) for label in range(10)]
    rows: list[dict[str, Any]] = []
    while len(rows) < wanted:
        expression = _draw(source, source.randint(*lengths))
        label = evaluate_listops(expression)
        if missing[label]:
            missing[label] -= 1
            rows.append({"text": expression, "label": label})
    source.shuffle(rows)  # the last ones are of labels that are seldom drawn
    return rows


def _draw(source: random.Random, length: int) -> str:
    """Draw an expression of so many tokens, by growing lists where digits are."""
    top: list[Any] = [None]
    leaves = [(top, 0)]
    room = length - 1
    while room:
        parent, position = leaves.pop(source.randrange(len(leaves)))
        # a list in a digit's place adds a token more than arguments, and the least one three
        fitting = [n for n in _ARGUMENTS if room - n - 1 == 0 or room - n - 1 >= 3]
        count = source.choice(fitting)
        digits = [source.randrange(10) for _ in range(count)]
        node = parent[position] = [source.choice(list(OPERATORS)), *digits]
        leaves += [(node, index) for index in range(1, count + 1)]
        room -= count + 1
    return _written(top[0])


def _written(node: int | list[Any]) -> str:
    if isinstance(node, int):
        return str(node)
    name, *arguments = node
    return " ".join([f"[{name}", *map(_written, arguments), "]"])
