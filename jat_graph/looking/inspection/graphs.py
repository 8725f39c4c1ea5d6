"""The graph of a layer's jump heads, dense enough to be looked at: of pairs, or of stones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from torch import Tensor

from jat_graph.hf import CapturedLayer
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.stones import StoneIncidence
from jat_graph.jumps.heads import JumpHeads
from jat_graph.jumps.operators import DenseOperator, Operator
from jat_graph.jumps.propagation import graph_operator
from jat_graph.looking.inspection.reports import Link, SteppingStone, Stone
from jat_graph.looking.inspection.selection import Token


@dataclass(frozen=True)
class PairVotes:
    """The graph A of hard votes; single jumps are those of the first sequence and head."""

    fixed: PairAdjacency

    @cached_property
    def weights(self) -> Tensor:  # [B, H, L, L]
        """A."""
        return DenseOperator.of_pairs(self.fixed).to_dense()

    @cached_property
    def entries(self) -> tuple[Tensor, Tensor]:  # [B, H, L, L] bool, [B, H, L, L]
        """The allowed pairs, and their weights."""
        return self.fixed.edge_mask().expand_as(self.weights), self.weights

    @cached_property
    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:  # [L, L], [U, L], [U]
        """The scores that vote; of the voting keys columns and limits."""
        columns, limits = self.fixed.columns()
        return self.fixed.source.columns(None)[0, 0], columns[0, 0], limits[0, 0]

    def stepping_stones(self, query: int, key: int, tokens: Sequence[Token]) -> list[SteppingStone]:
        """Return who voted for a pair, strongest product first."""
        scores, columns, limits = self._scores
        chosen = (columns[:, query] * columns[:, key] > limits).nonzero().squeeze(-1)
        index = self.fixed.keys.index
        keys = chosen if index is None else index[0, 0, chosen]
        rows = keys.tolist(), *scores[[query, key]][:, keys].tolist()
        found = [SteppingStone(tokens[j], *own) for j, *own in zip(*rows, strict=True)]
        return sorted(found, key=lambda stone: -stone.query_score * stone.key_score)


@dataclass(frozen=True)
class StoneLinks:
    """How tokens stand on stones, and the walk P from token to token that this gives."""

    fixed: StoneIncidence
    operator: Operator  # P

    @cached_property
    def weights(self) -> Tensor:  # [B, H, L, L]
        """P, without what stays where it is."""
        walk = self.operator.to_dense()
        return walk - walk.diagonal(dim1=-2, dim2=-1).diag_embed()

    @cached_property
    def entries(self) -> tuple[Tensor, Tensor]:  # [B, H, L, m] bool, [B, H, L, m]
        """The stones that each token may stand on, and the links."""
        scores, links = self.fixed.scores(), self.fixed.links()
        sides = links.size(-1) // scores.size(-1)
        return ~scores.isnan().repeat(1, 1, 1, sides), links

    @cached_property
    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:  # [L, L], [m], [m]
        """The standard scores; positions and sides of the stones."""
        index, sides = self.fixed.stones()
        return self.fixed.source.columns(None)[0, 0], index[0, 0], sides

    def stepping_stones(self, query: int, key: int, tokens: Sequence[Token]) -> list[SteppingStone]:
        """Return the stones between a pair, by their shares of P_ik."""
        links = self.entries[1][0, 0]  # [L, m]
        if self.fixed.mask.causal:
            links = links[: query + 1]  # stones are as large as the tokens so far make them
        over = (links[query] * links[key] / links.sum(0)).nan_to_num()  # 0/0 where nobody stands
        chosen = over.nonzero().squeeze(-1)
        scores, index, sides = self._scores
        keys = index[chosen]
        shares = over[chosen] / over.sum()
        rows = keys.tolist(), *scores[[query, key]][:, keys].tolist()
        found = [
            SteppingStone(tokens[j], *numbers)
            for j, *numbers in zip(*rows, sides[chosen].tolist(), shares.tolist(), strict=True)
        ]
        return sorted(found, key=lambda stone: -(stone.share or 0.0))

    def stones(self, tokens: Sequence[Token]) -> list[Stone]:
        """Return the stones in use, by their shares of all walks."""
        links = self.entries[1][0, 0]
        steps = links / (links.sum(-1, keepdim=True) + self.fixed.rule.self_weight)
        shares, order = steps.nan_to_num().mean(0).sort(descending=True, stable=True)
        _, index, sides = self._scores
        found = []
        for column, share in zip(order.tolist(), shares.tolist(), strict=True):
            on = links[:, column].nonzero().squeeze(-1)
            if len(on):
                pairs = zip(on.tolist(), links[on, column].tolist(), strict=True)
                standing = tuple(Link(tokens[i], b) for i, b in pairs)
                found.append(Stone(tokens[int(index[column])], int(sides[column]), share, standing))
        return found


LayerGraph: TypeAlias = PairVotes | StoneLinks


def layer_pairs(layer: CapturedLayer) -> PairAdjacency:
    """Return what fixes the pairs of a layer; hard votes where the config's are soft."""
    config = layer.config.replace(soft_temperature=None)
    return PairAdjacency.of_heads(config, layer.query, layer.key, layer.scale, layer.mask)


def layer_graph(layer: CapturedLayer) -> LayerGraph:
    """Return the graph of a layer."""
    if layer.config.jump_graph.kind == "pairs":
        return PairVotes(layer_pairs(layer))
    jumping = JumpHeads.everyone(layer.config, layer.query.size(1))
    operator, fixed, _ = graph_operator(layer.query, layer.key, jumping, layer.mask, layer.scale)
    assert isinstance(fixed, StoneIncidence)
    return StoneLinks(fixed, operator)
