"""The heads of a layer that jump, and what their settings come to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from jat_graph.config import JatConfig, PairGraph
from jat_graph.config_fields import LEARNED, HopGroups, Triple
from jat_graph.patterns.base import Pattern


@dataclass(frozen=True)
class JumpHeads:
    """The heads of a layer that jump, and what their settings come to."""

    config: JatConfig  # over these heads, as JatConfig.for_layer gives it
    heads: tuple[int, ...]  # indices in the layer, in rising order
    # Hop weights by the indices into ``heads`` that share them.
    hop_groups: HopGroups = field(init=False, compare=False)
    strengths: tuple[Triple, ...] = field(init=False, compare=False)  # of each hop
    highest_hop: int = field(init=False, compare=False)
    # Whether no head can differ from ordinary attention, whatever its scores.
    is_identity: bool = field(init=False, compare=False)
    pattern: Pattern | None = field(init=False, compare=False)  # of all heads of the layer

    def __post_init__(self) -> None:
        config, number = self.config, len(self.heads)
        groups = {tuple(sorted(own)): w for own, w in config.hop_groups(number).items()}
        strengths, thresholds = config.strengths(), config.jump_graph.thresholds(number)
        if strengths:
            highest, is_identity = config.hops, not any(map(any, strengths))
        else:
            highest = max(map(len, groups.values())) - 1
            rated = (
                isinstance(config.jump_graph, PairGraph) and config.jump_graph.vote_rate is not None
            )
            isolated = [not rated and threshold == math.inf for threshold in thresholds]
            is_identity = all(
                [weight for weight in weights if weight != 0] == [1]
                and (weights[0] == 1 or all(isolated[index] for index in own))
                for own, weights in groups.items()
            )
        for name, value in (
            ("hop_groups", groups),
            ("strengths", strengths),
            ("highest_hop", highest),
            ("is_identity", not self.heads or is_identity),
            ("pattern", config.attention_pattern()),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def everyone(cls, config: JatConfig, num_heads: int) -> JumpHeads:
        """Return all heads as ones that jump."""
        return cls(config, tuple(range(num_heads)))

    def of_head(self, index: int) -> JumpHeads:
        """Return one of these heads alone."""
        hops = next(weights for group, weights in self.hop_groups.items() if index in group)
        changes: dict[str, Any] = {"heads": 1, "hop_weights": hops}
        if isinstance(self.config.jump_graph.threshold, tuple):
            threshold = self.config.jump_graph.thresholds(len(self.heads))[index]
            changes["threshold"] = ((threshold,),)
        return JumpHeads(self.config.replace(**changes), self.heads[index : index + 1])

    def new_strength(self) -> torch.nn.Parameter | None:
        """Return what the heads learn of how strongly to jump, from 0 on; None if nothing."""
        if not any(LEARNED in triple for triple in self.strengths):
            return None
        return torch.nn.Parameter(torch.zeros(3, len(self.strengths), len(self.heads)))
