"""The same for stones: what earlier tokens of a causal sequence left behind for the next ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.core.compiling import full_precision
from jat_graph.core.heads import Features, HeadGroup, HeadParts
from jat_graph.core.masks import TokenMask
from jat_graph.core.past import BACK, Past, put
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from jat_graph.jumps.adjacency.standard import Moments, causal_features
from jat_graph.jumps.adjacency.stones import StoneIncidence
from jat_graph.jumps.config import StoneGraph
from jat_graph.jumps.heads import JumpHeads
from jat_graph.jumps.operators.stones import StoneOperator, running_product, without_zeros
from jat_graph.jumps.past import PairPast
from jat_graph.jumps.propagation import Hop, Strengths, head_groups


class Sums(NamedTuple):
    """What the first tokens add up to; nothing but None if there are none."""

    length: int = 0  # L
    moments: Moments | None = None
    # Sizes of the stones of each side, then for each hop the sums of all features that change.
    on_stones: tuple[Tensor, ...] = ()  # [B, H, sides, U, 1], [B, H, sides, U, ·] each


@dataclass(eq=False)
class StonePast(Past):
    """What earlier tokens left behind for heads that jump along stones."""

    # A token adds itself to the sums of the stones that it stands on, and reads those of all tokens
    # so far: O(U · D) a hop. Sums cannot be taken back, so those of some tokens ago are kept, too;
    # where a crop goes further back, all begins again with the first token.

    by_token = (*Past.by_token, "queries", "standard", "keys")

    heads: JumpHeads
    # All with room, [B, H, ≥ L, D]: queries as they came, and of the tokens that have sums the
    # standard keys, and the features of keys.
    queries: Tensor | None = None
    standard: Tensor | None = None
    keys: Tensor | None = None
    sums: list[Sums] = field(default_factory=list)  # of ever more tokens

    def append(
        self, own: Features, mask: TokenMask, scale: float, strength: Tensor | None = None
    ) -> HeadParts:
        (query, key, value), start, jumping = own, self.length, self.heads
        if self.count(query, mask):
            self.queries = put(self.queries, query, start, 2)
        if start == 0:
            options: dict[str, Any] = {"mask": mask, "scale": scale, "strength": strength}
            return head_groups(query, key, value, jumping, **options)
        assert self.queries is not None
        theta, last = Strengths.of(jumping, strength, query), (self.sums or [Sums()])[-1]
        # Of tokens that are in no sum yet: some begin again, after a crop.
        near = (
            self.queries[:, :, last.length : self.length],
            key[:, :, last.length :],
            value[:, :, last.length :],
        )
        with full_precision(query.device):
            moving = {side: x for side, x in enumerate(near) if theta.sides[side]}
            far = self._walk(near[0], near[1], moving, mask, scale, last)
        queries, keys, update = theta.features(near, far)
        self.keys = put(self.keys, keys, last.length, 2)
        new = slice(start - last.length, None)
        update = None if update is None else update[:, :, new]
        features = queries[:, :, new], self.keys[:, :, : self.length], value
        return [HeadGroup(jumping.heads, *features, jumps=True, value_update=update)]

    def crop(self, length: int) -> None:
        super().crop(length)
        self.sums = [sums for sums in self.sums if sums.length <= length]

    def _walk(
        self, query: Tensor, key: Tensor, near: Hop, mask: TokenMask, scale: float, last: Sums
    ) -> list[Hop]:
        """Return the hops of the tokens that are in no sum yet, and add them up."""
        config, rows = self.heads.config, slice(last.length, self.length)
        valid = None if mask.valid is None else mask.valid[..., rows]
        query, key, moments = causal_features(query, key, scale, valid, last.moments)
        self.standard = put(self.standard, key, last.length, 2)
        source = QueryKeyScores(query, self.standard[:, :, : self.length], scale)
        incidence = StoneIncidence.of_standard(config, source, mask)
        links = incidence.links(rows)  # [B, H, n, sides · U]
        rule, sides = incidence.rule, 1 + incidence.rule.both_sides
        step, number = StoneOperator(links, rule.self_weight), links.size(-1) // sides
        known = last.on_stones  # [B, H, sides, ≤ U, ·]; 0 on the stones that are new
        more = number - known[0].size(-2) if known else 0
        grown = [F.pad(x, (0, 0, 0, more)) if more else x for x in known]
        nothing = [links.new_zeros(sides * number, 1)] * (1 + self.heads.highest_hop)
        before = [x.flatten(2, 3) for x in grown] or nothing
        sizes = links.cumsum(-2) + before[0].mT
        shares, after = links / without_zeros(sizes), [sizes[:, :, -1:].mT]
        x, found = torch.cat(list(near.values()), dim=-1).to(links.dtype), []
        for earlier in before[1:]:
            if x.size(-2) == 1:  # the sums are those that the token reads
                sums = torch.addcmul(earlier, links.mT, x)
                walked = shares @ sums
            else:
                walked = running_product(shares, links, x) + shares @ earlier
                sums = links.mT @ x + earlier
            x = (walked + step.loops * x) * step.weight
            widths = [side.size(-1) for side in near.values()]
            found.append(dict(zip(near, x.split_with_sizes(widths, dim=-1), strict=True)))
            after.append(sums)
        marks = self.sums[:-1]  # what was known some tokens ago is kept, too
        if self.sums and (not marks or last.length - marks[-1].length >= BACK):
            marks = [*marks[-1:], last]
        on_stones = tuple(x.view(*x.shape[:2], sides, -1, x.size(-1)) for x in after)
        self.sums = [*marks, Sums(self.length, moments, on_stones)]
        return found


def new_past(jumping: JumpHeads) -> Past:
    """Return what no tokens leave behind for heads that jump."""
    stones = isinstance(jumping.config.jump_graph, StoneGraph)
    return StonePast(jumping) if stones else PairPast(jumping)
