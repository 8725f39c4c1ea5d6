"""The layers that read long sequences, one token at a time, for one head of one sequence."""

import math

import torch
from torch import Tensor


def reference_compressed_memory(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    r"""Return the first token, and one slot for the tokens of each window.

    .. math:: m_0 = x_0, \qquad m_{s + 1} = b + \sum_{t=0}^{k-1} W_t\, x_{s \cdot stride + t}

    A window begins at every multiple of the stride. Tokens past the end of the sequence add
    nothing, so that the tail has its slot, too.

    Shapes: x ``[n, C]``; weight ``[C, C, k]``; bias ``[C]``; output ``[1 + ⌈n / stride⌉, C]``.
    Reference: Liu et al., *Generating Wikipedia by Summarizing Long Sequences*, ICLR 2018,
    section 4.2.4.
    """
    slots = [x[0]]
    for start in range(0, len(x), stride):
        slot = bias
        for offset in range(weight.shape[2]):
            if start + offset < len(x):
                slot = slot + weight[:, :, offset] @ x[start + offset]
        slots.append(slot)
    return torch.stack(slots)


def reference_compressed_visible(
    num_tokens: int, kernel_size: int, stride: int, is_causal: bool
) -> Tensor:
    """Return which slots of the memory each token may see.

    Causally a token sees the first token, and each slot whose whole window lies before it.

    Shapes: output bool ``[n, 1 + ⌈n / stride⌉]``. Reference: Tensor2Tensor's rule for kernel =
    stride = 3: slot m is hidden while 3m > q.
    """
    starts = range(0, num_tokens, stride)
    visible = torch.ones(num_tokens, 1 + len(starts), dtype=torch.bool)
    for token in range(num_tokens):
        for slot, start in enumerate(starts, start=1):
            visible[token, slot] = not is_causal or start + kernel_size <= token
    return visible


def reference_relative_scores(
    query: Tensor, table: Tensor, *, max_distance: int, far: str
) -> Tensor:
    r"""Return :math:`S^{rel}_{ij} = q_i \cdot E_{i - j}`, the score of the distance.

    Row r of the table is the distance ``max_distance − 1 − r``; later keys have negative ones. Far
    is ``"clip"``: farther keys have the row of the farthest, or ``"zero"``: they have 0.

    Shapes: query ``[L, D]``; table ``[max_distance, D]`` or ``[2 · max_distance − 1, D]``;
    output ``[L, L]``. Reference: Huang et al., *Music Transformer*, ICLR 2019, Eq. 3; Shaw et
    al. (2018) clip.
    """
    length = len(query)
    rows = []
    for i in range(length):
        scores = []
        for j in range(length):
            row = max_distance - 1 - (i - j)
            score = query[i].dot(table[min(max(row, 0), len(table) - 1)])
            outside = abs(i - j) >= max_distance
            scores.append(score * 0 if far == "zero" and outside else score)
        rows.append(torch.stack(scores))
    return torch.stack(rows)


def reference_relative_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    *,
    max_distance: int,
    far: str = "clip",
    block: int | None = None,
    is_causal: bool = False,
) -> Tensor:
    r"""Return :math:`\mathrm{softmax}((Q K^\top + S^{rel}) / \sqrt D)\, V` over the visible keys.

    Shapes: query, key ``[L, D]``; value, output ``[L, Dv]``; table ``[R, D]``. Reference: Huang
    et al., *Music Transformer*, ICLR 2019, Eq. 3.
    """
    relative = reference_relative_scores(query, table, max_distance=max_distance, far=far)
    visible = reference_relative_visible(len(query), block, is_causal)
    logits = (query @ key.T + relative) / math.sqrt(query.shape[1])
    return logits.masked_fill(~visible, float("-inf")).softmax(dim=-1) @ value


def reference_relative_visible(length: int, block: int | None, is_causal: bool) -> Tensor:
    """Return which tokens each token may see: all, or those of its own and neighbouring blocks.

    Shapes: output bool ``[L, L]``. Reference: Liu et al. (2018) for the blocks; Tensor2Tensor
    adds the block before.
    """
    visible = torch.ones(length, length, dtype=torch.bool)
    for i in range(length):
        for j in range(length):
            near = block is None or abs(i // block - j // block) <= 1
            visible[i, j] = near and not (is_causal and j > i)
    return visible
