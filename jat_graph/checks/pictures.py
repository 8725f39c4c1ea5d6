"""What pictures can show, known before anything that draws is imported."""

from __future__ import annotations

from jat_graph.checks.numbers import check_integer

MORE_TOKENS = 200  # than these make a picture of a head too large for its file


def check_most_tokens(name: str, most: int) -> None:
    """Refuse a number of tokens that no picture could show."""
    check_integer(name, most, least=1, below=MORE_TOKENS + 1)
