"""What there is to say of jump heads on one text: reports, and views of single heads."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from jat_graph.core.fields import to_plain
from jat_graph.core.numbers import check_integer
from jat_graph.jumps.config import JatConfig
from jat_graph.looking.inspection.selection import Token, strongest_edges


@dataclass(frozen=True)
class SteppingStone:
    """A key that voted for a jump, or on which both of its tokens stand.

    Args:
        token: The key's token j.
        query_score, key_score: X_ij and X_kj, the scaled scores of the token that looks and the one
            looked at; their standard scores where these vote, as with stones.
        side: With stones 1, or -1 for a stone of unusually low scores. (default: None)
        share: With stones the share of the jump's weight that goes over it. (default: None)
    """

    token: Token
    query_score: float
    key_score: float
    side: int | None = None
    share: float | None = None


@dataclass(frozen=True)
class Jump:
    """An edge (i, k) of a head's graph, and what it did to the attention of i to k.

    Args:
        query, key: The token i that looks, and the token k looked at.
        weight: A_ik, the share of voting keys that voted for the pair; with stones P_ik, the share
            of the walks from i that end at k.
        before, after: Attention probability without and with propagation.
        stones: The keys that voted and are shown, strongest product first; stones by their shares.
        hidden_stones: Number of special tokens that voted and are not shown. (default: 0)
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


@dataclass(frozen=True)
class Link:
    """A token i that stands on a stone j, with the weight b_ij."""

    token: Token
    weight: float


@dataclass(frozen=True)
class Stone:
    """A key that tokens score unusually high, or unusually low, and who these are.

    Args:
        token: The key's token j.
        side: 1 for unusually high scores, -1 for unusually low ones.
        share: Share of all walks that go over it.
        links: The tokens on it that are shown, in the order of the text.
        hidden_links: Number of tokens on it that are not shown. (default: 0)
    """

    token: Token
    side: int
    share: float
    links: tuple[Link, ...]
    hidden_links: int = 0


@dataclass(frozen=True)
class HeadReport:
    """One jump head on one text.

    Args:
        layer, head: Which head it is, from 0.
        threshold: The ρ in force.
        density, mean_weight: Share of joined pairs i ≠ k, special tokens too, and mean weight.
        jumps: The strongest jumps by gain, those of one gain by weight.
        strengths: θ of queries, keys and values for each hop; None without. (default: None)
        change: How much of a token's attention the jumps move elsewhere, ½ Σ|after − before|, mean
            over all tokens. (default: None, not measured)
    """

    layer: int
    head: int
    threshold: float
    density: float
    mean_weight: float
    jumps: tuple[Jump, ...]
    strengths: tuple[tuple[float, ...], ...] | None = None
    change: float | None = None


@dataclass(frozen=True, kw_only=True)
class StoneReport(HeadReport):
    """One head that jumps along stones: ``threshold`` is t, density and weight are those of links.

    Args:
        linked: Share of tokens that stand on a stone, special tokens included.
        num_stones: Stones in use: on which somebody stands.
        median_size: Median number of tokens on them.
        stones: Those with a shown token on them, by share of walks; all in a view of one head.
    """

    linked: float
    num_stones: int
    median_size: float
    stones: tuple[Stone, ...]


@dataclass(frozen=True)
class Inspection:
    """What jump heads do on one text.

    Args:
        text: The text.
        tokens: The model's tokens of it, special ones included.
        config: The settings of the jump heads.
        heads: One report for each layer and head that was looked at, in order.
    """

    text: str
    tokens: tuple[Token, ...]
    config: JatConfig
    heads: tuple[HeadReport, ...]

    def ranked(self, by_jump: bool = False) -> tuple[HeadReport, ...]:
        """Return the heads in the order in which they are worth looking at.

        Args:
            by_jump: By the gain of the first jump, then its weight, heads without one last, and not
                by how much of the attention they change. (default: False)

        Returns:
            The reports, the largest change or gain first.
        """

        def worth(head: HeadReport) -> tuple[float, ...]:
            if not by_jump:
                return (head.change or 0.0,)
            return max(((j.gain, j.weight) for j in head.jumps[:1]), default=(-math.inf, 0.0))

        return tuple(sorted(self.heads, key=worth, reverse=True))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types; an infinite ρ becomes ``"inf"``."""
        heads = []
        for head in self.heads:
            jumps = [_as_json(jump) | {"gain": jump.gain} for jump in head.jumps]
            heads.append(_as_json(head) | {"jumps": jumps})
        tokens = [token.text for token in self.tokens]
        config = self.config.to_dict()
        return {"text": self.text, "tokens": tokens, "config": config, "heads": heads}


@dataclass(frozen=True)
class HeadView:
    """One jump head on one text, as matrices; what :func:`jat_graph.viz.draw_head` draws.

    Args:
        report: The head's numbers and jumps.
        tokens: The L tokens shown.
        weights: The graph A, with stones P between two tokens, ``[L, L]``.
        scores, propagated: The scaled scores X before and after propagation, ``[L, L]``.
        gains: Attention probability after propagation minus before, ``[L, L]``.
    """

    report: HeadReport
    tokens: tuple[Token, ...]
    weights: Tensor
    scores: Tensor
    propagated: Tensor
    gains: Tensor

    def strongest(self, most: int) -> HeadView:
        """Return the view of those tokens that the strongest jumps join.

        Args:
            most: Number of tokens, at least 1.

        Returns:
            A view of at most so many tokens, in the text's order, with the jumps between them.

        Raises:
            ValueError: If the number is below 1.
        """
        check_integer("most", most, least=1)
        if most >= len(self.tokens):
            return self
        # Edges between fewer tokens are fewer than these.
        ends = strongest_edges(self.gains, self.weights, most**2).flatten().tolist()
        keep = sorted([*dict.fromkeys([*ends, *range(len(self.tokens))])][:most])
        tokens = tuple(self.tokens[index] for index in keep)
        jumps = tuple(j for j in self.report.jumps if j.query in tokens and j.key in tokens)
        matrices = self.weights, self.scores, self.propagated, self.gains
        cut = [matrix[keep][:, keep] for matrix in matrices]
        return HeadView(replace(self.report, jumps=jumps), tokens, *cut)


def _as_json(report: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that hold something, as JSON types."""

    def filled(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in fields if value is not None}

    return dict(to_plain(asdict(report, dict_factory=filled)))
