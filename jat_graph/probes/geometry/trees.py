"""A sentence's tree as numbers: how far words are from each other, and from the root."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from jat_graph.probes.treebank import Sentence

Floats: TypeAlias = NDArray[np.float64]
Edges: TypeAlias = frozenset[tuple[int, int]]  # the earlier word first

PUNCTUATION = "PUNCT"


@dataclass(frozen=True)
class Tree:
    """A sentence, and what its tree says."""

    sentence: Sentence

    def __len__(self) -> int:
        """Its words."""
        return len(self.sentence)

    @cached_property
    def distances(self) -> Floats:  # [n, n]
        """How many edges are between two words."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import shortest_path

        edges = np.array(self.sentence.edges, int).reshape(-1, 2)
        graph = coo_array((np.ones(len(edges)), edges.T), shape=(len(self), len(self)))
        found: Floats = shortest_path(graph.tocsr(), directed=False, unweighted=True)
        return found

    @property
    def depths(self) -> Floats:  # [n]
        """How many edges are between a word and the root."""
        found: Floats = self.distances[self.sentence.root]
        return found

    @cached_property
    def shown(self) -> list[int]:
        """The places of all words that are no punctuation."""
        return [place for place, tag in enumerate(self.sentence.tags) if tag != PUNCTUATION]

    @cached_property
    def edges(self) -> Edges:
        """The edges between words that are no punctuation."""
        kept = set(self.shown)
        return frozenset(
            (min(edge), max(edge)) for edge in self.sentence.edges if kept.issuperset(edge)
        )


def spanning_tree(distances: Floats, among: list[int]) -> Edges:  # [n, n]
    """Join some words by the edges that are shortest together."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    # A distance of 0 is no edge there. All trees have as many edges: a constant changes none.
    own = distances[np.ix_(among, among)] + 1.0
    rows, columns = minimum_spanning_tree(own).nonzero()
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return frozenset((min(among[i], among[k]), max(among[i], among[k])) for i, k in pairs)
