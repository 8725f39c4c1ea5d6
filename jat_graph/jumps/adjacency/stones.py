"""Stepping stones: the keys that tokens score unusually high, and how tokens stand on them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.keys import select_keys
from jat_graph.jumps.adjacency.scores import QueryKeyScores, SelectedKeys
from jat_graph.jumps.adjacency.standard import standard_features
from jat_graph.jumps.config import JatConfig, StoneGraph

TEMPERATURE = 0.5  # τ of a sigmoid link, in standard deviations, where the config has none


@dataclass(frozen=True)
class LinkRule:
    """How much a standard score is worth as a link."""

    threshold: Tensor  # t, [1, H|1, 1, 1], in the dtype of the scores
    incidence: str = "excess"
    both_sides: bool = True  # unusually low scores link, too, to stones of their own
    temperature: float = TEMPERATURE
    self_weight: float = 0.1  # ε, with which a token stays where it is

    @classmethod
    def of(cls, graph: StoneGraph, source: QueryKeyScores) -> LinkRule:
        """Return the rule of the settings of a graph."""
        row = graph.threshold[0] if isinstance(graph.threshold, tuple) else (graph.threshold,)
        threshold = torch.tensor(row, dtype=source.dtype, device=source.device)
        threshold, temperature = threshold.view(1, -1, 1, 1), graph.soft_temperature or TEMPERATURE
        both = graph.sides == "both"
        return cls(threshold, graph.incidence, both, temperature, graph.self_weight)

    def links(self, scores: Tensor, visible: Tensor | None) -> Tensor:  # [B, H, L, U], or 2U
        """Return the links b of every token to every stone, by standard scores ``[B, H, L, U]``."""
        # Some of them there may not be: `visible` `[B|1, H|1, L|1, U]`, or None for all.
        columns = scores.mT  # the scores of one key lie together
        sides = (columns, -columns) if self.both_sides else (columns,)
        above = torch.cat(sides, dim=2).sub_(self.threshold)
        if visible is not None:
            each = above.view(*columns.shape[:2], len(sides), *columns.shape[2:])
            each.masked_fill_(~visible.mT.unsqueeze(2), -torch.inf)
        if self.incidence == "sigmoid":
            links = torch.sigmoid(above / self.temperature)
        else:
            links = excess = above.relu_()
            if self.incidence == "hard":  # the gradient goes straight through
                links = (excess > 0).to(above.dtype) + (excess - excess.detach())
        return links.mT


@dataclass(frozen=True)
class StoneIncidence:
    """All that fixes B of some heads: standard scores, which keys are stones, and the rule."""

    source: QueryKeyScores
    keys: SelectedKeys
    rule: LinkRule
    mask: TokenMask

    @classmethod
    def of_heads(
        cls, config: JatConfig, query: Tensor, key: Tensor, scale: float, mask: TokenMask
    ) -> StoneIncidence:
        """Return how queries stand on keys ``[B, H, L, D]``."""
        source = QueryKeyScores(*standard_features(query, key, scale, mask), scale)
        return cls.of_standard(config, source, mask)

    @classmethod
    def of_standard(
        cls, config: JatConfig, source: QueryKeyScores, mask: TokenMask
    ) -> StoneIncidence:
        """Return how queries stand on keys by their standard scores."""
        graph = config.graph
        assert isinstance(graph, StoneGraph)
        every = SelectedKeys(None, mask.voting)
        keys = every if graph.key_selection == "all" else select_keys(config, source, mask)
        return cls(source, keys, LinkRule.of(graph, source), mask)

    @property
    def num_keys(self) -> int:
        """Number of keys that may be stones, U."""
        return self.keys.number(self.source)

    def scores(self, keys: slice = slice(None)) -> Tensor:  # [B, H, L, u]
        """Return standard scores to some stones, NaN where masked."""
        scores, visible = self._columns(keys, slice(None))
        return scores if visible is None else scores.masked_fill(~visible, torch.nan)

    def links(self, rows: slice = slice(None)) -> Tensor:  # [B, H, rows, U], or 2U with both sides
        """Return how the tokens stand on the stones; 0 where masked."""
        # `rows` are those of which the source has queries.
        return self.rule.links(*self._columns(slice(None), rows))

    def _columns(self, keys: slice, rows: slice) -> tuple[Tensor, Tensor | None]:
        scores = self.source.columns(self.keys.positions(keys, self.source))
        return scores, self.keys.visible(keys, rows, self.mask.valid, self.mask, self.source)

    def stones(self) -> tuple[Tensor, Tensor]:  # [B, H, m], [m]
        """Return the position of the key of each column of the links, and its side, 1 or -1."""
        (batch, heads, length), index = self.source.shape, self.keys.index
        if index is None:
            index = torch.arange(length, device=self.source.device).expand(batch, heads, -1)
        sides = (1, -1) if self.rule.both_sides else (1,)
        signs = torch.tensor(sides, device=index.device).repeat_interleave(index.size(-1))
        return index.repeat(1, 1, len(sides)), signs


def expected_share(graph: StoneGraph) -> float:
    """Return the share of tokens that a stone would have, over the heads, were scores normal."""
    row = graph.threshold[0] if isinstance(graph.threshold, tuple) else (graph.threshold,)
    return sum(math.erfc(t / math.sqrt(2)) / 2 for t in row) / len(row)
