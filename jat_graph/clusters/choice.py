"""Who decides what is read exactly: keys, and nodes of a tree that stand for all others."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from jat_graph.clusters.tree import SINKS, Tree, node_means


class Rule(NamedTuple):
    """How tokens descend the tree of their keys."""

    keys: int = 64  # that a token reads exactly, by whole clusters, beside near ones
    groups: int = 32  # nodes of each higher level that it opens
    size: int = 4  # keys of a cluster, and clusters of a group, on average
    segment: int = 128  # keys that are clustered together
    window: int = 64  # last keys that are in no cluster yet, one at least
    dense_below: int = 0  # tokens before this one read all that comes before them
    rest: bool = True  # whether nodes stand for what is not read

    @property
    def clusters(self) -> int:
        """Number of clusters that a token reads."""
        return -(-self.keys // self.size)

    @property
    def first(self) -> int:
        """First token that can meet a cluster; those before it read all that comes before them."""
        return max(self.dense_below, SINKS + self.window + self.segment - 1)

    def seen(self, position: int) -> int:
        """Return how many segments a token sees.

        Args:
            position: Where it is in its sequence, from 0.

        Returns:
            Their number.
        """
        whole = max(0, position + 1 - SINKS - self.window) // self.segment
        return 0 if position < self.dense_below else whole

    @property
    def top(self) -> int:
        """Number of nodes that the highest level has at most, unless it is the last."""
        return 16 * self.groups


class Choice(NamedTuple):
    """What the last T tokens of a sequence read: keys exactly, and nodes in the place of the rest.

    A token reads the sinks, its near keys, which are from the end of the segments that it sees to
    its own, and the keys of its clusters. All other keys of these segments are read by their mean
    over the largest node that it did not open.
    """

    tree: Tree
    seen: Tensor  # segments that each token sees, rising, int32 [T]
    opened: Tensor  # nodes of each level above the first, -1 for none, int32 [H, T, levels, groups]
    read: Tensor  # clusters, -1 for none, int32 [H, T, clusters]
    top: int  # nodes that the highest level has at most, unless it is the last
    rest: bool  # whether nodes stand for what is not read

    def runs(self, most: int = 2**62) -> list[tuple[slice, int]]:
        """Return runs of tokens that see the same segments, and how many segments these are.

        Args:
            most: How long a run may be. (default: without end)

        Returns:
            Where each run is among the tokens, and its number of segments.
        """
        seen, count = torch.unique_consecutive(self.seen, return_counts=True)
        found, start = list[tuple[slice, int]](), 0
        for one, number in zip(seen.tolist(), count.tolist(), strict=True):
            for begin in range(start, start + number, min(most, number)):
                found.append((slice(begin, min(begin + most, start + number)), one))
            start += number
        return found


class Nodes(NamedTuple):
    """Means of a tree's levels; of clusters before ``held`` there may be none."""

    keys: list[Tensor]  # [Hkv, nodes, D]
    values: list[Tensor]  # [Hkv, nodes, Dv]
    bias: list[Tensor]  # logarithms of their numbers of keys, [Hkv, nodes]
    held: int = 0
    arrays: dict[int, Any] | None = None  # what loops run over, by head, where tokens come singly

    @classmethod
    def of(cls, tree: Tree, key: Tensor, value: Tensor) -> Nodes:
        """Return the means of all nodes."""
        both, width = torch.cat([key, value], dim=-1), key.size(-1)
        means = node_means(tree, both[:, SINKS : SINKS + tree.segments * tree.segment])
        keys = [mean[..., :width].contiguous() for mean in means]
        values = [mean[..., width:].contiguous() for mean in means]
        return cls(keys, values, [level.sizes.to(key.dtype).log() for level in tree.levels])


def empty_choice(query: Tensor, number: int, tree: Tree, rule: Rule) -> Choice:
    """Return a choice of nothing for queries ``[H, T, D]``, the last of so many tokens."""
    heads, rows, _ = query.shape
    position = torch.arange(number - rows, number, device=query.device)
    seen = ((position + 1 - SINKS - rule.window) // rule.segment).clamp(min=0)
    seen = seen.masked_fill(position < rule.dense_below, 0).int()
    above = max(len(tree.levels) - 1, 0)
    opened = query.new_full((heads, rows, above, rule.groups), -1, dtype=torch.int32)
    read = query.new_full((heads, rows, rule.clusters), -1, dtype=torch.int32)
    return Choice(tree, seen, opened, read, rule.top, rule.rest)


def by_head(x: Tensor, heads: int) -> Tensor:  # [H, T, …] -> [Hkv, groups, T, …]
    """Return heads of queries by the head of keys that they share."""
    return x.view(heads, len(x) // heads, *x.shape[1:])


def wide(x: Tensor) -> Tensor:
    """Return a tensor in the precision of sums."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
