"""Which pairs of words of a treebank are related, and in which way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.probes.syntax.reading import Floats, Integers, frequent_relations
from jat_graph.probes.treebank import ROOT, Sentence

if TYPE_CHECKING:
    from scipy.sparse import csr_array

EDGE, SIBLINGS, SAME_TAG = "head and dependent", "siblings", "one part of speech"


@dataclass(frozen=True)
class PairKinds:
    """All pairs i < k of N in S sentences, and which of them are of which kind.

    Args:
        pairs: The places of the pairs of each kind.
        by_sentence: Which pairs are of which sentence, ``[S, N]``.
        by_cell: Which pairs are of one sentence and as many words apart, ``[cells, N]``.
        cells_by_sentence: Which of these are of which sentence, ``[S, cells]``.
    """

    pairs: dict[str, Integers]
    by_sentence: csr_array
    by_cell: csr_array
    cells_by_sentence: csr_array

    @classmethod
    def of(cls, sentences: Sequence[Sentence], least: int) -> PairKinds:
        """Sort pairs of words; relations with fewer than so many are left out."""
        places = [np.triu_indices(len(sentence), 1) for sentence in sentences]
        sizes = [len(one) for one, _ in places]
        if not sum(sizes):
            raise ValueError("sentences must have two words, got none with more than one")
        rows = np.repeat(np.arange(len(sentences)), sizes)
        distances = np.concatenate([other - one for one, other in places])
        cells, numbers = np.unique(np.stack([rows, distances]), axis=1, return_inverse=True)
        columns = _columns(sentences, places, least)
        return cls(
            {name: np.flatnonzero(flags) for name, flags in columns.items() if flags.any()},
            _members(rows, len(sentences)),
            _members(numbers.ravel(), cells.shape[1]),
            _members(cells[0], len(sentences)),
        )

    def share(self, groups: csr_array, places: Integers) -> Floats:  # [groups, 1]
        """The share of some pairs among all of each group; 0 where there is none."""
        size = groups.shape[1]
        all_of, some = np.ones(size), np.bincount(places, minlength=size)
        found: Floats = (groups @ some) / np.maximum(groups @ all_of, 1.0)
        return found[:, None]


def _members(groups: Any, number: int) -> csr_array:  # [N] -> [number, N]
    from scipy.sparse import csr_array

    size = len(groups)
    return csr_array((np.ones(size, np.float32), (groups, np.arange(size))), (number, size))


def _columns(sentences: Sequence[Sentence], places: Sequence[Any], least: int) -> dict[str, Any]:
    """Tell for each kind which pairs are of it."""
    names = [name for name, count in frequent_relations(sentences) if count >= least]
    parts = [
        _columns_of(sentence, one, other, names)
        for sentence, (one, other) in zip(sentences, places, strict=True)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _columns_of(
    sentence: Sentence, one: Integers, other: Integers, names: Sequence[str]
) -> dict[str, Any]:
    """Tell for each kind which pairs of a sentence are of it."""
    heads, tags = np.array(sentence.heads), np.array(sentence.tags)
    relations = np.array(sentence.relations)
    above, below = heads[other] == one, heads[one] == other  # which of the two is the head
    siblings = (heads[one] == heads[other]) & (heads[one] != ROOT)
    kinds = {EDGE: above | below, SIBLINGS: siblings, SAME_TAG: tags[one] == tags[other]}
    own = np.where(above, relations[other], relations[one])
    return kinds | {name: kinds[EDGE] & (own == name) for name in names}
