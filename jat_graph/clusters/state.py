"""What one sequence leaves behind for its next tokens, beside keys and values in a cache."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from jat_graph.clusters.attend import kernel_for
from jat_graph.clusters.choice import Nodes, Rule, empty_choice, wide
from jat_graph.clusters.tree import SINKS, Tree, grow, new_tree


class Kept(NamedTuple):
    """A tree and the means of its nodes: a function of keys and values alone."""

    tree: Tree
    nodes: Nodes

    def crop(self, length: int) -> Kept:
        """Return what the first tokens alone leave behind."""
        segments = max(0, length - SINKS) // self.tree.segment
        if segments >= self.tree.segments:
            return self
        tree = self.tree.crop(segments)
        return Kept(tree, self.nodes.crop(tree))


def read_next(
    query: Tensor,  # of the last T tokens, [H, T, D]
    key: Tensor,  # of all, [Hkv, n, D]
    value: Tensor,  # [Hkv, n, Dv]
    rule: Rule,
    scale: float,
    kept: Kept | None = None,  # what the tokens before them left behind
) -> tuple[Tensor, Kept]:  # [H, T, Dv]
    """Return what the last tokens of a sequence read, and what all leave behind."""
    number = key.size(1)
    tree, nodes = kept or Kept(new_tree(rule.size, rule.segment), Nodes([], [], []))
    if (segments := rule.seen(number - 1)) > tree.segments:
        tree = grow(tree, key[:, : SINKS + segments * rule.segment])
        nodes = Nodes.of(tree, key, value, nodes)
    own = wide(query) * scale
    empty = empty_choice(own, number, tree, rule)
    output, _ = kernel_for(key.device).read(own, key, value, empty, nodes, chosen=False)
    return output.to(value.dtype), Kept(tree, nodes)
