"""What is known about jump heads on one text: plain data, for tables, JSON and pictures."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from jat_graph.config import JatConfig


@dataclass(frozen=True)
class Token:
    """A token of the text.

    Args:
        index: Position among the model's tokens, special ones included.
        text: What it says.
    """

    index: int
    text: str


@dataclass(frozen=True)
class SteppingStone:
    """A key that voted for a jump.

    Args:
        token: The key's token j.
        query_score: X_ij, the scaled score of the token that looks.
        key_score: X_kj, the scaled score of the token looked at.
    """

    token: Token
    query_score: float
    key_score: float


@dataclass(frozen=True)
class Jump:
    """An edge (i, k) of a head's graph, and what it did to the attention of i to k.

    Args:
        query: The token i that looks.
        key: The token k looked at.
        weight: A_ik, the share of voting keys that voted for the pair.
        before: Attention probability without propagation.
        after: Attention probability with propagation.
        stones: The keys that voted and are shown, strongest product first.
        hidden_stones: Number of special tokens that voted and are not shown.
    """

    query: Token
    key: Token
    weight: float
    before: float
    after: float
    stones: tuple[SteppingStone, ...]
    hidden_stones: int = 0

    @property
    def gain(self) -> float:
        """Attention probability after minus before."""
        return self.after - self.before

    def to_dict(self) -> dict[str, Any]:
        """Return the jump as JSON types, with its gain.

        Returns:
            A dictionary for ``json.dumps``.
        """
        return {**asdict(self), "gain": self.gain, "stones": [asdict(s) for s in self.stones]}


@dataclass(frozen=True)
class HeadReport:
    """One jump head on one text.

    Args:
        layer: Layer, from 0.
        head: Head, from 0.
        threshold: The ρ in force.
        density: Share of the pairs i ≠ k that are joined, special tokens included.
        mean_weight: Mean weight of the joined pairs, special tokens included.
        jumps: The strongest jumps by gain.
    """

    layer: int
    head: int
    threshold: float
    density: float
    mean_weight: float
    jumps: tuple[Jump, ...]


@dataclass(frozen=True)
class Inspection:
    """What every jump head does on one text.

    Args:
        text: The text.
        tokens: The model's tokens of it, special ones included.
        config: The settings of the jump heads.
        heads: One report for each jump layer and head, in order.
    """

    text: str
    tokens: tuple[Token, ...]
    config: JatConfig
    heads: tuple[HeadReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types; an infinite ρ becomes ``"inf"``.

        Returns:
            A dictionary for ``json.dumps``.
        """
        return {
            "text": self.text,
            "tokens": [token.text for token in self.tokens],
            "config": self.config.to_dict(),
            "heads": [_head_dict(report) for report in self.heads],
        }


@dataclass(frozen=True)
class HeadView:
    """One jump head on one text, as matrices; what :func:`jat_graph.viz.draw_head` draws.

    Args:
        report: The head's numbers and jumps.
        tokens: The tokens shown.
        scores: X before propagation, scaled.
        weights: The graph A.
        propagated: The scores after propagation, scaled.

    Shapes:
        - ``scores``, ``weights``, ``propagated``: ``[L, L]`` with L shown tokens
    """

    report: HeadReport
    tokens: tuple[Token, ...]
    scores: Tensor
    weights: Tensor
    propagated: Tensor


def _head_dict(report: HeadReport) -> dict[str, Any]:
    """Return a report as JSON types."""
    threshold = "inf" if math.isinf(report.threshold) else report.threshold
    jumps = [jump.to_dict() for jump in report.jumps]
    return {**asdict(report), "threshold": threshold, "jumps": jumps}
