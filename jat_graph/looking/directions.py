"""Text within text: what is read from right to left, and what would pass for a comma of ours."""

from __future__ import annotations

import unicodedata

SIGNS = (",", ";")  # that stand between the items of a list
ISOLATE, END = "\u2068", "\u2069"  # first strong isolate, pop directional isolate


def isolated(text: str) -> str:
    """Keep a text with letters from right to left from turning what stands beside it.

    Reference:
        The isolates of Unicode Standard Annex 9.
    """
    turns = any(unicodedata.bidirectional(letter) in ("R", "AL", "AN") for letter in text)
    return f"{ISOLATE}{text}{END}" if turns else text


def named(token: str) -> str:
    """Return a token as lists show it: in quotes, where it would pass for a sign of theirs."""
    return f"“{token}”" if token in SIGNS else isolated(token)
