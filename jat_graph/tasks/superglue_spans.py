"""Marks around the words that a question of SuperGLUE is about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_CLOSING = ".,;:!?"
_SHORT_NOT = re.compile(r"n['’]t\b", re.IGNORECASE)


class WrongSpanError(ValueError):
    """Says that words do not stand where a file says."""


class Span(NamedTuple):
    """A piece of a text."""

    start: int  # its first character
    stop: int  # the one after its last


def mark_spans(text: str, marks: Iterable[tuple[Span, str]]) -> str:
    """Put a mark on both sides of pieces of a text, as a word of its own.

    Reference:
        Raffel et al., *Exploring the Limits of Transfer Learning with a Unified Text-to-Text
        Transformer*, JMLR 2020, whose code marks the two places of WSC so.
    """
    # At one place what ends there ends first, inner before outer; then outer begins before inner.
    events = [(span.stop, 0, -span.start, f" {mark}") for span, mark in marks]
    events += [(span.start, 1, -span.stop, f"{mark} ") for span, mark in marks]
    pieces, done = [], 0
    for place, _, _, piece in sorted(events):
        pieces += [text[done:place], piece]
        done = place
    return "".join([*pieces, text[done:]])


def find_words(text: str, words: str, index: int) -> Span:
    """Find words by the number of their first one.

    Capitals, the kind of blanks and a punctuation mark after the last word do not matter. One span
    of the published validation set of WSC is a word late, so the neighbours are looked at too.
    """
    core = words.rstrip(_CLOSING)
    said = r"\s+".join(map(re.escape, core.split()))
    tail = re.escape(words[len(core) :])
    pattern = re.compile(rf"{said}(?:{tail})?(?!\w)", re.IGNORECASE)
    starts = [found.start() for found in re.finditer(r"\S+", text)]
    for number in (index, index - 1, index + 1):
        found = pattern.match(text, starts[number]) if 0 <= number < len(starts) else None
        if found is not None:
            return Span(*found.span())
    there = text[starts[index] :].split()[: len(words.split())] if 0 <= index < len(starts) else []
    got = repr(" ".join(there)) if there else f"a text of {len(starts)} words"
    raise WrongSpanError(f"must have {words!r} as word {index}, got {got}")


def check_word(text: str, span: Span) -> Span:
    """Check that a piece of a text is made of whole words, which may be before a short "not"."""
    start, stop = span
    if not 0 <= start < stop <= len(text):
        raise WrongSpanError(f"must have a span within 0 and {len(text)}, got {start} to {stop}")
    begins = text[start].isalnum() and not (start and text[start - 1].isalnum())
    ends = text[stop - 1].isalnum() and not text[stop : stop + 1].isalnum()
    if not (begins and (ends or _SHORT_NOT.match(text, stop))):
        raise WrongSpanError(
            f"must have whole words from {start} to {stop}, got {text[start:stop]!r}"
        )
    return span
