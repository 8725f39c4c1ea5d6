"""Sort what is given by place in the order of a key back by token."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Places that a program moves.
PLACES = 1024


def by_token(
    order: Tensor,  # The token at each place, each at most once, or -1, [G, U, L] int32
    values: Tensor,  # Values by place, [G, U, L] int32
) -> Tensor:  # [G, U, L] int32
    """Return the value at each token's place; 0 for a token that the order lacks."""
    length = order.size(-1)
    result = torch.zeros_like(order)
    with torch.cuda.device_of(order):
        _move[(order.numel() // length * triton.cdiv(length, PLACES),)](
            order, values, result, length, SIZE=PLACES
        )
    return result


@triton.jit
def _move(
    order: tl.tensor, values: tl.tensor, result: tl.tensor, length: tl.tensor, SIZE: tl.constexpr
) -> None:
    tiles = tl.cdiv(length, SIZE)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    place = tl.program_id(0) % tiles * SIZE + tl.arange(0, SIZE)
    token = tl.load(order + row * length + place, mask=place < length, other=-1)
    value = tl.load(values + row * length + place, mask=place < length, other=0)
    tl.store(result + row * length + token, value, mask=token >= 0)
