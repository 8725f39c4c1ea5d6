"""Who decides what is read exactly: keys, and nodes of a tree that stand for all others."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from jat_graph.clusters.tree import FAN, SINKS, Tree, grow, grow_whole, levels_of
from jat_graph.core.compiling import HAS_TRITON

# Where kernels make means, and write all entries of a choice's lists.
BY_TRITON = {"cuda"} if HAS_TRITON else set[str]()


class Rule(NamedTuple):
    """How tokens descend the tree of their keys."""

    keys: int = 512  # that a token reads exactly at most, by whole clusters, beside near ones
    groups: int = 32  # nodes of each higher level that it opens at most
    size: int = 8  # keys of a cluster
    segment: int = 512  # keys that are clustered together in causal order, 2ⁿ times the size
    window: int = 64  # last keys that are in no cluster; without causal order these tokens read all
    dense_below: int = 0  # tokens before this one read all that comes before them
    rest: bool = True  # whether nodes stand for what is not read
    margin: float = 8.0  # how far below its best score a token still opens and reads nodes
    causal: bool = True  # whether tokens read none that comes after them

    @classmethod
    def of(cls, settings: list[float]) -> Rule:
        """Return the rule of numbers that an operator of torch took."""
        keys, groups, size, segment, window, first = map(int, settings[:6])
        rest = bool(settings[6])
        margin = settings[7]
        causal = bool(settings[8])
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

    @property
    def top(self) -> int:
        """Number of nodes that a token meets at most, unless they are of the last level."""
        return 32 * self.groups

    def level(self, seen: int) -> int:
        """Return of which level the nodes are that a token meets, by the clusters that it sees."""
        levels = levels_of(self.size, self.segment * self.causal)
        while levels > 1 and seen < FAN ** (levels - 1):
            levels -= 1
        for level in range(levels - 1):
            if seen // FAN**level <= self.top:
                return level
        return levels - 1

    def seen(self, position: int) -> int:
        """Return how many clusters a token sees, by its place from 0 in its sequence."""
        # Those of complete segments; in no order what the last token sees, which is all there are.
        if position < self.dense_below:
            return 0
        later = max(0, position + 1 - SINKS - self.window)
        if self.causal:
            return later // self.segment * (self.segment // self.size)
        clusters = later // self.size
        whole = int(FAN ** self.level(clusters))  # or the last few were in no node that is met
        return clusters // whole * whole


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
    rule: Rule

    def runs(self, most: int = 2**62) -> list[tuple[slice, int]]:
        """Return runs of tokens that see the same clusters, and how many clusters these are."""
        seen, count = torch.unique_consecutive(self.seen, return_counts=True)
        found = list[tuple[slice, int]]()
        start = 0
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
    def of(
        cls, tree: Tree, key: Tensor, value: Tensor, rule: Rule, known: Nodes | None = None
    ) -> Nodes:
        """Return the means of nodes that may be read; those of the first segments may be known."""
        levels = rule.level(tree.clusters) + 1
        known = known if known and len(known.keys) == levels else None
        first = known.keys[0].size(1) * tree.size if known else 0
        rows = tree.keys[:, first:] - first if first else tree.keys
        heads, number = rows.shape
        new = [x[:, SINKS + first : SINKS + first + number] for x in (key, value)]
        found = list[Any]()
        narrow = max(key.size(-1), value.size(-1)) <= 128  # of which some chips have room
        if narrow and key.device.type in BY_TRITON and key.dtype != torch.float64:
            from jat_graph.clusters.gpu.building import average

            counts = [number // tree.size // FAN**level for level in range(levels)]
            found += average(rows, new[0], new[1], tree.size, counts)
        else:
            # Rows of all heads in one table: many times as fast as take_along_dim.
            table = rows.long() + torch.arange(heads, device=rows.device).unsqueeze(1) * number
            means = [x.flatten(0, 1).index_select(0, table.flatten()) for x in new]
            means = [wide(x).unflatten(0, rows.shape) for x in means]
            width = tree.size
            spread = means[0].new_zeros(rows.shape)
            for _ in range(levels):
                whole = spread.size(1) // width * width
                parts = [x[:, :whole].unflatten(1, (-1, width)) for x in means]
                means = [part.mean(2) for part in parts]
                squares = (parts[0] - means[0].unsqueeze(2)).square().sum(-1)
                squares += spread[:, :whole].unflatten(1, (-1, width)).square()
                spread = squares.mean(2).sqrt()
                width = FAN
                found.append((means[0].to(key.dtype), means[1].to(value.dtype), spread))
        if known:
            pairs = zip(zip(*known[:3], strict=True), found, strict=True)
            found = [[torch.cat(two, dim=1) for two in zip(*x, strict=True)] for x in pairs]
        keys, values, spreads = map(list, zip(*found, strict=True))
        return cls(keys, values, spreads, {})

    def wide(self) -> Nodes:
        """Return the means in the precision of sums."""
        keys, values = ([wide(x) for x in part] for part in (self.keys, self.values))
        return Nodes(keys, values, self.spread)

    def crop(self, clusters: int) -> Nodes:
        """Return the means of the nodes of the first clusters alone."""
        cut = ([x[:, : clusters // FAN**n] for n, x in enumerate(part)] for part in self[:3])
        keys, values, spreads = cut
        return Nodes(keys, values, spreads, {})


def empty_choice(query: Tensor, number: int, tree: Tree, rule: Rule) -> Choice:
    """Return a choice of nothing for queries ``[H, T, D]``, the last of so many tokens."""
    heads, rows, _ = query.shape
    most = rule.seen(number - 1)
    if rows == 1 or not rule.causal:
        seen = torch.full((rows,), most, dtype=torch.int32, device=query.device)
        if not rule.causal and rule.window:
            seen[-rule.window :] = 0
    else:
        first = number - rows
        later = first + 1 - SINKS - rule.window  # keys that might be in clusters
        seen = torch.arange(later, later + rows, dtype=torch.int32, device=query.device)
        seen = (seen // rule.segment).clamp_(min=0).mul_(rule.segment // rule.size)
        seen[: max(0, rule.dense_below - first)] = 0
    opened = seen.new_empty(heads, rows, rule.level(most), rule.groups)
    read = seen.new_empty(heads, rows, rule.clusters)
    if seen.device.type not in BY_TRITON:
        opened.fill_(-1)
        read.fill_(-1)
    return Choice(tree, seen, opened, read, rule)


def grow_for(rule: Rule, key: Tensor, known: Tree | None = None) -> Tree:
    """Return the tree of all clusters that the last token sees, some of which may be known."""
    seen = rule.seen(key.size(1) - 1)
    key = key[:, : SINKS + seen * rule.size if seen else 0]
    return grow(key, rule.size, rule.segment, known) if rule.causal else grow_whole(key, rule.size)


def by_head(x: Tensor, heads: int) -> Tensor:  # [H, T, …] -> [Hkv, groups, T, …]
    """Return heads of queries by the head of keys that they share."""
    return x.view(heads, len(x) // heads, *x.shape[1:])


def wide(x: Tensor) -> Tensor:
    """Return a tensor in the precision of sums."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def as_read(x: Tensor) -> Tensor:
    """Return heads as kernels read them: on a CPU in the precision of sums."""
    return x if x.device.type in BY_TRITON else wide(x)
