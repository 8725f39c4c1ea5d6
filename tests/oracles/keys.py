"""Which keys vote, and the threshold that a wanted rate of votes asks for."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor


def reference_num_keys(
    num_tokens: int,
    key_selection: str = "all",
    *,
    num_keys: int | None = None,
    key_factor: float = 5.0,
) -> int:
    r"""Return U, the number of voting keys of a sequence of n tokens.

    :math:`U = \min(n, \max(1, \lceil c \ln n \rceil))`, or ``num_keys`` capped at n. The released
    code's rule (``"sampled_queries"``) rounds before it multiplies: :math:`c \lceil\ln n\rceil`.

    Reference: Informer's sampling factor (Zhou et al., 2021), as used by JAT, section 3.3.
    """
    if key_selection == "all":
        return num_tokens
    if num_keys is not None:
        return min(num_tokens, num_keys)
    return reference_num_samples(num_tokens, key_selection, key_factor=key_factor)


def reference_num_samples(num_tokens: int, key_selection: str, *, key_factor: float = 5.0) -> int:
    r"""Return how many tokens a sampled significance looks at.

    It is :math:`\min(n, \lceil c \ln n \rceil)`, and at least one.

    Reference: Informer's sampling factor (Zhou et al., 2021).
    """
    logarithm = math.log(num_tokens)
    if key_selection == "sampled_queries":
        count = math.ceil(key_factor * math.ceil(logarithm))
    else:
        count = math.ceil(key_factor * logarithm)
    return min(num_tokens, max(1, count))


def reference_voting_keys(
    scores: Tensor,
    pairs: Tensor,
    *,
    key_selection: str = "all",
    num_keys: int | None = None,
    key_factor: float = 5.0,
    key_step: int | None = None,
    sample_ranks: Mapping[int, Tensor] | None = None,
) -> Tensor:
    r"""Return which keys vote.

    A token is valid if some query may attend to it; ranks count the valid tokens of a sequence.

    - ``all``: every valid key.
    - ``significance``: the top U by :math:`\max_i X_{ij} - \mathrm{mean}_i X_{ij}`, over all
      valid queries; ties go to the lower index.
    - ``sampled``: the same over the queries with the given ranks.
    - ``strided``: the ranks :math:`\lfloor r n / U\rfloor`, or 0, s, 2s ... with ``key_step`` s.
    - ``sampled_queries``: the released rule: the top U *queries* by
      :math:`\max_j X_{ij} - \frac1n \sum_j X_{ij}` over the keys with the given ranks; the tokens
      of these queries vote as keys.

    Shapes: scores, pairs ``[B, H, L, L]``; sample_ranks ``{n: [s]}``; output bool ``[B, H,
    L]``. Reference: JAT paper, Eq. 8; ``sampled_queries``: JAT2022, ``CheckerNet``.
    """
    voters = torch.zeros(scores.shape[:-1], dtype=torch.bool, device=scores.device)
    for b in range(scores.shape[0]):
        for h in range(scores.shape[1]):
            valid = pairs[b, h].any(dim=0).nonzero().squeeze(-1)  # [n]
            n = len(valid)
            if n == 0:
                continue
            own = scores[b, h][valid][:, valid].detach()  # [n, n]
            count = reference_num_keys(n, key_selection, num_keys=num_keys, key_factor=key_factor)
            sample = [] if sample_ranks is None else sample_ranks[n].tolist()
            ranks = _ranks(own, key_selection, count, key_step, sample)
            voters[b, h, valid[ranks]] = True
    return voters


def _ranks(
    own: Tensor, key_selection: str, count: int, key_step: int | None, sample: list[int]
) -> list[int]:
    """Return the ranks of the voting keys among the n tokens of one sequence."""
    n = len(own)
    if key_selection == "all":
        return list(range(n))
    if key_selection == "strided":
        if key_step is not None:
            return list(range(0, n, key_step))
        return [r * n // count for r in range(count)]
    if key_selection == "significance":
        significance = own.amax(dim=0) - own.mean(dim=0)  # over queries: [n]
    elif key_selection == "sampled":
        significance = own[sample].amax(dim=0) - own[sample].mean(dim=0)
    else:
        significance = own[:, sample].amax(dim=1) - own[:, sample].sum(dim=1) / n
    order = significance.sort(descending=True, stable=True).indices.tolist()
    return list(order[:count])


def reference_quantile_threshold(
    scores: Tensor,
    pairs: Tensor,
    voters: Tensor,
    *,
    vote_rate: float,
    triples: Mapping[int, Tensor],
    key_norm: Tensor | None = None,
    same_sign_only: bool = False,
) -> Tensor:
    r"""Return the threshold at which the share ``vote_rate`` of the sampled triples votes.

    It is the :math:`\lceil (1 - r) T \rceil`-th smallest of the T products, not below 0. A sequence
    of one token has no pair and gets infinity. A product that the sign gate forbids counts as 0.
    A row (i, k, j) of the triples for n valid tokens holds the ranks of i and k among them, and the
    rank of j among the voting keys.

    Shapes: scores, pairs ``[B, H, L, L]``; voters, key_norm ``[B, H, L]``; triples ``{n: [T,
    3]}``; output ``[B, H]``. Reference: This library; the quantile is numpy's
    ``method="inverted_cdf"``.
    """
    threshold = torch.full(scores.shape[:2], math.inf, dtype=scores.dtype, device=scores.device)
    for b in range(scores.shape[0]):
        for h in range(scores.shape[1]):
            valid = pairs[b, h].any(dim=0).nonzero().squeeze(-1)  # [n]
            if len(valid) < 2:
                continue
            i, k, j = triples[len(valid)].to(valid.device).unbind(dim=-1)  # each [T]
            key = voters[b, h].nonzero().squeeze(-1)[j]
            first, second = scores[b, h, valid[i], key], scores[b, h, valid[k], key]
            product = first * second
            if key_norm is not None:
                product = product / key_norm[b, h, key]
            if same_sign_only:
                product = product.masked_fill((first < 0) & (second < 0), 0.0)
            rank = max(1, math.ceil((1 - vote_rate) * len(product)))
            threshold[b, h] = product.detach().sort().values[rank - 1].clamp(min=0.0)
    return threshold
