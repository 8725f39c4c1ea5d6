"""The same for stones: next tokens of a causal sequence, from what earlier ones left behind."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.keys import spaced_keys
from jat_graph.adjacency.scores import QueryKeyScores, full_precision
from jat_graph.adjacency.standard import Moments, causal_features
from jat_graph.adjacency.stones import LinkRule
from jat_graph.attention.heads import HeadGroup, HeadParts, JumpHeads
from jat_graph.attention.past import Past, put
from jat_graph.attention.propagation import Strengths, head_groups
from jat_graph.config import JatConfig, StoneGraph
from jat_graph.masks.tokens import TokenMask
from jat_graph.operators.stones import running_product, without_zeros

BACK = 64  # tokens that a crop may take away at little cost


class Known(NamedTuple):
    """What the first tokens left behind; nothing but None if there are none."""

    length: int = 0  # L
    moments: Moments | None = None
    stones: Tensor | None = None  # their standard keys, [B, H, U, D]
    sizes: Tensor | None = None  # of the stones of each side, [B, H, sides, U, 1]
    # Sums of all sides that change on each stone, by hop, [B, H, sides, U, ·].
    sums: tuple[Tensor, ...] | None = None


class NextSteps:
    """The rows of P that belong to tokens after others."""

    def __init__(
        self,
        links: Tensor,  # [B, H, n, sides · U]
        sides: int,
        sizes: Tensor | None,  # before them, [B, H, sides, ≤ U, 1]; None if nothing was
        self_weight: float,
    ) -> None:
        self.links, self.sides = links, sides
        sums = links if links.size(-2) == 1 else links.cumsum(-2)
        sums = sums if sizes is None else sums + self._grown(sizes).mT
        self.sizes = sums[:, :, -1:].mT.view(*sums.shape[:2], sides, -1, 1)
        self.shares = links / without_zeros(sums)
        degree = links.sum(-1, keepdim=True)  # [B, H, n, 1]
        self.loops = (degree == 0).to(links.dtype) if self_weight == 0 else self_weight
        self.weight = (degree + self.loops).reciprocal()

    def walk(
        self,
        near: dict[int, Tensor],  # by side, [B, H, n, ·]
        hops: int,
        before: tuple[Tensor, ...] | None,  # the sums on stones, by hop, [B, H, sides, ≤ U, ·]
    ) -> tuple[list[dict[int, Tensor]], tuple[Tensor, ...]]:
        """Return the hops of each side, and the sums on stones after them."""
        widths = [x.size(-1) for x in near.values()]
        x = torch.cat(list(near.values()), dim=-1).to(self.links.dtype)
        found, after = [], []
        for hop in range(hops):
            earlier = None if before is None else self._grown(before[hop])
            if earlier is not None and x.size(-2) == 1:  # they are those that the token reads
                sums = torch.addcmul(earlier, self.links.mT, x)
                walked = self.shares @ sums
            else:
                walked, sums = running_product(self.shares, self.links, x), self.links.mT @ x
                if earlier is not None:
                    walked, sums = walked + self.shares @ earlier, sums + earlier
            x = (walked + self.loops * x) * self.weight
            found.append(dict(zip(near, x.split_with_sizes(widths, dim=-1), strict=True)))
            after.append(sums.view(*sums.shape[:2], self.sides, -1, sums.size(-1)))
        return found, tuple(after)

    def _grown(self, sums: Tensor) -> Tensor:  # [B, H, sides · U, D]
        """Return sums on the first stones as those on all, with 0 on the later ones."""
        return _with_rows(sums, self.links.size(-1) // self.sides).flatten(2, 3)


class StonePast(Past):
    """What earlier tokens left behind for heads that jump along stones."""

    # A token adds itself to the sums of the stones that it stands on, and reads those of all tokens
    # so far: O(U · D) a hop. Sums cannot be taken back, so those of some tokens ago are kept, too;
    # where a crop goes further back, all begins again with the first token.

    by_token = (*Past.by_token, "queries", "keys")

    queries: Tensor | None  # as they came, with room, [B, H, ≥ L, D]
    keys: Tensor | None  # the features of keys, with room
    known: list[Known]  # of ever more tokens

    def __init__(self, jumping: JumpHeads) -> None:
        self.jumping = jumping
        super().__init__()

    def reset(self) -> None:
        super().reset()
        self.queries, self.keys, self.known = None, None, []

    def append(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: TokenMask,
        scale: float,
        strength: Tensor | None = None,
    ) -> HeadParts:
        start, jumping = self.length, self.jumping
        if self.count(query, mask):
            self.queries = put(self.queries, query, start, 2)
        if start == 0:
            options: dict[str, Any] = {"mask": mask, "scale": scale, "strength": strength}
            return head_groups(query, key, value, jumping, **options)
        assert self.queries is not None
        theta, last = Strengths.of(jumping, strength, query), (self.known or [Known()])[-1]
        # Of tokens that are new to the sums: some begin again, after a crop.
        query, key, _ = near = (
            self.queries[:, :, last.length : self.length],
            key[:, :, last.length :],
            value[:, :, last.length :],
        )
        with full_precision(query.device):
            steps, moments, stones = _next_steps(query, key, jumping.config, mask, scale, last)
            moving = {side: x for side, x in enumerate(near) if theta.sides[side]}
            far, sums = steps.walk(moving, jumping.highest_hop, last.sums)
        if self.known:  # what was known some tokens ago is kept, too
            marks = self.known[:-1]
            if not marks or last.length - marks[-1].length >= BACK:
                marks = [*marks[-1:], last]
            self.known = marks
        self.known.append(Known(self.length, moments, stones, steps.sizes, sums))
        queries, keys, update = theta.features(near, far)
        self.keys = put(self.keys, keys, last.length, 2)
        new = slice(start - last.length, None)
        update = None if update is None else update[:, :, new]
        features = queries[:, :, new], self.keys[:, :, : self.length], value
        return [HeadGroup(jumping.heads, *features, jumps=True, value_update=update)]

    def crop(self, length: int) -> None:
        super().crop(length)
        self.known = [known for known in self.known if known.length <= length]


def _next_steps(
    query: Tensor,  # [B, H, n, D]
    key: Tensor,  # [B, H, n, D]
    config: JatConfig,
    mask: TokenMask,  # of all tokens
    scale: float,
    last: Known,
) -> tuple[NextSteps, Moments, Tensor]:  # and the stones, [B, H, U, D]
    """Return how tokens after others walk, and what is then left behind."""
    valid = None if mask.valid is None else mask.valid[..., last.length :]
    query, key, moments = causal_features(query, key, scale, valid, last.moments)
    stones, visible = _next_stones(key, config, mask, last)
    source = QueryKeyScores(query, stones, scale)
    graph = config.jump_graph
    assert isinstance(graph, StoneGraph)
    rule = LinkRule.of(graph, source)
    links = rule.links(source.columns(None), visible)
    steps = NextSteps(links, 1 + rule.both_sides, last.sizes, rule.self_weight)
    return steps, moments, stones


def _next_stones(
    key: Tensor,  # standard keys of the next tokens, [B, H, n, D]
    config: JatConfig,
    mask: TokenMask,  # of all tokens
    last: Known,
) -> tuple[Tensor, Tensor | None]:  # [B, H, U, D], bool [B, H, n, U]
    """Return the standard keys of the stones, and which each token sees; None if it sees all."""
    batch, heads, rows, _ = key.shape
    length, graph = last.length + rows, config.jump_graph
    if rows == 1 and mask.voting is None and last.stones is not None:  # which sees them all
        is_stone = graph.key_selection == "all" or last.length % (graph.key_step or 1) == 0
        return torch.cat([last.stones, key], dim=2) if is_stone else last.stones, None
    chosen = spaced_keys(config, mask, torch.Size((batch, heads, length)), key.device)
    position = torch.arange(length, device=key.device)
    index = position.expand(batch, heads, -1) if chosen.index is None else chosen.index
    parts = [] if chosen.valid is None else [chosen.valid.unsqueeze(-2)]
    if rows > 1:  # the last token sees every stone
        parts.append(index.unsqueeze(-2) <= position[last.length :].unsqueeze(-1))
    if mask.valid is not None:
        parts.append(mask.valid[..., last.length :].unsqueeze(-1))
    visible = reduce(torch.logical_and, parts) if parts else None
    offset = (index - last.length).unsqueeze(-1)
    if last.stones is None:
        stones = key.take_along_dim(offset, 2)
    elif chosen.valid is None:  # new stones come behind the others
        new = key.take_along_dim(offset[:, :, last.stones.size(2) :], 2)
        stones = torch.cat([last.stones, new], dim=2) if new.size(2) else last.stones
    else:
        earlier = _with_rows(last.stones, offset.size(2))
        stones = torch.where(offset < 0, earlier, key.take_along_dim(offset.clamp(min=0), 2))
    return stones, visible


def _with_rows(x: Tensor, number: int) -> Tensor:
    """Return so many rows, those that there are and 0; it is no copy if there are all."""
    more = number - x.size(-2)
    return F.pad(x, (0, 0, 0, more)) if more else x
