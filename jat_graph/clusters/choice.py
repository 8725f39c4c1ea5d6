"""Who decides what is read exactly: keys, and nodes of a tree that stand for all others."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from jat_graph.clusters.tree import SINKS, Tree, grow, grow_whole, new_tree, pooled


class Rule(NamedTuple):
    """How tokens descend the tree of their keys."""

    keys: int = 384  # that a token reads exactly at most, by whole clusters, beside near ones
    groups: int = 32  # nodes of each higher level that it opens at most
    size: int = 8  # keys of a cluster
    segment: int = 512  # keys that are clustered together in causal order, 2ⁿ times the size
    window: int = 64  # last keys that are in no cluster; without causal order these tokens read all
    dense_below: int = 0  # tokens before this one read all that comes before them
    rest: bool = True  # whether nodes stand for what is not read
    margin: float = 4.0  # how far below its best score a token still opens and reads nodes
    causal: bool = True  # whether tokens read none that comes after them

    @classmethod
    def of(cls, settings: list[float]) -> Rule:
        """Return the rule of numbers that an operator of torch took."""
        keys, groups, size, segment, window, first = map(int, settings[:6])
        rest, margin, causal = bool(settings[6]), settings[7], bool(settings[8])
        return cls(keys, groups, size, segment, window, first, rest, margin, causal)

    @property
    def clusters(self) -> int:
        """Number of clusters that a token reads."""
        return -(-self.keys // self.size)

    @property
    def first(self) -> int:
        """First token that can meet a cluster; those before it read all that comes before them."""
        least = self.segment if self.causal else self.size
        return max(self.dense_below, SINKS + self.window + least - 1)

    def seen(self, position: int) -> int:
        """Return how many clusters a token sees, by its place from 0 in its sequence."""
        # Those of complete segments; in no order what the last token sees, which is all there are.
        if position < self.dense_below:
            return 0
        later = max(0, position + 1 - SINKS - self.window)
        if not self.causal:
            return later // self.size
        return later // self.segment * (self.segment // self.size)

    @property
    def top(self) -> int:
        """Number of nodes that the highest level has at most, unless it is the last."""
        return 32 * self.groups


class Choice(NamedTuple):
    """What the last T tokens of a sequence read: keys exactly, and nodes in the place of the rest.

    A token reads the sinks, its near keys, which are from the end of the clusters that it sees to
    its own, or to the last without causal order, and the keys of those that it picks. All other
    keys of clusters are read by their mean over the largest node that it did not open.
    """

    tree: Tree
    seen: Tensor  # clusters that each token sees, int32 [T]
    opened: Tensor  # nodes of each level above the first, -1 for none, int32 [H, T, levels, groups]
    read: Tensor  # clusters, -1 for none, int32 [H, T, clusters]
    top: int  # nodes that the highest level has at most, unless it is the last
    rest: bool  # whether nodes stand for what is not read
    margin: float  # how far below its best score a token still opens and reads nodes
    causal: bool  # whether tokens read none that comes after them

    def runs(self, most: int = 2**62) -> list[tuple[slice, int]]:
        """Return runs of tokens that see the same clusters, and how many clusters these are."""
        seen, count = torch.unique_consecutive(self.seen, return_counts=True)
        found, start = list[tuple[slice, int]](), 0
        for one, number in zip(seen.tolist(), count.tolist(), strict=True):
            for begin in range(start, start + number, min(most, number)):
                found.append((slice(begin, min(begin + most, start + number)), one))
            start += number
        return found


class Nodes(NamedTuple):
    """Means of a tree's nodes, of each level, in the precision of keys and values."""

    keys: list[Tensor]  # [Hkv, nodes, D]
    values: list[Tensor]  # [Hkv, nodes, Dv]
    spread: list[Tensor]  # how far keys are from their mean, by root mean square, [Hkv, nodes]
    ready: dict[int, Any] | None = None  # what a kernel keeps for single tokens, by clusters seen

    @classmethod
    def of(cls, tree: Tree, key: Tensor, value: Tensor, known: Nodes | None = None) -> Nodes:
        """Return the means of all nodes, of which the first may be known."""
        before = (known.keys, known.values) if known else ([], [])
        found: tuple[list[Tensor], list[Tensor]] = ([], [])
        for total, x, old in zip(found, (key, value), before, strict=True):
            below = x[:, SINKS:]
            for level, members in enumerate(tree.members):
                own = old[level] if level < len(old) else below[:, :0]
                if new := members.size(1) - own.size(1):
                    first = own.size(1) * members.size(2)  # where a block begins
                    last = first + new * members.size(2)
                    means = pooled(members[:, -new:] - first, wide(below[:, first:last]))
                    own = torch.cat([own, means.to(x.dtype)], dim=1)
                total.append(own)
                below = own
        spread = list[Tensor]()  # by root mean square, over the keys of nodes
        for level, members in enumerate(tree.members):
            there = known is not None and level < len(known.spread)
            own = known.spread[level] if known and there else wide(key[:, :0, 0])
            more, means = (x[:, own.size(1) :] for x in (members, found[0][level]))
            below, index = found[0][level - 1] if level else key[:, SINKS:], more.flatten(1).long()
            children = below.gather(1, index.unsqueeze(-1).expand(-1, -1, below.size(-1)))
            away = wide(children).unflatten(1, more.shape[1:]) - wide(means).unsqueeze(2)
            squares: Tensor = away.square().sum(-1)
            if level:  # of the children's own keys
                squares += spread[-1].gather(1, index).view(more.shape).square()
            spread.append(torch.cat([own, squares.mean(2).sqrt()], dim=1))
        return cls(found[0], found[1], spread, {})

    def wide(self) -> Nodes:
        """Return the means in the precision of sums."""
        keys, values = ([wide(x) for x in part] for part in (self.keys, self.values))
        return Nodes(keys, values, self.spread)

    def crop(self, tree: Tree) -> Nodes:
        """Return the means of a smaller tree's nodes."""
        sizes = [own.size(1) for own in tree.members]
        keys, values, spread = (
            [x[:, :size] for x, size in zip(part, sizes, strict=False)]
            for part in (self.keys, self.values, self.spread)
        )
        return Nodes(keys, values, spread, {})


