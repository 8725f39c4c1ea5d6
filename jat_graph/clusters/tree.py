"""The tree over the keys of heads: near keys form clusters, near clusters groups, and so on."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.kernels.compiling import choose as pick

VARY, PART = 2, 3  # rounds towards where keys vary most, and to between the means of halves
FAN = 4  # nodes that make one of the next level, and blocks of a level one of its blocks
LEVELS = 4  # at most
LEAN = 4.0  # by how many spreads the best key of a node may be above its mean
SINKS = 4  # first tokens, which all tokens read exactly and no cluster holds


class Tree(NamedTuple):
    """Nodes over the complete segments of one sequence: a function of its keys alone.

    Without causal order each cluster is a segment. All clusters have as many keys, all groups four
    clusters, and so on. Children of clusters are keys, counted from the first that is no sink.
    """

    members: tuple[Tensor, ...]  # children of each level's nodes, int32 [Hkv, nodes, children]
    segment: int  # keys that are clustered together
    nodes: int  # clusters of a segment, and nodes of each block of a higher level

    @property
    def clusters(self) -> int:
        """Number of clusters that it holds."""
        return self.members[0].size(1) if self.members else 0

    @property
    def segments(self) -> int:
        """Number of segments that it holds."""
        return self.clusters // self.nodes

    def keys(self, level: int) -> int:
        """Return how many keys each node of a level has; clusters are of level 0."""
        return self.segment // self.nodes * int(FAN**level)

    def owner(self, level: int) -> Tensor:
        """Return which node holds each child of a level, int64 ``[Hkv, children]``."""
        own = self.members[level]
        node = torch.arange(own.size(1), device=own.device).view(1, -1, 1).expand(own.shape)
        found = own.new_empty(len(own), own[0].numel(), dtype=torch.long)
        return found.scatter_(1, own.flatten(1).long(), node.flatten(1))

    def crop(self, segments: int) -> Tree:
        """Return the tree of the first segments alone."""
        blocks = [min(segments, self.segments) // FAN**level for level in range(len(self.members))]
        pairs = zip(self.members, blocks, strict=True)
        return self._replace(
            members=tuple(own[:, : number * self.nodes] for own, number in pairs if number)
        )

    def spans(self, seen: int, top: int) -> list[tuple[int, int]]:
        """Return which nodes of each level a token scores first.

        They are all of the highest, the first with no more than ``top`` nodes, and of each level
        below the last ones, which no node of the next level holds yet.

        Args:
            seen: How many clusters the token sees, the first of all.
            top: How many nodes the highest level has at most, unless it is the last.

        Returns:
            The first of these nodes and the end of them, from clusters on.
        """
        spans, stop, segments = list[tuple[int, int]](), seen, seen // self.nodes
        while stop > top and len(spans) + 1 < LEVELS and segments >= FAN ** (len(spans) + 1):
            above = segments // FAN ** (len(spans) + 1)
            spans.append((above * self.nodes * FAN, stop))
            stop = above * self.nodes
        return [*spans, (0, stop)] if stop else []


def new_tree(size: int, segment: int) -> Tree:
    """Return the tree of no keys, whose clusters will have so many, or refuse such segments."""
    nodes = segment // size
    if nodes < 1 or nodes * size != segment or nodes & (nodes - 1):  # no halving makes clusters
        raise ValueError(
            f"segment must be size, {size}, times a power of two, as {size * 32}, got {segment}"
        )
    return Tree((), segment, nodes)


@torch.no_grad()
def grow(tree: Tree, key: Tensor) -> Tree:  # of all tokens, [Hkv, n, D]
    """Return the tree of all complete segments, the first of which a tree holds already.

    Keys of a segment are clustered when it is complete, the clusters of four segments when these
    are, and so on: by halves, and halves of these, until all have the size that is wanted.
    """
    segments, number = max(0, key.size(1) - SINKS) // tree.segment, len(key)
    wanted = [segments // FAN**level for level in range(LEVELS) if segments >= FAN**level]
    known = [own.size(1) // tree.nodes for own in tree.members]  # blocks
    known += [0] * (len(wanted) - len(known))
    grows = [level for level, blocks in enumerate(wanted) if blocks > known[level]]
    if not grows:
        return tree
    first = known[grows[-1]] * FAN ** grows[-1]  # segment, before which nothing is needed
    x = key[:, SINKS + first * tree.segment : SINKS + segments * tree.segment]
    x = x.to(torch.promote_types(key.dtype, torch.float32))
    members, device = list(tree.members), key.device
    halve = pick(device, _halve_torch, _halve_numba, _halve_torch, slow=True)
    for level in range(grows[-1] + 1):
        start, children = first // FAN**level, tree.nodes * FAN if level else tree.segment
        new = known[level] - start
        x = x[:, : (wanted[level] - start) * children].unflatten(1, (-1, children))
        order = halve(x[:, new:].flatten(0, 1), tree.nodes)
        order = order.view(number, -1, tree.nodes, children // tree.nodes)
        before = torch.arange(known[level], wanted[level], device=key.device, dtype=torch.int32)
        made = (order + (before * children).view(-1, 1, 1)).flatten(1, 2)
        members[level : level + 1] = [torch.cat([*members[level : level + 1], made], dim=1)]
        own = members[level][:, start * tree.nodes :] - start * children
        x = pooled(own, x.flatten(1, 2))
    return tree._replace(members=tuple(members))


@torch.no_grad()
def grow_whole(size: int, key: Tensor) -> Tree:  # [Hkv, n, D]
    """Return the tree of a sequence in no order, all keys of which are halved together.

    They are in runs of as many clusters as powers of two are, the largest first; four neighbours of
    a level, which are quarters of the same keys, make a node of the next.
    """
    made, start, left = list[Tensor](), 0, max(0, key.size(1) - SINKS) // size
    halve = pick(key.device, _halve_torch, _halve_numba, _halve_torch, slow=True)
    while left > 0:
        nodes = 2 ** (left.bit_length() - 1)
        x = key[:, SINKS + start : SINKS + start + nodes * size]
        order = halve(x.to(torch.promote_types(x.dtype, torch.float32)), nodes)
        made.append(order.view(-1, nodes, size) + start)
        start, left = start + nodes * size, left - nodes
    members = [torch.cat(made, dim=1)] if made else []
    while members and len(members) < LEVELS and members[-1].size(1) >= FAN:
        own = torch.arange(members[-1].size(1) // FAN * FAN, device=key.device, dtype=torch.int32)
        members.append(own.view(1, -1, FAN).expand(len(key), -1, -1))
    return Tree(tuple(members), size, 1)


def pooled(members: Tensor, x: Tensor) -> Tensor:  # [Hkv, nodes, children], [Hkv, children, D]
    """Return the means of nodes, [Hkv, nodes, D], of what their children have."""
    first = torch.arange(len(x), device=x.device).view(-1, 1, 1) * x.size(1)
    rows = (members + first).flatten(0, 1)
    means = F.embedding_bag(rows, x.reshape(-1, x.size(-1)), mode="mean")
    return means.view(*members.shape[:2], -1)


def _halve_torch(x: Tensor, nodes: int) -> Tensor:  # [blocks, children, D]
    """Return the children of each block, int32 [blocks, children], those of a node in a row."""
    order = torch.arange(x.size(1), device=x.device).expand(x.shape[:2])
    for parts in (2**power for power in range(nodes.bit_length() - 1)):
        index = order.unsqueeze(-1).expand(x.shape)
        own = x.gather(1, index).view(len(x) * parts, -1, x.size(-1))
        higher = _higher(own)
        higher = (higher == higher[:, :1]).sort(dim=1, descending=True, stable=True).indices
        order = order.reshape(len(own), -1).gather(1, higher).view(order.shape)
    return order.int()


def _higher(x: Tensor) -> Tensor:  # [parts, children, D]
    """Return which children of each part are in its first half: bool [parts, children]."""
    mean = x.mean(1, keepdim=True)
    farthest = (x - mean).square().sum(-1).argmax(1)
    way = x[torch.arange(len(x), device=x.device), farthest].unsqueeze(1) - mean
    for turn in range(VARY + PART + 1):
        along = (way @ x.mT).squeeze(1)
        best = along.sort(dim=1, descending=True, stable=True).indices[:, : x.size(1) // 2]
        higher = torch.zeros_like(along, dtype=torch.bool).scatter_(1, best, True)
        along = along - along.mean(1, keepdim=True)
        weight = along if turn < VARY else higher.to(x.dtype) * 2 - 1
        way = weight.unsqueeze(1) @ x
        way = way / way.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    return higher


def _halve_numba(x: Tensor, nodes: int) -> Tensor:
    from jat_graph.clusters.cpu.loops import halve

    order = x.new_empty(x.shape[:2], dtype=torch.int32)
    halve(x.contiguous().numpy(), nodes, (VARY, PART), order.numpy())
    return order


def spread_gradients(tree: Tree, grads: list[Tensor]) -> Tensor:  # [Hkv, nodes, D]
    """Return what comes to the keys of a tree of the gradients of its nodes' means."""
    come = grads[-1]
    for level in reversed(range(len(tree.members))):
        own = tree.members[level]
        share = (come / own.size(2)).repeat_interleave(own.size(2), dim=1)
        index = own.flatten(1).long().unsqueeze(-1).expand(share.shape)
        come = torch.empty_like(share).scatter_(1, index, share)
        if level:  # what belongs to no node of the level above ends the level below
            below = grads[level - 1].clone()
            below[:, : come.size(1)] += come
            come = below
    return come


def node_of_keys(tree: Tree, level: int) -> Tensor:  # int64 [Hkv, keys]
    """Return which node of a level holds each of its keys, counted from behind the sinks."""
    found = tree.owner(0)
    for number in range(1, level + 1):
        owner = tree.owner(number)
        found = owner.gather(1, found[:, : owner.size(1) * tree.keys(number - 1)])
    return found
