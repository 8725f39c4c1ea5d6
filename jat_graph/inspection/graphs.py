"""The graph of a layer's jump heads, dense enough to be looked at: of pairs, or of stones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from torch import Tensor

from jat_graph.adjacency.pairs import PairAdjacency
from jat_graph.adjacency.stones import StoneIncidence
from jat_graph.attention.jump_heads import JumpHeads
from jat_graph.attention.propagation import graph_operator
from jat_graph.hf import CapturedLayer
from jat_graph.operators import DenseOperator, Operator


class Vote(NamedTuple):
    """A key j that voted for a pair (i, k), or a stone on which both stand."""

    key: int  # position j
    query_score: float  # X_ij, standard scores where these vote
    key_score: float  # X_kj
    side: int | None = None  # of a stone: 1, or -1 where unusually low scores link to it
    share: float | None = None  # of P_ik, that goes over a stone


class UsedStone(NamedTuple):
    """A stone on which somebody stands."""

    key: int  # position j
    side: int
    share: float  # of all walks, that go over it
    links: list[tuple[int, float]]  # positions i on it, and b_ij


@dataclass(frozen=True)
class PairVotes:
    """The graph A of hard votes; single jumps are those of the first sequence and head."""

    fixed: PairAdjacency

    @cached_property
    def scores(self) -> Tensor:  # [B, H, L, L]
        """The scores that vote."""
        return self.fixed.source.columns(None)

    @cached_property
    def columns(self) -> tuple[Tensor, Tensor]:  # [B, H, U, L], [B, H, U]
        """Columns and limits of the voting keys."""
        return self.fixed.columns()

    @cached_property
    def weights(self) -> Tensor:  # [B, H, L, L]
        """A."""
        return DenseOperator.of_pairs(self.fixed).to_dense()

    @property
    def entries(self) -> tuple[Tensor, Tensor]:  # [B, H, L, L] bool, [B, H, L, L]
        """The allowed pairs, and their weights."""
        return self.fixed.edge_mask().expand_as(self.weights), self.weights

    def votes(self, query: int, key: int) -> list[Vote]:
        """Return who voted for a pair, strongest product first."""
        if not self.weights[0, 0, query, key]:
            return []
        columns, limits = (part[0, 0] for part in self.columns)  # [U, L], [U]
        chosen = (columns[:, query] * columns[:, key] > limits).nonzero().squeeze(-1)
        index = self.fixed.keys.index
        keys = chosen if index is None else index[0, 0, chosen]
        left, right = self.scores[0, 0][[query, key]][:, keys].tolist()
        votes = [Vote(*row) for row in zip(keys.tolist(), left, right, strict=True)]
        return sorted(votes, key=lambda vote: -vote.query_score * vote.key_score)


@dataclass(frozen=True)
class StoneLinks:
    """How tokens stand on stones, and the walk P from token to token that this gives."""

    fixed: StoneIncidence
    operator: Operator  # P

    @cached_property
    def scores(self) -> Tensor:  # [B, H, L, L]
        """The standard scores."""
        return self.fixed.source.columns(None)

    @cached_property
    def links(self) -> Tensor:  # B [B, H, L, m]
        """How each token stands on each stone."""
        return self.fixed.links()

    @cached_property
    def weights(self) -> Tensor:  # [B, H, L, L]
        """P, without what stays where it is."""
        walk = self.operator.to_dense()
        return walk - walk.diagonal(dim1=-2, dim2=-1).diag_embed()

    @property
    def entries(self) -> tuple[Tensor, Tensor]:  # [B, H, L, m] bool, [B, H, L, m]
        """The stones that each token may stand on, and the links."""
        scores = self.fixed.scores()
        sides = self.links.size(-1) // scores.size(-1)
        return ~scores.isnan().repeat(1, 1, 1, sides), self.links

    def votes(self, query: int, key: int) -> list[Vote]:
        """Return the stones between a pair, by their shares of P_ik."""
        links = self.links[0, 0]
        if self.fixed.mask.causal:
            if key > query:
                return []
            links = links[: query + 1]  # stones are as large as the tokens so far make them
        over = (links[query] * links[key] / links.sum(0)).nan_to_num()  # 0/0 where nobody stands
        chosen = over.nonzero().squeeze(-1)
        places, sides = self._places
        keys, shares = places[chosen], over[chosen] / over.sum()
        left, right = self.scores[0, 0][[query, key]][:, keys].tolist()
        rows = keys.tolist(), left, right, sides[chosen].tolist(), shares.tolist()
        votes = [Vote(*row) for row in zip(*rows, strict=True)]
        return sorted(votes, key=lambda vote: -(vote.share or 0.0))

    def stones(self) -> list[UsedStone]:
        """Return the stones in use, by their shares of all walks."""
        links = self.links[0, 0]  # [L, m]
        steps = links / (links.sum(-1, keepdim=True) + self.fixed.rule.self_weight)
        shares, order = steps.nan_to_num().mean(0).sort(descending=True, stable=True)
        keys, sides = self._places
        found = []
        for column, share in zip(order.tolist(), shares.tolist(), strict=True):
            on = links[:, column].nonzero().squeeze(-1)
            if len(on):
                standing = list(zip(on.tolist(), links[on, column].tolist(), strict=True))
                found.append(UsedStone(int(keys[column]), int(sides[column]), share, standing))
        return found

    @property
    def linked(self) -> float:
        """The share of tokens that stand on a stone."""
        return float(self.links[0, 0].any(-1).float().mean())

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:  # [m] each
        places, sides = self.fixed.stones()
        return places[0, 0], sides


LayerGraph: TypeAlias = PairVotes | StoneLinks


def layer_pairs(layer: CapturedLayer) -> PairAdjacency:
    """Return what fixes the pairs of a layer; hard votes where the config's are soft."""
    config = layer.config.replace(soft_temperature=None)
    return PairAdjacency.of_heads(config, layer.query, layer.key, layer.scale, layer.mask)


def layer_graph(layer: CapturedLayer) -> LayerGraph:
    """Return the graph of a layer."""
    if layer.config.graph.kind == "pairs":
        return PairVotes(layer_pairs(layer))
    jumping = JumpHeads.everyone(layer.config, layer.query.size(1))
    operator, fixed, _ = graph_operator(layer.query, layer.key, jumping, layer.mask, layer.scale)
    assert isinstance(fixed, StoneIncidence)
    return StoneLinks(fixed, operator)
