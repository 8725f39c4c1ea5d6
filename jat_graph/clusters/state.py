"""What one sequence leaves behind for its next tokens, beside keys and values in a cache."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.clusters.attend import kernel_for
from jat_graph.clusters.choice import Nodes, Rule, empty_choice, wide
from jat_graph.clusters.tree import FAN, SINKS, Tree, grow, new_tree, node_means

FEW = 32  # tokens at a time, for which the means of all clusters are not worth their time


class Kept(NamedTuple):
    """A tree, the means of its groups, and of the last clusters, which no group holds yet.

    It is a function of keys and values alone: what is missing is computed from them again.
    """

    tree: Tree
    nodes: Nodes | None = None

    def crop(self, length: int) -> Kept:
        """Return what the first tokens alone leave behind."""
        segments = max(0, length - SINKS) // self.tree.segment
        return Kept(self.tree.crop(segments)) if segments < self.tree.segments else self

    def follow(self, key: Tensor, value: Tensor, last: int, held: int) -> Kept:
        """Return what is left behind by keys of which the next tokens see so many segments."""
        tree, old = grow(self.tree, key[:, : SINKS + last * self.tree.segment]), self.nodes
        if old is not None and tree is self.tree and old.held == held:
            return self
        sizes = [level.sizes.size(1) for level in tree.levels]
        known = [] if old is None else [x.size(1) for x in old.keys]
        known += [0] * (len(sizes) - len(known))
        grown = max((n for n in range(1, len(sizes)) if sizes[n] > known[n]), default=0)
        start = min(known[grown] * FAN**grown, held) if grown else held
        start = start // tree.nodes // FAN**grown * FAN**grown  # where blocks of all these begin
        inside = slice(SINKS + start * tree.segment, SINKS + tree.segments * tree.segment)
        part = tree._replace(levels=tree.levels[: grown + 1])
        found = list[list[Tensor]]()
        for x, before in zip((key, value), ([], []) if old is None else old[:2], strict=True):
            means = node_means(part, wide(x[:, inside]), start)
            above = [*before[1:], *[x[:, :0]] * len(sizes)]  # of each level what there is
            for number in range(1, grown + 1):
                new = means[number][:, known[number] - start // FAN**number * tree.nodes :]
                above[number - 1] = torch.cat([*before[number : number + 1], new], dim=1)
            tail = means[0][:, held - start * tree.nodes :].contiguous()
            found.append([tail, *above[: len(sizes) - 1]])
        bias = [level.sizes.to(found[0][0].dtype).log() for level in tree.levels]
        return Kept(tree, Nodes(found[0], found[1], bias, held, {}))


def read_next(
    query: Tensor,  # of the last T tokens, [H, T, D]
    key: Tensor,  # of all, [Hkv, n, D]
    value: Tensor,  # [Hkv, n, Dv]
    rule: Rule,
    scale: float,
    kept: Kept | None = None,  # what the tokens before them left behind
) -> tuple[Tensor, Kept]:  # [H, T, Dv]
    """Return what the last tokens of a sequence read, and what all leave behind."""
    kept = Kept(new_tree(rule.size, rule.segment)) if kept is None else kept
    own, number, pair = wide(query) * scale, key.size(1), (wide(key), wide(value))
    kernel = kernel_for(key.device)
    many = query.size(1) > FEW or not kernel.partial
    first, last = rule.seen(number - query.size(1)), rule.seen(number - 1)
    spans = kept.tree.spans(last if many else first, rule.top)
    held = spans[0][0] if spans else 0  # cluster from which on there are means
    if many:
        tree = grow(kept.tree, key[:, : SINKS + last * rule.segment])
        nodes = Nodes.of(tree, *pair)
        few = [[x[:, held:].contiguous() for x in part[:1]] + part[1:] for part in nodes[:2]]
        kept = Kept(tree, Nodes(few[0], few[1], nodes.bias, held, {}) if tree.levels else None)
    else:
        kept = kept.follow(*pair, last, held) if last else kept
        tree, nodes = kept.tree, kept.nodes or Nodes([], [], [])
    empty = empty_choice(own, number, tree, rule)
    output, _ = kernel.read(own, *pair, empty, nodes, chosen=False)
    return output.to(value.dtype), kept
