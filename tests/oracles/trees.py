"""Trees of keys: near keys form clusters, near clusters groups, and every token descends alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class ReferenceLevel(NamedTuple):
    """The nodes of one size, block by block; the lowest level's children are keys.

    Shapes:
        - members: bool ``[nodes, n]``, the keys of each node.
        - owner: long ``[children]``, the node that holds each child.
    """

    members: Tensor
    owner: Tensor


def tree_means(members: Tensor, x: Tensor) -> Tensor:
    r"""Return :math:`\bar x_a`, the mean over the keys of each node; 0 for a node without keys.

    Shapes:
        - members: bool ``[nodes, n]``
        - x: ``[n, D]``
        - output: ``[nodes, D]``

    Reference:
        PyG's ``avg_pool``.
    """
    return members.to(x.dtype) @ x / members.sum(dim=1, keepdim=True).clamp(min=1)


def tree_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the points of the half that has the first one, and of the other half, in order.

    .. math::
        P = \{ p : \text{of the half with the largest } w \cdot x_p \}, \qquad
        w_0 = x_f - \bar x, \qquad
        w_{t+1} = \sum_p (w_t \cdot (x_p - \bar x)) \, x_p \;\; (t < 2), \quad
        \sum_{p \in P_t} x_p - \sum_{p \notin P_t} x_p \;\; (t < 5)

    with f the point that is farthest from the mean. Of equal points the first come first.

    Shapes:
        - x: ``[n, D]``, n even
        - output: long ``[n / 2]`` each

    Reference:
        This library; power iteration, and balanced 2-means.
    """
    mean = x.mean(dim=0)
    way = x[(x - mean).square().sum(dim=1).argmax()] - mean
    for turn in range(6):
        along = x @ way
        order = along.argsort(descending=True, stable=True)
        first, other = order[: len(x) // 2].sort().values, order[len(x) // 2 :].sort().values
        if turn < 2:
            way = (x * (along - along.mean())[:, None]).sum(dim=0)
        else:
            way = x[first].sum(dim=0) - x[other].sum(dim=0)
        way = way / way.abs().max().clamp(min=1e-300)
    return (first, other) if first[0] == 0 else (other, first)


def tree_parts(x: Tensor, number: int) -> list[Tensor]:
    """Return the points of each part, ``[n / number]``, halves of halves, in order.

    Shapes:
        - x: ``[n, D]``

    Reference:
        This library.
    """
    parts = [torch.arange(len(x))]
    while len(parts) < number:
        parts = [part[half] for part in parts for half in tree_halves(x[part])]
    return parts


def tree_levels(
    key: Tensor, size: int, segment: int, whole: int | None = None
) -> list[ReferenceLevel]:
    r"""Return the tree over the complete segments behind the first four keys, lowest level first.

    The keys of a segment form :math:`c = \mathrm{segment} / \mathrm{size}` clusters; the 4c nodes
    of four neighbouring blocks form c nodes of the next level by their mean keys; there are four
    levels at most.

    In no order the ``whole`` first keys are in clusters, but for the last few, in runs of as many
    clusters as powers of two are, the largest first; and four neighbours of a level form one node
    of the next.

    Shapes:
        - key: ``[n, D]``

    Reference:
        This library.
    """
    nodes, key = segment // size, key.detach()
    inside = torch.eye(len(key), dtype=torch.bool)[4:]
    if whole is not None:
        return _levels_of_all(key, inside[: max(0, whole - 4)], size)
    children, levels = segment, list[ReferenceLevel]()
    while len(inside) >= children and len(levels) < 4:
        members, owners = list[Tensor](), torch.zeros(0, dtype=torch.long)
        for block in inside[: len(inside) // children * children].split(children):
            owner = torch.zeros(children, dtype=torch.long)
            for part in tree_parts(tree_means(block, key), nodes):
                owner[part] = len(members)
                members.append(block[part].any(dim=0))
            owners = torch.cat([owners, owner])
        levels.append(ReferenceLevel(torch.stack(members), owners))
        inside, children = levels[-1].members, 4 * nodes
    return levels


def _levels_of_all(key: Tensor, inside: Tensor, size: int) -> list[ReferenceLevel]:
    members, owner = [inside[:0]], torch.zeros(0, dtype=torch.long)
    while len(inside) >= size:
        number = 2 ** int(math.log2(len(inside) // size))
        own = torch.zeros(number * size, dtype=torch.long)
        for part in tree_parts(tree_means(inside[: number * size], key), number):
            own[part] = len(members) - 1
            members.append(inside[part].any(dim=0)[None])
        owner, inside = torch.cat([owner, own]), inside[number * size :]
    levels = [ReferenceLevel(torch.cat(members), owner)] if len(owner) else []
    while levels and len(levels) < 4 and len(below := levels[-1].members) >= 4:
        four = below[: len(below) // 4 * 4].view(-1, 4, len(key)).any(dim=1)
        levels.append(ReferenceLevel(four, torch.arange(len(four) * 4) // 4))
    return levels


def tree_sizes(seen: int, nodes: int, top: int) -> list[int]:
    r"""Return how many nodes of each level stand for so many clusters, with ``nodes`` a block.

    Above a level with more than ``top`` nodes is another one, if it has a complete block, up to the
    fourth.

    Reference:
        This library.
    """
    sizes = [seen] if seen else []
    while sizes and sizes[-1] > top and len(sizes) < 4 and seen // nodes >= 4 ** len(sizes):
        sizes.append(seen // nodes // 4 ** len(sizes) * nodes)
    return sizes


@torch.no_grad()
def tree_descent(
    query: Tensor, key: Tensor, levels: list[ReferenceLevel], sizes: list[int], best: list[int],
    margin: float,
) -> Tensor:  # fmt: skip
    r"""Return the nodes at which a token stops; of the other keys it reads each by itself.

    It meets the first ``sizes`` nodes of each level, but for the children of those of the next
    level. From the highest down it opens the ``best`` many of the nodes that it met and of the
    children of those it opened; at the lowest it reads them. Best are those with the highest

    .. math::
        r_{ia} = q_i \cdot \bar k_a
        + 4 |q_i| \sqrt{\frac{1}{D n_a} \sum_{j \in a} |k_j - \bar k_a|^2}

    of which none counts that is more than ``margin`` below :math:`q_i \cdot k_j` of a key in no
    node, or :math:`q_i \cdot \bar k_a + \log n_a` of a node that it met.

    Shapes:
        - query: ``[D]``, scaled
        - key: ``[n, D]``, up to the token's own
        - output: bool ``[nodes, n]``, the keys of each

    Reference:
        This library; Barnes–Hut (1986) with the opening decided by score.
    """
    held = [4 * size for size in sizes[1:]] + [0]
    nodes = [own.members[:size, : len(key)] for own, size in zip(levels, sizes, strict=False)]
    scores = [tree_means(members, key) @ query for members in nodes]
    met = [(s + m.sum(1).log())[first:] for s, m, first in zip(scores, nodes, held, strict=False)]
    alone = ~torch.cat([*nodes, torch.zeros(1, len(key)).bool()]).any(dim=0)
    least = torch.cat([(key @ query)[alone], *met]).max() - margin
    stopped, opened = [torch.zeros(0, len(key), dtype=torch.bool)], torch.zeros(0)
    for level in reversed(range(len(sizes))):
        members, asked = nodes[level], torch.arange(sizes[level]) >= held[level]
        if held[level]:
            asked[: held[level]] = opened[levels[level + 1].owner[: held[level]]]
        away = (key - tree_means(members, key)[:, None]).square().sum(dim=-1)
        away = (away * members).sum(dim=1) / members.sum(dim=1) / key.shape[1]
        rank = scores[level] + 4 * query.norm() * away.sqrt()
        fit = asked & (rank >= least)
        order = rank.masked_fill(~fit, -math.inf).argsort(descending=True, stable=True)
        opened = torch.zeros_like(fit).index_fill(0, order[: best[level]], True) & fit
        stopped.append(members[asked & ~opened])
    return torch.cat(stopped)


def tree_output(query: Tensor, key: Tensor, value: Tensor, stopped: Tensor, rest: bool) -> Tensor:
    r"""Return the head of a token that stops at some nodes; without ``rest`` it reads none of them.

    .. math::
        \mathrm{softmax}(q_i \cdot (P k)_j)_j \, V, \qquad
        (P k)_j = \bar k_a \;\; (j \in a), \;\; k_j \text{ where it stops at no node}

    Shapes:
        - query: ``[D]``, scaled
        - key: ``[n, D]``, up to the token's own
        - value: ``[n, Dv]``
        - stopped: bool ``[nodes, n]``
        - output: ``[Dv]``

    Reference:
        This library; graph convolution of keys on a coarsened graph.
    """
    coarse = stopped.any(dim=0)
    means = stopped.T.to(key.dtype) @ tree_means(stopped, key)
    scores = torch.where(coarse[:, None], means, key) @ query
    return scores.masked_fill(coarse & (not rest), -math.inf).softmax(dim=-1) @ value


def reference_tree_attention(
    query: Tensor, key: Tensor, value: Tensor, *, sequence: Tensor | None = None,
    scale: float | None = None, keys: int = 384, groups: int = 32, size: int = 8,
    segment: int = 512, window: int = 64, dense_below: int = 0, rest: bool = True,
    margin: float = 4.0, top: int | None = None, causal: bool = True,
    everywhere: Tensor | None = None,
) -> Tensor:  # fmt: skip
    r"""Return attention by trees, token by token; what is in no sequence gets 0.

    The token of rank i sees :math:`\lfloor (i - 3 - \mathrm{window}) / \mathrm{segment} \rfloor`
    segments, none below ``dense_below``. It reads the :math:`\lceil \mathrm{keys} / \mathrm{size}
    \rceil` best clusters exactly, and what lies before and behind these segments. Choices are
    constants for the gradient. Each sequence is on its own; grouped heads share keys.

    Without causal order all tokens read all keys and see all clusters, which are of the keys behind
    segments, too; ``window`` tokens, those of ``everywhere`` or else the last ones, come last and
    see none.

    Shapes:
        - query: ``[B, H, L, D]``
        - key: ``[B, G, L, D]``
        - value: ``[B, G, L, Dv]``
        - sequence: long ``[B, L]``, a number for each sequence, below 0 for padding
        - everywhere: bool ``[B, L]``
        - output: ``[B, H, L, Dv]``

    Reference:
        This library.
    """
    batch, heads, length, width = query.shape
    scale = width**-0.5 if scale is None else scale
    top = 32 * groups if top is None else top
    if sequence is None:
        sequence = torch.zeros(batch, length, dtype=torch.long)
    output = query.new_zeros(batch, heads, length, value.shape[-1])
    for b in range(batch):
        for number in sequence[b].unique().tolist():
            own = (sequence[b] == number).nonzero().squeeze(-1)  # [n]
            if everywhere is not None:
                own = torch.cat([own[~everywhere[b, own]], own[everywhere[b, own]]])
                window = int(everywhere[b, own].sum())
            for h in range(heads if number >= 0 else 0):
                g = h * key.shape[1] // heads
                q, k, v = scale * query[b, h, own], key[b, g, own], value[b, g, own]
                whole = None if causal else len(own) - window
                nodes = max(1, segment // size) if causal else 1
                levels, rows = tree_levels(k, size, segment, whole), []
                best = [-(-keys // size)] + [groups] * len(levels)
                for token in range(len(own)):
                    last = token if causal else len(own) - 1
                    later = max(0, last - 3 - window)
                    seen = later // segment * nodes if causal else later // size
                    if last < dense_below or (not causal and token >= len(own) - window):
                        seen = 0
                    sizes = tree_sizes(seen, nodes, top)
                    own_k, own_v = k[: last + 1], v[: last + 1]
                    stopped = tree_descent(q[token], own_k, levels, sizes, best, margin)
                    rows.append(tree_output(q[token], own_k, own_v, stopped, rest))
                output[b, h, own] = torch.stack(rows)
    return output
