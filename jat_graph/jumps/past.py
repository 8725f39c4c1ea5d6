"""What earlier tokens of a causal sequence left behind for the next ones, in graphs of pairs."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from jat_graph.core.compiling import full_precision
from jat_graph.core.heads import Features, HeadParts
from jat_graph.core.masks import TokenMask
from jat_graph.core.past import Past, put
from jat_graph.jumps.adjacency.pairs import PairAdjacency, sum_soft_votes
from jat_graph.jumps.heads import JumpHeads
from jat_graph.jumps.kernels import count_votes
from jat_graph.jumps.propagation import HopPair, pair_hops, weighted_groups


@dataclass(eq=False)
class PairPast(Past):
    """What earlier tokens left behind for heads that jump along pairs."""

    # With a causal mask a token joins earlier ones only, so that its propagated query and key are
    # final. A new token compares its scores to the voting keys with those of each earlier token,
    # which takes O(U · L), and adds up their features, O(L · D) a hop.

    by_token = (*Past.by_token, "hops", "inverse_root")
    keeps = ("keys",)

    heads: JumpHeads
    # Queries and keys, those of the next hop, and so on, [B, H, L, D].
    hops: list[Tensor] = field(default_factory=list)
    inverse_root: Tensor | None = None  # D̃^-½, [B, H, L, 1]
    # Of the first tokens to the voting keys, NaN where masked, so that it never votes; with room,
    # which the inner loops run over. [B, H, ≥ U, ≥ L]; None before the next token needs them.
    scores: Tensor | None = None
    scored: int = 0  # tokens that have scores

    def append(
        self, own: Features, mask: TokenMask, scale: float, strength: Tensor | None = None
    ) -> HeadParts:
        query, key, value = own
        if self.length:
            hops, nodes = self._next_hops(query, key[:, :, self.length :], mask, scale)
        else:
            hops, nodes, operator = pair_hops(query, key, self.heads, mask, scale)
            if self.count(query, mask):
                self.hops = [features for hop in hops for features in hop]
                self.inverse_root = operator.scale
        return weighted_groups(hops, nodes, value, self.heads)

    def crop(self, length: int) -> None:
        super().crop(length)
        self.scored = min(self.scored, length)
        self.scores = None if self.scores is None else self.scores[..., : self.scored]

    def _next_hops(
        self, query: Tensor, key: Tensor, mask: TokenMask, scale: float
    ) -> tuple[list[HopPair], Tensor | None]:
        """Return the hops of the next queries and of all keys, and the nodes; and keep them."""
        rows, config = slice(self.length, self.length + query.size(2)), self.heads.config
        self.count(query, mask)
        old = iter(self.hops)
        hops = [torch.cat([next(old), x], dim=2) for x in (query, key)]
        soft = config.jump_graph.soft_temperature is not None
        with torch.set_grad_enabled(soft and torch.is_grad_enabled()):
            pairs = PairAdjacency.of_heads(config, hops[0], hops[1], scale, mask)
            weights = self._rows_of_adjacency(pairs, rows)
            root = (weights.sum(-1, keepdim=True) + 1).rsqrt()
            assert self.inverse_root is not None
            self.inverse_root = torch.cat([self.inverse_root, root], dim=2)
            weights = root * weights * self.inverse_root.mT
        with full_precision(query.device):
            for earlier in old:
                near = hops[-2].to(weights.dtype)
                x = weights @ near + root.square() * near[:, :, rows]
                hops.append(torch.cat([earlier, x], dim=2))
        self.hops = hops
        by_hop = zip(hops[::2], hops[1::2], strict=True)
        return [(queries[:, :, rows], keys) for queries, keys in by_hop], pairs.selected

    def _rows_of_adjacency(self, pairs: PairAdjacency, rows: slice) -> Tensor:
        """Return A of the next tokens, ``[B, H, n, L]``, and keep their scores."""
        if pairs.rule.soft_temperature is not None:
            # A gradient flows through the scores: they are not kept.
            votes = sum_soft_votes(pairs.rule, *pairs.key_scores(), rows)
        else:
            columns, limits = pairs.columns(rows=slice(self.scored, rows.stop))
            self.scores = put(self.scores, columns, self.scored, 2, 3)
            self.scored = rows.stop
            limits = F.pad(limits, (0, self.scores.size(2) - limits.size(2)))
            votes = count_votes(self.scores, limits, rows)[..., : rows.stop]
        return votes.tril(rows.start - 1) / pairs.voters()[:, :, rows].unsqueeze(-1)
