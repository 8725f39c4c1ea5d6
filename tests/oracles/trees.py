"""Trees of keys: near keys form clusters, near clusters groups, and every token descends alone."""

import math

import torch
from torch import Tensor


def tree_means(members: Tensor, x: Tensor) -> Tensor:
    r"""Return :math:`\bar x_a`, the mean over the keys of each node; 0 for a node without keys.

    Shapes: members bool ``[nodes, n]``; x ``[n, D]``; output ``[nodes, D]``. Reference: PyG's
    ``avg_pool``.
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

    Shapes: x ``[n, D]``, n even; output long ``[n / 2]`` each. Reference: This library; power
    iteration, and balanced 2-means.
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

    Shapes: x ``[n, D]``.
    """
    parts = [torch.arange(len(x))]
    while len(parts) < number:
        parts = [part[half] for part in parts for half in tree_halves(x[part])]
    return parts


def tree_levels(key: Tensor, size: int, segment: int, whole: int | None = None) -> list[Tensor]:
    r"""Return the tree over the complete segments behind the first four keys, clusters first.

    The keys of a segment form :math:`\mathrm{segment} / \mathrm{size}` clusters; four neighbours
    of a segment form one node of the next level, while nobody is left over; there are four levels
    at most.

    In no order the ``whole`` first keys are in clusters, but for the last few, in runs of as many
    clusters as powers of two are, the largest first; and who is left over is in no node.

    Shapes: key ``[n, D]``; output bool ``[nodes, n]`` for each level, the keys of each node.
    """
    key, nodes = key.detach(), list[Tensor]()
    inside = torch.eye(len(key), dtype=torch.bool)[4:whole]
    while len(inside) >= (size if whole is not None else segment):
        run = segment if whole is None else size * 2 ** int(math.log2(len(inside) // size))
        parts = tree_parts(tree_means(inside[:run], key), run // size)
        nodes += [inside[part].any(dim=0) for part in parts]
        inside = inside[run:]
    levels = [torch.stack(nodes)] if nodes else []
    while levels and len(levels) < 4 and len(levels[-1]) >= 4:
        if whole is None and segment // size % 4 ** len(levels):
            break
        four = levels[-1][: len(levels[-1]) // 4 * 4].view(-1, 4, len(key))
        levels.append(four.any(dim=1))
    return levels


def tree_met(levels: list[Tensor], seen: int, top: int) -> list[Tensor]:
    r"""Return the levels that a token descends which sees so many clusters, clusters first.

    Above a level with more than ``top`` nodes is another one, if there is one. The last few
    clusters that are in no node of the highest are left out.
    """
    for _ in range(2):  # the clusters that are left may be few enough for a lower level
        met = next((n for n in range(len(levels)) if seen // 4**n <= top), len(levels) - 1)
        seen = seen // 4**met * 4**met if levels else 0
    return [nodes[: seen // 4**n] for n, nodes in enumerate(levels[: met + 1]) if seen]


@torch.no_grad()
def tree_descent(
    query: Tensor, key: Tensor, levels: list[Tensor], best: list[int], margin: float
) -> Tensor:
    r"""Return the nodes at which a token stops; of the other keys it reads each by itself.

    It meets the nodes of the last of the levels. From there down it opens the ``best`` many of the
    nodes that it met or that are in those it opened; of the first level it reads them. Best are
    those with the highest

    .. math::
        r_{ia} = q_i \cdot \bar k_a
        + 4 |q_i| \sqrt{\frac{1}{D n_a} \sum_{j \in a} |k_j - \bar k_a|^2}

    of which none counts that is more than ``margin`` below :math:`q_i \cdot k_j` of a key in no
    node, or :math:`q_i \cdot \bar k_a + \log n_a` of a node that it met.

    Shapes: query ``[D]``, scaled; key ``[n, D]``, up to the token's own; levels bool ``[nodes,
    n]`` each, without nodes that it does not see; output bool ``[nodes, n]``, the keys of each.
    Reference: This library; Barnes–Hut (1986) with the opening decided by score.
    """
    scores = [tree_means(members, key) @ query for members in levels]
    alone = ~torch.cat([*levels, torch.zeros(1, len(key)).bool()]).any(dim=0)
    least = (key @ query)[alone]
    if levels:
        least = torch.cat([least, scores[-1] + levels[-1].sum(dim=1).log()])
    least, inside = least.max() - margin, torch.ones(len(key), dtype=torch.bool)
    stopped = [torch.zeros(0, len(key), dtype=torch.bool)]
    for level in reversed(range(len(levels))):
        members = levels[level]
        away = (key - tree_means(members, key)[:, None]).square().sum(dim=-1)
        away = (away * members).sum(dim=1) / members.sum(dim=1) / key.shape[1]
        rank = scores[level] + 4 * query.norm() * away.sqrt()
        asked = (members & inside).any(dim=1)
        fit = asked & (rank >= least)
        order = rank.masked_fill(~fit, -math.inf).argsort(descending=True, stable=True)
        opened = torch.zeros_like(fit).index_fill(0, order[: best[level]], True) & fit
        stopped.append(members[asked & ~opened])
        inside = members[opened].any(dim=0)
    return torch.cat(stopped)


def tree_output(query: Tensor, key: Tensor, value: Tensor, stopped: Tensor, rest: bool) -> Tensor:
    r"""Return the head of a token that stops at some nodes; without ``rest`` it reads none of them.

    .. math::
        \mathrm{softmax}(q_i \cdot (P k)_j)_j \, V, \qquad
        (P k)_j = \bar k_a \;\; (j \in a), \;\; k_j \text{ where it stops at no node}

    Shapes: query ``[D]``, scaled; key ``[n, D]``, up to the token's own; value ``[n, Dv]``;
    stopped bool ``[nodes, n]``; output ``[Dv]``. Reference: This library; graph convolution of
    keys on a coarsened graph.
    """
    coarse = stopped.any(dim=0)
    means = stopped.T.to(key.dtype) @ tree_means(stopped, key)
    scores = torch.where(coarse[:, None], means, key) @ query
    return scores.masked_fill(coarse & (not rest), -math.inf).softmax(dim=-1) @ value


def reference_tree_attention(
    query: Tensor, key: Tensor, value: Tensor, *, sequence: Tensor | None = None,
    scale: float | None = None, keys: int = 512, groups: int = 32, size: int = 8,
    segment: int = 512, window: int = 64, dense_below: int = 0, rest: bool = True,
    margin: float = 8.0, top: int | None = None, causal: bool = True,
    everywhere: Tensor | None = None,
) -> Tensor:  # fmt: skip
    r"""Return attention by trees, token by token; what is in no sequence gets 0.

    The token of rank i sees :math:`\lfloor (i - 3 - \mathrm{window}) / \mathrm{segment} \rfloor`
    segments, none below ``dense_below``. It reads the :math:`\lceil \mathrm{keys} / \mathrm{size}
    \rceil` best clusters exactly, and what lies before and behind these segments. Choices are
    constants for the gradient. Each sequence is on its own; grouped heads share keys.

    Without causal order all tokens read all keys and see all clusters, but for the last few that
    are in no node of the level which they meet; ``window`` tokens, those of ``everywhere`` or else
    the last ones, come last and see none.

    Shapes: query ``[B, H, L, D]``; key ``[B, G, L, D]``; value ``[B, G, L, Dv]``; sequence long
    ``[B, L]``, a number for each sequence, below 0 for padding; everywhere bool ``[B, L]``;
    output ``[B, H, L, Dv]``.
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
                levels, rows = tree_levels(k, size, segment, whole), []
                best = [-(-keys // size)] + [groups] * len(levels)
                for token in range(len(own)):
                    last = token if causal else len(own) - 1
                    later = max(0, last - 3 - window)
                    seen = later // segment * (segment // size) if causal else later // size
                    if last < dense_below or (not causal and token >= len(own) - window):
                        seen = 0
                    own_k, own_v = k[: last + 1], v[: last + 1]
                    mine = [nodes[:, : last + 1] for nodes in tree_met(levels, seen, top)]
                    stopped = tree_descent(q[token], own_k, mine, best, margin)
                    rows.append(tree_output(q[token], own_k, own_v, stopped, rest))
                output[b, h, own] = torch.stack(rows)
    return output