def empty_choice(query: Tensor, number: int, tree: Tree, rule: Rule) -> Choice:
    """Return a choice of nothing for queries ``[H, T, D]``, the last of so many tokens."""
    heads, rows, _ = query.shape
    most = rule.seen(number - 1)
    if rows == 1 or not rule.causal:
        seen = torch.full((rows,), most, dtype=torch.int32, device=query.device)
        if not rule.causal and rule.window:
            seen[-rule.window :] = 0
    else:
        position = torch.arange(number - rows, number, device=query.device)
        seen = ((position + 1 - SINKS - rule.window) // rule.segment).clamp(min=0)
        seen *= rule.segment // rule.size
        seen = seen.masked_fill(position < rule.dense_below, 0).int()
    above = max(len(tree.spans(most, rule.top)) - 1, 0)
    opened = seen.new_full((heads, rows, above, rule.groups), -1)
    read = seen.new_full((heads, rows, rule.clusters), -1)
    return Choice(tree, seen, opened, read, rule.top, rule.rest, rule.margin, rule.causal)


def grow_for(rule: Rule, key: Tensor, tree: Tree | None = None) -> Tree:
    """Return the tree of all clusters that the last token sees, some of which may be known."""
    tree = new_tree(rule.size, rule.segment) if tree is None else tree
    seen = rule.seen(key.size(1) - 1)
    if seen <= tree.clusters:
        return tree
    key = key[:, : SINKS + seen * rule.size]
    return grow(tree, key) if rule.causal else grow_whole(rule.size, key)


def by_head(x: Tensor, heads: int) -> Tensor:  # [H, T, …] -> [Hkv, groups, T, …]
    """Return heads of queries by the head of keys that they share."""
    return x.view(heads, len(x) // heads, *x.shape[1:])


def wide(x: Tensor) -> Tensor:
    """Return a tensor in the precision of sums."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
