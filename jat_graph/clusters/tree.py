"""The tree over the keys of heads: near keys form clusters, near clusters groups, and so on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.core.compiling import choose as pick

VARY, PART = 2, 3  # rounds towards where keys vary most, and to between the means of halves
FAN = 4  # nodes that make one of the next level
LEVELS = 4  # at most
LEAN = 4.0  # by how many spreads the best key of a node may be above its mean
SINKS = 4  # first tokens, which all tokens read exactly and no cluster holds


class Tree(NamedTuple):
    """Nodes over the keys of one sequence: a function of these alone.

    Keys are halved, and halves of them, until all have the size of a cluster; so four clusters in a
    row are the quarters of a part, and make a node of the next level, four of these one more.
    """

    keys: Tensor  # of one cluster after another, from the first that is no sink on, int32 [Hkv, n]
    size: int  # keys of a cluster
    segment: int  # keys that are halved together; 0 where all are

    @property
    def clusters(self) -> int:
        return self.keys.size(1) // self.size

    def crop(self, segments: int) -> Tree:
        """Return the tree of the first segments alone."""
        return self._replace(keys=self.keys[:, : segments * self.segment])


def levels_of(size: int, segment: int) -> int:
    """Return how many levels a tree may have, by the keys of a cluster and of a segment."""
    # Each node is of one segment, which has powers of two as many clusters.
    fours = (segment // size).bit_length() - 1 >> 1 if segment else LEVELS
    return min(LEVELS, fours + 1)


def check_segment(size: int, segment: int) -> None:
    """Refuse segments that no halving makes clusters."""
    nodes = segment // size
    if nodes < 1 or nodes * size != segment or nodes & (nodes - 1):
        wanted = f"size, {size}, times a power of two, as {size * 32}"
        raise ValueError(f"segment must be {wanted}, got {segment}")


@torch.no_grad()
def grow(key: Tensor, size: int, segment: int, known: Tree | None = None) -> Tree:
    """Return the tree of all complete segments of keys, [Hkv, n, D]; one may know the first."""
    if known is None:
        check_segment(size, segment)
        known = Tree(key.new_empty(len(key), 0, dtype=torch.int32), size, segment)
    first = known.keys.size(1)
    stop = max(0, key.size(1) - SINKS) // segment * segment
    if stop <= first:
        return known
    new = _halved(key[:, SINKS + first : SINKS + stop], size, segment)
    return known._replace(keys=torch.cat([known.keys, new + first], dim=1) if first else new)


@torch.no_grad()
def grow_whole(key: Tensor, size: int) -> Tree:  # [Hkv, n, D]
    """Return the tree of a sequence in no order, all keys of which are halved together.

    They are in runs of as many clusters as powers of two are, the largest first.
    """
    parts = [key.new_empty(len(key), 0, dtype=torch.int32)]
    start = SINKS
    while (left := (key.size(1) - start) // size) > 0:
        run = size << left.bit_length() - 1
        parts.append(_halved(key[:, start : start + run], size, run) + (start - SINKS))
        start += run
    return Tree(torch.cat(parts, dim=1), size, 0)


def _halved(x: Tensor, size: int, block: int) -> Tensor:  # [Hkv, n, D] -> int32 [Hkv, n]
    """Return in which order the keys of blocks are clusters of some size."""
    halve = pick(x.device, halve_torch, _halve_numba, halve_triton, slow=True)
    return halve(x.unflatten(1, (-1, block)), block // size).flatten(1)


def halve_torch(blocks: Tensor, nodes: int) -> Tensor:  # [Hkv, blocks, children, D]
    """Return the children of blocks, int32 [Hkv, blocks, children], those of a node in a row."""
    x = blocks.to(torch.promote_types(blocks.dtype, torch.float32)).flatten(0, 1)
    order = torch.arange(x.size(1), device=x.device).expand(x.shape[:2])
    for parts in (2**power for power in range(nodes.bit_length() - 1)):
        index = order.unsqueeze(-1).expand(x.shape)
        own = x.gather(1, index).view(len(x) * parts, -1, x.size(-1))
        higher = _higher(own)
        higher = (higher == higher[:, :1]).sort(dim=1, descending=True, stable=True).indices
        order = order.reshape(len(own), -1).gather(1, higher).view(order.shape)
    starts = torch.arange(0, blocks[0, ..., 0].numel(), blocks.size(2), device=x.device)
    return (order.view(blocks.shape[:3]) + starts.unsqueeze(-1)).int()


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


def _halve_numba(blocks: Tensor, nodes: int) -> Tensor:
    from jat_graph.clusters.cpu.loops import halve

    x = blocks.to(torch.promote_types(blocks.dtype, torch.float32)).contiguous()
    order = torch.empty(x.shape[:3], dtype=torch.int32)
    halve(x.flatten(0, 1).numpy(), nodes, (VARY, PART), order.flatten(0, 1).numpy())
    starts = torch.arange(0, order[0].numel(), order.size(2), dtype=torch.int32)
    return order.add_(starts.unsqueeze(-1))


def halve_triton(blocks: Tensor, nodes: int) -> Tensor:
    """Return the same by Triton, where it can; what is too large for it torch halves first."""
    from jat_graph.clusters.gpu.building import BLOCK, halve, halves

    number = max(1, blocks.size(2) // BLOCK)
    if not halves(blocks[:, :, :BLOCK], nodes // number) or blocks.size(2) % number:
        return halve_torch(blocks, nodes)
    if number == 1:
        return halve(blocks, nodes, (VARY, PART))
    outer = halve_torch(blocks, number).flatten(1)
    index = outer.long().unsqueeze(-1).expand(*outer.shape, blocks.size(-1))
    parts = blocks.flatten(1, 2).gather(1, index).unflatten(1, (-1, BLOCK))
    inner = halve(parts, nodes // number, (VARY, PART)).flatten(1)
    return outer.gather(1, inner.long()).view(blocks.shape[:3])


def spread_gradients(tree: Tree, grads: list[Tensor]) -> Tensor:  # [Hkv, nodes, D]
    """Return what comes to the keys of a tree of the gradients of its nodes' means."""
    come = grads[-1]
    for below in reversed(grads[:-1]):
        parts = below.clone()  # of which the last may be in no node of the level above
        parts[:, : come.size(1) * FAN] += come.repeat_interleave(FAN, dim=1) / FAN
        come = parts
    come = (come / tree.size).repeat_interleave(tree.size, dim=1)
    return torch.empty_like(come).scatter_(1, tree.keys.long().unsqueeze(-1).expand_as(come), come)


def cluster_of_keys(tree: Tree) -> Tensor:  # int64 [Hkv, keys]
    """Return which cluster holds each key, counted from behind the sinks."""
    cluster = torch.arange(tree.keys.size(1), device=tree.keys.device) // tree.size
    keys = tree.keys.long()
    return torch.empty_like(keys).scatter_(1, keys, cluster.expand_as(keys))
