"""Sentences in which words are marked with their senses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MarkedWord:
    """A word whose sense is known.

    Args:
        lemma: Its base form, with ``_`` between the words of several.
        pos: Its part of speech: ``"n"``, ``"v"``, ``"a"``, or ``"r"`` for adverbs.
        senses: The key of its sense in WordNet, or of all that fit.
        places: The place of each of its words in the sentence, from 0.
    """

    lemma: str
    pos: str
    senses: tuple[str, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class MarkedSentence:
    """A sentence, and those of its words whose senses are known.

    Args:
        words: Its words.
        marked: Those with a sense.
        text: The text that it is from.
    """

    words: tuple[str, ...]
    marked: tuple[MarkedWord, ...]
    text: str

    def __len__(self) -> int:
        """Its words."""
        return len(self.words)
