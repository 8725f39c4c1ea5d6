"""What pictures can show, known before anything that draws is imported."""

from __future__ import annotations

from jat_graph.checks.numbers import check_integer

MORE_TOKENS = 200  # than these make a picture of a head too large for its file

PATTERN_TOKENS = 4096  # more of a pattern cannot be seen


def check_most_tokens(name: str, most: int) -> None:
    """Refuse a number of tokens that no picture could show."""
    check_integer(name, most, least=1, below=MORE_TOKENS + 1)


def check_pattern_tokens(name: str, length: int) -> None:
    """Refuse a number of tokens of which no picture could show a pattern."""
    check_integer(name, length, least=1, below=PATTERN_TOKENS + 1)
