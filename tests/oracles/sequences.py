"""The layers that read long sequences, one token at a time, for one head of one sequence."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.oracles.jump import reference_attention  # noqa: F401 - of a layer's tokens, too


def reference_compressed_memory(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    r"""Return the first token, and one slot for the tokens of each window.

    .. math:: m_0 = x_0, \qquad m_{s + 1} = b + \sum_{t=0}^{k-1} W_t\, x_{s \cdot stride + t}

    A window begins at every multiple of the stride. Tokens past the end of the sequence add
    nothing, so that the tail has its slot, too.

    Shapes: x ``[n, C]``; weight ``[C, C, k]``; bias ``[C]``; output ``[1 + ⌈n / stride⌉, C]``.
    Reference: Liu et al., *Generating Wikipedia by Summarizing Long Sequences*, ICLR 2018, 4.2.4.
    """
    slots = [x[0]]
    for start in range(0, len(x), stride):
        slot = bias
        for offset in range(weight.shape[2]):
            if start + offset < len(x):
                slot = slot + weight[:, :, offset] @ x[start + offset]
        slots.append(slot)
    return torch.stack(slots)


def reference_compressed_visible(num_tokens: int, kernel_size: int, stride: int) -> Tensor:
    """Return which slots of the memory each token may see.

    A token sees the first token, and each slot whose whole window lies before it.

    Shapes: output bool ``[n, 1 + ⌈n / stride⌉]``. Reference: Tensor2Tensor's rule for kernel =
    stride = 3: slot m is hidden while 3m > q.
    """
    starts = range(0, num_tokens, stride)
    visible = torch.ones(num_tokens, 1 + len(starts), dtype=torch.bool)
    for token in range(num_tokens):
        for slot, start in enumerate(starts, start=1):
            visible[token, slot] = start + kernel_size <= token
    return visible


def reference_relative_scores(query: Tensor, table: Tensor) -> Tensor:
    r"""Return :math:`S^{rel}_{ij} = q_i \cdot E_{i - j}`, the score of the distance.

    Row r of the table is the distance ``R − 1 − r``; farther keys, and later ones, have 0.

    Shapes: query ``[L, D]``; table ``[R, D]``; output ``[L, L]``. Reference: Huang et al., *Music
    Transformer*, ICLR 2019, Eq. 3.
    """
    scores = query.new_zeros(len(query), len(query))
    for i in range(len(query)):
        for j in range(max(0, i - len(table) + 1), i + 1):
            scores[i, j] = query[i].dot(table[len(table) - 1 - (i - j)])
    return scores


def reference_relative_attention(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor
) -> Tensor:
    r"""Return :math:`\mathrm{softmax}((Q K^\top + S^{rel}) / \sqrt D)\, V` over keys so far.

    Shapes: query, key ``[L, D]``; value, output ``[L, Dv]``; table ``[R, D]``. Reference: Huang et
    al. (2019), Eq. 3.
    """
    relative = reference_relative_scores(query, table)
    later = torch.ones(len(query), len(query), dtype=torch.bool).triu(1)
    logits = (query @ key.T + relative) / math.sqrt(query.shape[1])
    return logits.masked_fill(later, float("-inf")).softmax(dim=-1) @ value
