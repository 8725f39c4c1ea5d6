"""ListOps: nested lists of digits, and what they come to; text that the library makes itself."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.base import ClassificationTask

if TYPE_CHECKING:
    from datasets import Dataset

OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "MIN": min,
    "MAX": max,
    "MED": lambda values: int(statistics.median(values)),
    "SM": lambda values: sum(values) % 10,
}

_SHORTEST = 4  # "[MAX 2 9 ]"
_ARGUMENTS = range(2, 6)


def evaluate_listops(expression: str) -> int:
    """Say what an expression comes to.

    Args:
        expression: ``"[MAX 2 9 [MIN 4 7 ] 0 ]"``, where MED is the median without its fraction and
            SM the sum modulo 10. Parentheses, which the original files have, mean nothing.

    Returns:
        A digit.

    Raises:
        ValueError: If the expression is not of this form; names the word.

    Reference:
        Nangia and Bowman, *ListOps: A Diagnostic Dataset for Latent Tree Learning*, NAACL 2018.
    """
    stack: list[list[Any]] = [[None]]  # operators that wait for arguments, outermost first
    words = [word for word in expression.split() if word not in ("(", ")")]
    for word in words:
        if word.startswith("["):
            stack.append([_operator(word)])
        elif word == "]":
            _close(stack)
        else:
            stack[-1].append(_digit(word))
    if len(stack) > 1 or len(stack[0]) != 2:
        raise ValueError(f"expression must be one closed list or digit, got {expression!r}")
    return int(stack[0][1])


def _operator(word: str) -> Callable[[Sequence[int]], int]:
    if word[1:] not in OPERATORS:
        names = ", ".join(f"[{name}" for name in OPERATORS)
        raise ValueError(f"operator must be one of {names}, got {word!r}")
    return OPERATORS[word[1:]]


def _digit(word: str) -> int:
    if len(word) != 1 or word not in "0123456789":
        raise ValueError(f"argument must be a digit, got {word!r}")
    return int(word)


def _close(stack: list[list[Any]]) -> None:
    """Replace the innermost list by its value."""
    if len(stack) == 1 or len(stack[-1]) == 1:
        raise ValueError("']' must close a list with arguments, got one without")
    operator, *values = stack.pop()
    stack[-1].append(operator(values))


@dataclass(frozen=True, kw_only=True)
class ListOpsTask(ClassificationTask):
    """Say what a nested list comes to: "[MAX 2 9 [MIN 4 7 ] 0 ]" is 9.

    The library makes the expressions itself, as long as asked for; a bracket with its operator, a
    closing bracket and a digit are a token each. In every split the labels are balanced to one row.

    Args:
        train_size: Expressions to train on. (default: 10000)
        validation_size: Expressions to validate on. (default: 1000)
        test_size: Expressions to test on. (default: 1000)
        min_length: Least number of tokens. (default: 20)
        max_length: Greatest number of tokens. (default: 100)
        seed: Decides what is drawn. (default: 0)

    Reference:
        Nangia and Bowman, *ListOps: A Diagnostic Dataset for Latent Tree Learning*, NAACL 2018; Tay
        et al., *Long Range Arena*, ICLR 2021, for long ones.
    """

    name: str = "listops"
    text_columns: tuple[str, ...] = ("expression",)
    labels: tuple[str, ...] | None = tuple("0123456789")
    splits: tuple[str, ...] = ("train", "validation", "test")
    primary_metric: str = "accuracy"
    train_size: int = 10_000
    validation_size: int = 1000
    test_size: int = 1000
    min_length: int = 20
    max_length: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("train_size", "validation_size", "test_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.min_length < _SHORTEST:
            raise ValueError(f"min_length must be {_SHORTEST} or more, got {self.min_length}")
        if self.max_length < self.min_length:
            raise ValueError(
                f"max_length must be min_length or more, {self.min_length}, got {self.max_length}"
            )

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Make the splits, each the same whatever the size of the others; nothing is read."""
        from datasets import Dataset

        return {split: Dataset.from_list(self._rows(split)) for split in splits}

    def _rows(self, split: str) -> list[dict[str, Any]]:
        source = random.Random(f"{split} {self.seed}")  # a text is hashed the same way everywhere
        wanted = getattr(self, f"{split}_size")
        missing = [wanted // 10 + (label < wanted % 10) for label in range(10)]
        rows: list[dict[str, Any]] = []
        while len(rows) < wanted:
            length = source.randint(self.min_length, self.max_length)
            expression = _draw(source, length)
            label = evaluate_listops(expression)
            if missing[label]:
                missing[label] -= 1
                rows.append({"expression": expression, "label": label})
        source.shuffle(rows)  # the last ones are of labels that are seldom drawn
        return rows


def _draw(source: random.Random, length: int) -> str:
    """Draw an expression of so many tokens, by growing lists where digits are."""
    top: list[Any] = [None]
    leaves = [(top, 0)]
    room = length - 1
    while room:
        parent, place = leaves.pop(source.randrange(len(leaves)))
        # a list in a digit's place adds a token more than arguments, and the least one three
        fitting = [n for n in _ARGUMENTS if room - n - 1 == 0 or room - n - 1 >= 3]
        count = source.choice(fitting)
        digits = [source.randrange(10) for _ in range(count)]
        node = parent[place] = [source.choice(list(OPERATORS)), *digits]
        leaves += [(node, index) for index in range(1, count + 1)]
        room -= count + 1
    return _written(top[0])


def _written(node: int | list[Any]) -> str:
    if isinstance(node, int):
        return str(node)
    name, *arguments = node
    return " ".join([f"[{name}", *map(_written, arguments), "]"])
