"""The tree over the keys of heads: near keys form clusters, near clusters groups, and so on."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.clusters.loops import move_centres
from jat_graph.kernels.compiling import choose as pick

ROUNDS = 5  # of k-means
FAN = 4  # blocks of a level that make one of the next
SINKS = 4  # first tokens, which all tokens read exactly and no cluster holds


class Level(NamedTuple):
    """Nodes of one size, block by block: clusters of keys, groups of clusters, and so on."""

    owner: Tensor  # the node of its block that a child is in, int32 [Hkv, children]
    members: Tensor  # children by node, int32 [Hkv, children]
    starts: Tensor  # where those of each node begin, int32 [Hkv, nodes + 1]
    sizes: Tensor  # keys in each node, int32 [Hkv, nodes]


class Tree(NamedTuple):
    """Levels of nodes over the complete segments of one sequence: a function of its keys alone.

    Children of the lowest level are keys, counted from the first that is no sink.
    """

    levels: tuple[Level, ...]
    segment: int  # keys that are clustered together
    nodes: int  # clusters of a segment, and nodes of each block of a higher level

    @property
    def segments(self) -> int:
        """Number of segments that it holds."""
        return self.levels[0].sizes.size(1) // self.nodes if self.levels else 0

    def children(self, level: int) -> int:
        """Return how many children a block of a level has.

        Args:
            level: 0 for clusters, whose children are keys.

        Returns:
            Their number.
        """
        return self.nodes * FAN if level else self.segment

    def crop(self, segments: int) -> Tree:
        """Return the tree of the first segments alone.

        Args:
            segments: How many of them.

        Returns:
            The tree.
        """
        levels = []
        for number, level in enumerate(self.levels):
            blocks = min(segments, self.segments) // FAN**number
            ends = [blocks * self.children(number)] * 2 + [blocks * self.nodes + 1]
            ends.append(blocks * self.nodes)
            parts = zip(level, ends, strict=True)
            levels += [Level(*(x[:, :end].contiguous() for x, end in parts))] * bool(blocks)
        return self._replace(levels=tuple(levels))

    def spans(self, seen: int, top: int) -> list[tuple[int, int]]:
        """Return which nodes of each level a token scores first.

        They are all of the highest, the first with no more than ``top`` nodes, and of each level
        below the last ones, which no node of the next level holds yet.

        Args:
            seen: How many segments the token sees.
            top: How many nodes the highest level has at most, unless it is the last.

        Returns:
            The first of these nodes and the end of them, from clusters on.
        """
        spans, stop = list[tuple[int, int]](), seen * self.nodes
        while stop > top and (above := seen // FAN ** (len(spans) + 1)):
            spans.append((above * self.nodes * FAN, stop))
            stop = above * self.nodes
        return [*spans, (0, stop)] if stop else []


def new_tree(size: int, segment: int) -> Tree:
    """Return the tree of no keys, whose clusters will have so many on average."""
    return Tree((), segment, max(1, segment // size))


@torch.no_grad()
def grow(tree: Tree, key: Tensor) -> Tree:  # of all tokens, [Hkv, n, D]
    """Return the tree of all complete segments, the first of which a tree holds already.

    Keys of a segment are clustered when it is complete, the clusters of four segments when these
    are, and so on: by k-means with plain distances that starts at even positions.
    """
    segments, number = max(0, key.size(1) - SINKS) // tree.segment, len(key)
    known = [level.sizes.size(1) // tree.nodes for level in tree.levels]  # blocks
    wanted = list[int]()
    while blocks := segments // FAN ** len(wanted):
        wanted.append(blocks)
    known += [0] * (len(wanted) - len(known))
    grows = [level for level, blocks in enumerate(wanted) if blocks > known[level]]
    if not grows:
        return tree
    first = known[grows[-1]] * FAN ** grows[-1]  # segment, before which nothing is needed
    x = key[:, SINKS + first * tree.segment : SINKS + segments * tree.segment]
    x = x.to(torch.promote_types(key.dtype, torch.float32))
    weight, levels = x.new_ones(x.shape[:2]), list(tree.levels)
    for level in range(grows[-1] + 1):
        start, children = first // FAN**level, tree.children(level)
        shape, new = (number, wanted[level] - start, children), known[level] - start
        used = shape[1] * children
        x, weight = x[:, :used].view(*shape, -1), weight[:, :used].view(shape)
        owner = _cluster(x[:, new:], weight[:, new:], tree.nodes)
        if new:
            before = levels[level].owner[:, start * children :].view(number, new, children)
            owner = torch.cat([before, owner], dim=1)
        x, weight = _pool(x, weight, owner, tree.nodes)
        made = _level(owner[:, new:], weight[:, new * tree.nodes :], known[level])
        levels[level : level + 1] = [_joined(levels[level], made) if known[level] else made]
    return tree._replace(levels=tuple(levels))


def _cluster(x: Tensor, weight: Tensor, nodes: int) -> Tensor:  # [Hkv, blocks, children, D]
    """Return which node of its block each child is in; what weighs nothing moves none."""
    some = weight > 0
    inside = some.unsqueeze(-1).to(x.dtype)
    x = (x - (x * inside).sum(2, keepdim=True) / inside.sum(2, keepdim=True)) * inside
    move = pick(x.device, _round, _round_numba, _round, slow=True)
    x = x.contiguous()  # keys of models are not, and loops write to the centres in place
    centres = x[:, :, torch.arange(nodes, device=x.device) * x.size(2) // nodes].contiguous()
    for _ in range(ROUNDS):
        owner, centres = move(x, some, centres)
    return owner.int()


def _round(x: Tensor, some: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest centre of each child, and the means of these."""
    distances = centres.square().sum(-1).unsqueeze(2) / 2 - x @ centres.mT
    owner = distances.argmin(-1)
    inside = F.one_hot(owner, centres.size(2)).to(x.dtype) * some.unsqueeze(-1)
    count = inside.sum(2).unsqueeze(-1)
    return owner, torch.where(count > 0, inside.mT @ x / count.clamp(min=1), centres)


