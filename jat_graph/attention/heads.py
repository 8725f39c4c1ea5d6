"""The heads of a layer: which of them jump, and how they are taken apart and put together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jat_graph.config import JatConfig, PairGraph
from jat_graph.config_fields import HopWeights
from jat_graph.patterns.base import Pattern


@dataclass(frozen=True)
class JumpHeads:
    """The heads of a layer that jump, and what their settings come to."""

    config: JatConfig  # over these heads, as JatConfig.for_layer gives it
    heads: tuple[int, ...]  # indices in the layer, in rising order
    # Hop weights by the places in ``heads`` that share them.
    hop_groups: dict[tuple[int, ...], HopWeights] = field(init=False, compare=False)
    highest_hop: int = field(init=False, compare=False)
    # Whether no head can differ from ordinary attention, whatever its scores.
    is_ordinary: bool = field(init=False, compare=False)
    pattern: Pattern | None = field(init=False, compare=False)  # of all heads of the layer

    def __post_init__(self) -> None:
        by_weights = self.config.hop_groups(len(self.heads))
        groups = {tuple(sorted(group)): weights for group, weights in by_weights.items()}
        object.__setattr__(self, "hop_groups", groups)
        highest = max(len(weights) for weights in groups.values()) - 1
        strong = self.config.strength is not None
        object.__setattr__(self, "highest_hop", self.config.hops if strong else highest)
        object.__setattr__(self, "is_ordinary", not self.heads or self._stays_ordinary())
        object.__setattr__(self, "pattern", self.config.attention_pattern())

    @classmethod
    def everyone(cls, config: JatConfig, num_heads: int) -> JumpHeads:
        """Return all heads as ones that jump."""
        return cls(config, tuple(range(num_heads)))

    def of_place(self, place: int) -> JumpHeads:
        """Return one of these heads alone."""
        hops = next(weights for group, weights in self.hop_groups.items() if place in group)
        changes: dict[str, Any] = {"heads": 1, "hop_weights": hops}
        if isinstance(self.config.graph.threshold, tuple):
            threshold = self.config.graph.thresholds(len(self.heads))[place]
            changes["threshold"] = ((threshold,),)
        return JumpHeads(self.config.replace(**changes), self.heads[place : place + 1])

    def _stays_ordinary(self) -> bool:
        if self.config.strength is not None:
            return not any(any(triple) for triple in self.config.strengths())
        graph = self.config.graph
        thresholds = graph.thresholds(len(self.heads))
        fixed = isinstance(graph, PairGraph) and graph.vote_rate is None
        isolated = [fixed and threshold == math.inf for threshold in thresholds]
        return all(
            [weight for weight in weights if weight != 0] == [1]
            and (weights[0] == 1 or all(isolated[place] for place in places))
            for places, weights in self.hop_groups.items()
        )


class HeadGroup(NamedTuple):
    """Heads whose scores are the plain product of these features."""

    heads: tuple[int, ...]  # in rising order
    query: Tensor  # [B, len(heads), L, F]
    key: Tensor  # [B, len(heads), L, F]
    value: Tensor  # [B, len(heads), L, Dv]
    jumps: bool  # False for ordinary heads, whose features are those that were given
    carried: Tensor | None = None  # what they add to their outputs, [B, len(heads), L, Dv]

    def plus_carried(self, output: Tensor) -> Tensor:  # [B, len(heads), L, Dv]
        """Return outputs with what values brought along the graph."""
        return output if self.carried is None else output + self.carried.to(output.dtype)


def split_heads(
    tensor: Tensor,  # [B, H, ...]
    groups: list[tuple[int, ...]],
) -> list[Tensor]:  # [B, len(group), ...]
    """Return the heads of each group, as views where they are neighbours.

    One operation cuts them all, so that its backward pass writes the gradient once; cutting group
    by group would add up one zero-filled tensor a group.
    """
    if len(groups) == 1:
        return [tensor]
    runs = _runs(groups)
    inner = _heads_inside_tokens(tensor)
    pieces = _swap(tensor, inner).split_with_sizes([size for _, size in runs], dim=1 + inner)
    parts = []
    for number in range(len(groups)):
        mine = [piece for (owner, _), piece in zip(runs, pieces, strict=True) if owner == number]
        part = mine[0] if len(mine) == 1 else torch.cat(mine, dim=1 + inner)
        parts.append(_swap(part, inner))
    return parts


def merge_heads(
    groups: list[tuple[int, ...]],
    parts: list[Tensor],  # Tensors [B, len(group), ...]
) -> Tensor:  # [B, H, ...]
    """Put the parts' heads back into rising order, along dimension 1."""
    if len(parts) == 1:
        return parts[0]
    runs, inner = _runs(groups), any(_heads_inside_tokens(part) for part in parts)
    pieces = []
    for number, part in enumerate(parts):
        sizes = [size for owner, size in runs if owner == number]
        part = _swap(part, inner)
        cut = [part] if len(sizes) == 1 else part.split_with_sizes(sizes, dim=1 + inner)
        pieces.append(iter(cut))
    return _swap(torch.cat([next(pieces[owner]) for owner, _ in runs], dim=1 + inner), inner)


def neighbours(heads: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the runs of heads, or of other indices in rising order, that follow each other."""
    runs: list[tuple[int, ...]] = []
    for head in heads:
        if runs and runs[-1][-1] == head - 1:
            runs[-1] += (head,)
        else:
            runs.append((head,))
    return runs


def _runs(groups: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Return the group and the length of each run of neighbouring heads, in rising order."""
    owners = sorted((head, number) for number, group in enumerate(groups) for head in group)
    runs: list[tuple[int, int]] = []
    for _, owner in owners:
        if runs and runs[-1][0] == owner:
            runs[-1] = (owner, runs[-1][1] + 1)
        else:
            runs.append((owner, 1))
    return runs


def _heads_inside_tokens(tensor: Tensor) -> bool:
    """Tell whether memory holds all heads of a token together, as a projection writes them."""
    return tensor.dim() == 4 and tensor.stride(1) < tensor.stride(2)


def _swap(tensor: Tensor, inner: bool) -> Tensor:
    """Swap heads and tokens, so that copies keep the layout in memory."""
    return tensor.transpose(1, 2) if inner else tensor
