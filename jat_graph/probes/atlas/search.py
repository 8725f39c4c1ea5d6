"""Sentences with a word, each once, and no more of them than wanted."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from jat_graph.probes.atlas.contexts import Context


@dataclass(frozen=True)
class Uses:
    """Sentences with a word.

    Args:
        word: The word.
        contexts: The sentences that were kept.
        places: Where the word first stands in each.
        found: How many different sentences have it.
        read: How many sentences were looked at.
    """

    word: str
    contexts: tuple[Context, ...]
    places: tuple[int, ...]
    found: int
    read: int

    def only(self, rows: Sequence[int]) -> Uses:
        """Some of them."""
        contexts = tuple(self.contexts[row] for row in rows)
        return replace(self, contexts=contexts, places=tuple(self.places[row] for row in rows))


@lru_cache(maxsize=2**17)  # words: all that a large corpus has
def plain(word: str) -> str:
    """A word without regard to case and to how its accents are written."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", word).casefold())


def find_uses(word: str, contexts: Iterable[Context], most: int, seed: int) -> Uses:
    """Find the sentences with a word, or as many of them as wanted, drawn evenly.

    Of sentences with the same letters the first counts: SemCor's are Brown's, too.
    """
    wanted, read = _check_word(word), 0
    found: dict[str, tuple[Context, int]] = {}
    for context in contexts:
        read += 1
        words = [plain(own) for own in context.words]
        if wanted in words:
            letters = "".join(filter(str.isalnum, "".join(words)))
            found.setdefault(letters, (context, words.index(wanted)))
    if not found:
        raise ValueError(f"word must stand in a sentence, got {word!r} in none of {read}")
    own, places = zip(*found.values(), strict=True)
    uses = Uses(word, own, places, len(found), read)
    if len(found) <= most:
        return uses
    generator = np.random.default_rng(seed)
    return uses.only(sorted(generator.choice(len(found), most, replace=False).tolist()))


def _check_word(word: str) -> str:
    if not isinstance(word, str) or len(word.split()) != 1:
        raise ValueError(f"word must be one word without spaces, got {word!r}")
    return plain(word.strip())