def _round_numba(x: Tensor, some: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    owner = x.new_empty(x.shape[:3], dtype=torch.int32)
    parts = (x @ centres.mT, x, some, centres, owner)
    move_centres(*(part.flatten(0, 1).numpy() for part in parts))
    return owner, centres


def _pool(x: Tensor, weight: Tensor, owner: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Return the means of nodes, [Hkv, blocks · nodes, D], and how many keys are in each."""
    inside = F.one_hot(owner.long(), nodes).to(x.dtype) * weight.unsqueeze(-1)
    sizes = inside.sum(2)
    means = inside.mT @ x / sizes.clamp(min=1).unsqueeze(-1)
    return means.flatten(1, 2), sizes.flatten(1, 2)


def _level(owner: Tensor, sizes: Tensor, before: int) -> Level:
    """Return some blocks of a level, so many others being before them."""
    _, blocks, children = owner.shape
    nodes = sizes.size(1) // blocks
    offset = torch.arange(before, before + blocks, device=owner.device).view(-1, 1)
    members = owner.sort(dim=-1, stable=True).indices + offset * children
    count = F.one_hot(owner.long(), nodes).sum(2).flatten(1)
    starts = F.pad(count.cumsum(1), (1, 0)) + before * children
    return Level(owner.flatten(1), members.flatten(1).int(), starts.int(), sizes.int())


def _joined(one: Level, other: Level) -> Level:
    starts = torch.cat([one.starts, other.starts[:, 1:]], dim=1)
    owner, members, sizes = (
        torch.cat([getattr(x, name) for x in (one, other)], dim=1)
        for name in ("owner", "members", "sizes")
    )
    return Level(owner, members, starts, sizes)


def node_means(tree: Tree, x: Tensor, first: int = 0) -> list[Tensor]:  # [Hkv, T, D]
    """Return the means of each level's nodes, [Hkv, nodes, D], of what its keys have.

    ``x`` begins at a segment, at which a block of each level begins, too; so do the means.
    """
    means, weight = list[Tensor](), x.new_ones(x.shape[:2])
    for number, level in enumerate(tree.levels):
        children, start = tree.children(number), first // FAN**number
        blocks = level.sizes.size(1) // tree.nodes - start
        shape, used = (len(x), blocks, children), blocks * children
        owner = level.owner[:, start * children :].view(shape)
        parts = x[:, :used].view(*shape, x.size(-1)), weight[:, :used].view(shape)
        x, weight = _pool(*parts, owner, tree.nodes)
        means.append(x)
    return means


def spread_gradients(tree: Tree, grads: list[Tensor]) -> Tensor:  # [Hkv, T, D]
    """Return what comes to the keys of a tree of the gradients of its nodes' means."""
    heads, come = len(grads[0]), None
    for number in reversed(range(len(tree.levels))):
        level, grad = tree.levels[number], grads[number]
        if come is not None:  # of the means above
            grad = grad.clone()
            sizes = level.sizes[:, : come.size(1), None]
            grad[:, : come.size(1)] += come * sizes
        block = torch.arange(level.owner.size(1), device=grad.device) // tree.children(number)
        index = (level.owner.long() + block * tree.nodes).unsqueeze(-1)
        share = grad / level.sizes.clamp(min=1).unsqueeze(-1)
        come = share.gather(1, index.expand(heads, -1, grad.size(-1)))
    assert come is not None
    return come


def node_of_keys(tree: Tree, level: int) -> Tensor:  # int32 [Hkv, keys]
    """Return which node of a level holds each of its keys, counted from behind the sinks."""
    found = list[Tensor]()
    for number, own in enumerate(tree.levels[: level + 1]):
        children = tree.children(number)
        block = torch.arange(own.owner.size(1), device=own.owner.device) // children
        node = own.owner + block.int() * tree.nodes
        keys = own.owner.size(1) // children * FAN**number * tree.segment
        found.append(node.gather(1, found[-1][:, :keys].long()) if number else node)
    return found[-1]
