"""Area attention: every area is a list of positions, and every feature of it a loop over them."""

from typing import NamedTuple

import torch
from torch import Tensor

from tests.oracles.jump import masked_softmax


class ReferenceArea(NamedTuple):
    """A rectangle of neighbouring tokens.

    ``height`` and ``width`` are its sizes, ``members`` the positions of its tokens in row-major
    order.
    """

    height: int
    width: int
    members: tuple[int, ...]


def reference_areas(
    length: int, *, max_width: int, max_height: int = 1, height: int = 1
) -> list[ReferenceArea]:
    """List all areas of a sequence, or of a grid whose rows follow each other.

    Reference: Li et al., *Area Attention*, ICML 2019, section 3.
    """
    columns = length // height
    areas = []
    for tall in range(1, max_height + 1):
        for wide in range(1, max_width + 1):
            for top in range(height - tall + 1):
                for left in range(columns - wide + 1):
                    members = (
                        (top + row) * columns + left + column
                        for row in range(tall)
                        for column in range(wide)
                    )
                    areas.append(ReferenceArea(tall, wide, tuple(members)))
    return areas


def reference_area_pool(x: Tensor, areas: list[ReferenceArea], kind: str) -> Tensor:
    """Return one feature of each area.

    Shapes: x ``[..., L, F]``; output ``[..., A, F]``. Reference: Li et al. (2019), Eq. 3 to 5.
    """
    pools = []
    for area in areas:
        tokens = x[..., list(area.members), :]
        if kind == "sum":
            pools.append(tokens.sum(-2))
        elif kind == "mean":
            pools.append(tokens.mean(-2))
        elif kind == "max":
            pools.append(tokens.amax(-2))
        else:
            pools.append((tokens.var(-2, correction=0) + 1e-6).sqrt())
    return torch.stack(pools, dim=-2)


def reference_area_mask(allowed: Tensor, areas: list[ReferenceArea]) -> Tensor:
    """Return which areas may be read: those all of whose tokens may.

    Shapes: allowed bool ``[..., L]``; output bool ``[..., A]``. Reference: Tensor2Tensor,
    ``area_attention.dot_product_area_attention``.
    """
    return torch.stack([allowed[..., list(area.members)].all(-1) for area in areas], dim=-1)


def reference_area_attention(
    query: Tensor,
    area_key: Tensor,
    area_value: Tensor,
    allowed: Tensor,
    *,
    scale: float,
    temperature: float = 1.0,
    top_k: int | None = None,
) -> Tensor:
    """Return attention over areas; a query that may read none gets zeros.

    With ``top_k`` it reads only the areas as heavy as the k-th heaviest, up to the root of the
    precision, with weights scaled to sum to 1.

    Shapes: query, output ``[B, H, Lq, D]``; area_key, area_value ``[B, H, A, D]``; allowed bool
    ``[B, H, Lq, A]``. Reference: Li et al. (2019), Eq. 1 and 2.
    """
    weights = masked_softmax(query @ area_key.transpose(-1, -2) * scale / temperature, allowed)
    if top_k is not None:
        kept = torch.zeros_like(weights)
        for place in torch.cartesian_prod(*(torch.arange(size) for size in weights.shape[:3])):
            b, h, i = place.tolist()
            row = weights[b, h, i]
            least = row.sort(descending=True).values[min(top_k, len(row)) - 1]
            heavy = row * (row >= least * (1 - torch.finfo(row.dtype).eps ** 0.5))
            kept[b, h, i] = heavy / heavy.sum() if bool(heavy.any()) else heavy
        weights = kept
    return weights @ area_value
