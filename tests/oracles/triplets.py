"""Triplet attention of one sequence: a score for each three tokens, one after the other."""

from collections.abc import Sequence

import torch
from torch import Tensor


def reference_triplet_partner(kind: str, rank: int, length: int, shuffled: Sequence[int]) -> int:
    """Return the token whose key stands beside a token's second key.

    Reference: The released code, ``permutation`` and ``permutation_inverse`` of
    ``modeling_bert.py``.
    """
    if kind == "shuffle":
        return shuffled[rank]
    if kind == "mirror":
        return length - 1 - rank
    if kind == "swap":
        other = rank + 1 if rank % 2 == 0 else rank - 1
        return other if other < length else rank
    return (rank + (1 if kind == "next" else 2)) % length


def reference_triplet_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    second_key: Tensor,
    shuffled: Sequence[int],
    scale: float = 3**-0.5,
) -> Tensor:
    """Return triplet attention: the features three by three are the heads.

    Token i reads token l with the score det(q_i, k, k'): k' is l's second key, and k the key of l's
    partner.

    Shapes: query, key, value, second_key, output ``[n, F]``, F a multiple of 3. Reference: Zhou
    et al., *Triplet Attention: Rethinking the Similarity in Transformers*, KDD 2021.
    """
    length, heads = len(query), query.size(1) // 3
    kinds = ("shuffle", "next", "second next", "mirror", "swap")
    outputs = []
    for head in range(heads):
        features = slice(3 * head, 3 * head + 3)
        q, k, v = query[:, features], key[:, features], value[:, features]
        kind = kinds[min(head // max(heads // 5, 1), 4)]
        crossed = []
        for token in range(length):
            partner = reference_triplet_partner(kind, token, length, shuffled)
            crossed.append(torch.linalg.cross(k[partner], second_key[token, features]))
        rows = []
        for token in range(length):
            scores = torch.stack([(q[token] * other).sum() for other in crossed])
            rows.append(((scores * scale).softmax(0)[:, None] * v).sum(0))
        outputs.append(torch.stack(rows))
    return torch.cat(outputs, dim=1)
