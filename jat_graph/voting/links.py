"""Links: how a token stands on the stones, the keys that it scores unusually high."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from jat_graph.config import JatConfig, StoneGraph
from jat_graph.voting.scores import ScoreSource

TEMPERATURE = 0.5  # τ of a sigmoid link, in standard deviations, where the config has none


def expected_share(config: JatConfig, num_heads: int) -> float:
    """Return the share of tokens that a stone would have, over the heads, were scores normal."""
    tails = [math.erfc(t / math.sqrt(2)) / 2 for t in config.graph.thresholds(num_heads)]
    return sum(tails) / len(tails)


@dataclass(frozen=True)
class LinkRule:
    """How much a standard score is worth as a link."""

    threshold: Tensor  # t, [1, H, 1, 1], in the dtype of the scores
    incidence: str = "excess"
    both_sides: bool = True  # unusually low scores link, too, to stones of their own
    temperature: float = TEMPERATURE
    self_weight: float = 0.1  # ε, with which a token stays where it is

    @classmethod
    def of(cls, config: JatConfig, source: ScoreSource) -> LinkRule:
        """Return the rule of a config."""
        graph = config.graph
        assert isinstance(graph, StoneGraph)
        row = graph.thresholds(source.shape[1])
        threshold = torch.tensor(row, dtype=source.dtype, device=source.device)
        return cls(
            threshold[None, :, None, None],
            graph.incidence,
            graph.sides == "both",
            graph.soft_temperature or TEMPERATURE,
            graph.self_weight,
        )

    def links(
        self,
        scores: Tensor,  # standard scores, [B, H, L, U]
        visible: Tensor | None,  # which of them there are, [B|1, H|1, L|1, U], or None for all
    ) -> Tensor:  # b, [B, H, L, U], or [B, H, L, 2U] with both sides
        """Return the links of every token to every stone."""
        columns = scores.mT  # the scores of one key lie together
        sides = (columns, -columns) if self.both_sides else (columns,)
        above = torch.stack(sides, dim=2).sub_(self.threshold.unsqueeze(2))
        if visible is not None:
            above.masked_fill_(~visible.mT.unsqueeze(2), -torch.inf)
        return self._link(above).flatten(2, 3).mT

    def _link(self, above: Tensor) -> Tensor:
        if self.incidence == "sigmoid":
            return torch.sigmoid(above / self.temperature)
        excess = above.relu_()
        if self.incidence == "excess":
            return excess
        hard = (excess > 0).to(above.dtype)
        return hard + (excess - excess.detach())  # the gradient goes straight through
