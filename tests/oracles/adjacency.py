"""From queries and keys to the normalised adjacency and the propagated scores."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Threshold = float | Sequence[Sequence[float]] | Tensor
HopWeights = Sequence[float] | Mapping[tuple[int, ...], Sequence[float]]


def reference_scores(query: Tensor, key: Tensor, scale: float | None = None) -> Tensor:
    r"""Return the scaled scores :math:`X = \mathrm{scale} \cdot Q K^\top`.

    They are computed in float32, or float64 if the inputs are.

    Shapes: query, key ``[B, H, L, D]``; output ``[B, H, L, L]``. Reference: JAT paper, Eq. 1.
    """
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return (query.to(dtype) @ key.to(dtype).transpose(-1, -2)) * scale


def reference_adjacency(
    scores: Tensor,
    threshold: Threshold,
    *,
    pairs: Tensor | None = None,
    voters: Tensor | None = None,
    key_norm: Tensor | None = None,
    same_sign_only: bool = False,
    inclusive: bool = False,
    nodes: str = "all",
    soft_temperature: float | None = None,
) -> Tensor:
    r"""Return A, the share of voting keys that vote for each pair of tokens.

    .. math::
        A_{ik} = \frac{\sum_{j \in V} M_{ij} M_{kj} \mathbb 1[X_{ij} X_{kj} > \rho]}
                      {\sum_{j \in V} M_{ij}}
        \quad\text{where } M_{ik} \text{ and } i \ne k, \text{ else } 0.

    Hard votes carry no gradient. Soft votes, ``sigmoid((X_ij X_kj - rho) / tau)``, do; the sign
    gate and the masks stay hard. With ``same_sign_only`` no negative score has a hard vote, not
    even for a product of 0. Any map whose products vote may stand for the scores. ``pairs`` are M,
    ``voters`` V, and with ``nodes="selected"`` only voting tokens have edges.

    Shapes: scores, pairs ``[B, H, L, L]``; threshold a number or ``[B|1, H|1]``; voters,
    key_norm ``[B, H, L]``; output ``[B, H, L, L]``. Reference: JAT paper, Eq. 2 and 3.
    """
    pairs = torch.ones_like(scores, dtype=torch.bool) if pairs is None else pairs
    voters = torch.ones_like(pairs[..., 0, :]) if voters is None else voters
    rho = torch.as_tensor(threshold, dtype=scores.dtype, device=scores.device)
    rho = rho.expand(scores.shape[:2])[..., None, None, None]  # [B, H, 1, 1, 1]
    columns = voters.flatten(0, 1).any(dim=0).nonzero().squeeze(-1)  # [U], voting anywhere
    first, second = scores[:, :, :, None, columns], scores[:, :, None, :, columns]
    product = first * second  # [B, H, L, L, U]
    if key_norm is not None:
        product = product / key_norm[:, :, None, None, columns]
    seen = (pairs & voters[..., None, :])[..., columns]  # [B, H, L, U]: who votes for row i
    gate = seen[:, :, :, None] & seen[:, :, None, :]  # [B, H, L, L, U]
    if same_sign_only and soft_temperature is None:
        gate = gate & (first >= 0) & (second >= 0)
    elif same_sign_only:
        gate = gate & ~((first < 0) & (second < 0))
    vote = _vote(product, rho, inclusive, soft_temperature).masked_fill(~gate, 0.0)
    share = vote.sum(dim=-1) / seen.sum(dim=-1, keepdim=True).clamp(min=1)
    edges = pairs & ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    if nodes == "selected":
        edges = edges & voters[..., :, None] & voters[..., None, :]
    return share * edges


def _vote(product: Tensor, rho: Tensor, inclusive: bool, soft_temperature: float | None) -> Tensor:
    """Return the votes, 0 or 1, or between them if they are soft."""
    if soft_temperature is not None:
        return torch.sigmoid((product - rho) / soft_temperature)
    product = product.detach()
    return (product >= rho if inclusive else product > rho).to(product.dtype)


def reference_prune(adjacency: Tensor, max_neighbors: int | None = None) -> Tensor:
    r"""Return A without its light edges.

    An edge stays if it is, or its reverse is, among the ``max_neighbors`` heaviest into its target,
    row i of A. Ties go to the lower source.

    Shapes: adjacency, output ``[..., L, L]``.
    """
    keep = torch.zeros_like(adjacency, dtype=torch.bool)
    for weights, chosen in zip(adjacency.flatten(0, -2), keep.flatten(0, -2), strict=True):
        order = sorted(range(len(weights)), key=lambda k: (-weights[k].item(), k))
        chosen[order[:max_neighbors]] = True
    keep = keep & (adjacency > 0)
    keep = keep | keep.transpose(-1, -2)
    return torch.where(keep, adjacency, 0.0)


def reference_normalize(adjacency: Tensor) -> Tensor:
    r"""Return :math:`\hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}`.

    :math:`\tilde D` holds the row sums of A + I. They are at least 1.

    Shapes: adjacency, output ``[..., L, L]``. Reference: JAT paper, Eq. 4; Kipf & Welling
    (2017), Eq. 2.
    """
    looped = adjacency + torch.eye(
        adjacency.shape[-1], dtype=adjacency.dtype, device=adjacency.device
    )
    inverse_root = looped.sum(dim=-1).rsqrt()  # [..., L]
    return inverse_root[..., :, None] * looped * inverse_root[..., None, :]


def reference_scores_propagated(
    query: Tensor,
    key: Tensor,
    adj_norm: Tensor,
    hop_weights: HopWeights = (0.0, 1.0),
    *,
    nodes: Tensor | None = None,
) -> Tensor:
    r"""Return :math:`\sum_p w_p \Phi_p(S)`, :math:`\Phi_p(S) = \hat A^p S (\hat A^p)^\top`.

    Shapes: query, key ``[B, H, L, D]``; adj_norm, output ``[B, H, L, L]``; nodes bool ``[B, H,
    L]``. Reference: JAT paper, Eq. 5, 6 and 9.
    """
    scores = query @ key.transpose(-1, -2)
    weights = _hop_table(hop_weights, query)  # [H, P + 1]
    total, term = torch.zeros_like(scores), scores
    for weight in weights.unbind(dim=-1):
        total = total + weight[:, None, None] * term
        term = adj_norm @ term @ adj_norm.transpose(-1, -2)
    if nodes is None:
        return total
    return torch.where(nodes[..., :, None] & nodes[..., None, :], total, scores)


def _hop_table(hop_weights: HopWeights, query: Tensor) -> Tensor:
    """Return the weights of each head, filled up with zeros: [H, P + 1]."""
    heads = query.shape[1]
    if not isinstance(hop_weights, Mapping):
        hop_weights = {tuple(range(heads)): hop_weights}
    hops = max(len(weights) for weights in hop_weights.values())
    table = query.new_zeros(heads, hops)
    for group, weights in hop_weights.items():
        for head in group:
            table[head, : len(weights)] = query.new_tensor(list(weights))
    return table
