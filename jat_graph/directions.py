"""Text that is read from right to left, between text that is not."""

from __future__ import annotations

import unicodedata

ISOLATE, END = "\u2068", "\u2069"  # first strong isolate, pop directional isolate


def isolated(text: str) -> str:
    """Keep a text with letters from right to left from turning what stands beside it.

    Reference:
        The isolates of Unicode Standard Annex 9.
    """
    turns = any(unicodedata.bidirectional(letter) in ("R", "AL", "AN") for letter in text)
    return f"{ISOLATE}{text}{END}" if turns else text
