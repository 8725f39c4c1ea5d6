"""Strengths θ: how far each hop moves queries, keys and values, fixed or learned."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from jat_graph.config import JatConfig
from jat_graph.config_fields import LEARNED

QUERIES, KEYS, VALUES = range(3)


@dataclass(frozen=True)
class Strengths:
    """The strengths of heads that jump."""

    theta: Tensor  # [3, hops, H], in the dtype of the operator
    sides: tuple[bool, bool, bool]  # which of queries, keys and values ever change
    learned: Tensor | None  # those that the config does not fix; None if it fixes any but 0

    @classmethod
    def of(cls, config: JatConfig, given: Tensor | None, like: Tensor) -> Strengths:
        """Return the numbers of a config, with those given where it says "learned"."""
        triples, heads = config.strengths(), like.size(1)
        learned = [[triple[side] == LEARNED for triple in triples] for side in range(3)]
        fixed = [
            [0.0 if triple[side] == LEARNED else triple[side] for triple in triples]
            for side in range(3)
        ]
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        theta = torch.tensor(fixed, dtype=dtype, device=like.device)
        theta = theta.unsqueeze(-1).expand(-1, -1, heads)
        query, key, value = (any(learned[side]) or any(fixed[side]) for side in range(3))
        if not any(map(any, learned)):
            return cls(theta, (query, key, value), None)
        if given is None:
            raise ValueError(
                f"strength must be a tensor {list(theta.shape)} where the config says "
                f"{LEARNED!r}, got None"
            )
        if given.shape != theta.shape:
            raise ValueError(f"strength must be {list(theta.shape)}, got {list(given.shape)}")
        where = torch.tensor(learned, device=like.device).unsqueeze(-1)
        theta = torch.where(where, given.to(dtype), theta)
        return cls(theta, (query, key, value), None if any(map(any, fixed)) else given)

    @property
    def hops(self) -> int:
        """The highest hop."""
        return self.theta.size(1)

    def of_place(self, place: int) -> Strengths:
        """Return those of one head."""
        return Strengths(self.theta[..., place : place + 1], self.sides, None)

    def are_zero(self) -> bool:
        """Tell whether no head jumps now, and none is learning to."""
        return self.learned is not None and are_at_rest(self.learned)

    def of_hop(self, side: int, hop: int) -> Tensor:  # [H, 1, 1]
        """Return θ of each head."""
        return self.theta[side, hop, :, None, None]

    def features(
        self,
        near: tuple[Tensor, Tensor, Tensor],  # queries, keys and values, [B, H, L, ·] each
        far: Sequence[Mapping[int, Tensor]],  # Pᵖ x of each side that changes, by hop
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return x + Σ_p θ_p (Pᵖ x − x) of queries and of keys, and Σ_p θ_p Pᵖ x of values."""
        moved = [self._moved(side, near[side], far) for side in (QUERIES, KEYS)]
        if not self.sides[VALUES]:
            return moved[0], moved[1], None
        parts = [self.of_hop(VALUES, hop) * x[VALUES] for hop, x in enumerate(far)]
        return moved[0], moved[1], reduce(torch.add, parts).to(near[VALUES].dtype)

    def _moved(self, side: int, near: Tensor, far: Sequence[Mapping[int, Tensor]]) -> Tensor:
        if not self.sides[side]:
            return near
        start = near.to(self.theta.dtype)
        result = start
        for hop, x in enumerate(far):
            moved = torch.lerp(start, x[side].to(start.dtype), self.of_hop(side, hop))
            result = moved if hop == 0 else result + (moved - start)
        return result.to(near.dtype)


def new_strength(config: JatConfig, num_heads: int) -> torch.nn.Parameter | None:
    """Return what heads learn of how strongly to jump, beginning at not at all; None if nothing."""
    triples = config.strengths()
    if not any(LEARNED in triple for triple in triples):
        return None
    return torch.nn.Parameter(torch.zeros(3, len(triples), num_heads))


def are_at_rest(strength: Tensor) -> bool:
    """Tell whether learned strengths are all 0, and not being learned just now."""
    if torch.compiler.is_compiling():
        return False
    learning = torch.is_grad_enabled() and strength.requires_grad
    return not learning and not _has_entries(strength)


_seen: MutableMapping[Tensor, tuple[int, bool]] = WeakTensorKeyDictionary()


def _has_entries(strength: Tensor) -> bool:
    """Tell whether a tensor has an entry but 0, and ask the device only after it has changed."""
    if strength.is_inference() or strength.is_cpu:
        return bool(strength.any())
    version, found = _seen.get(strength, (-1, False))
    if version != strength._version:
        found = bool(strength.detach().any())
        _seen[strength] = strength._version, found
    return found


class JumpStrength(nn.Module):
    """What jump heads learn: a module of its own, which PEFT can save, in layers and models."""

    def __init__(self, theta: nn.Parameter) -> None:  # [3, hops, H]
        super().__init__()
        self.theta = theta

    def forward(self) -> Tensor:  # [3, hops, H]
        """Return the strengths."""
        return self.theta
