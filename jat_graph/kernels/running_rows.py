"""What rows of weights read of the blocks so far, for the tokens that share them, and back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from jat_graph.kernels.best_so_far import Course
from jat_graph.kernels.compiling import ANY_ORDER, Array, choose, loop


def gather_running(
    sums: Tensor,  # of each block, relative to the largest score so far, [H, steps, m, D]
    extra: Tensor,  # what the keys that left add, likewise, [E, D]
    course: Course,
    row: Tensor,  # of each token, rising, [H, T]
    step: Tensor,  # up to which it reads, rising within a row, [H, T]
) -> tuple[Tensor, Tensor]:  # [H, T, D], [H, m, D]
    """Return what each token's row has read up to its step, and each row in the end."""
    gather = choose(sums.device, gather_torch, gather_numba, gather_torch)
    return gather(sums, extra, course, row, step)


def spread_running(
    x: Tensor,  # [H, T, D]
    largest: Tensor,  # [H, m, steps]
    row: Tensor,
    step: Tensor,
) -> Tensor:  # [H, steps, m, D]
    """Return for each block and row the sum over the tokens that read it: the transpose."""
    spread = choose(x.device, spread_torch, spread_numba, spread_torch)
    return spread(x, largest, row, step)


# --- torch ---------------------------------------------------------------------------------------


def gather_torch(
    sums: Tensor, extra: Tensor, course: Course, row: Tensor, step: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what rows have read, block after block."""
    head, own, now, _ = course.left.unbind(-1)
    sums = sums.index_put((head, now, own), extra, accumulate=True)
    shrink = _factors(course.largest)
    for earlier in range(sums.size(1) - 1):
        sums[:, earlier + 1] += sums[:, earlier] * shrink[earlier]
    heads = torch.arange(len(sums), device=sums.device).unsqueeze(-1)
    return sums[heads, step, row], sums[:, -1]


def spread_torch(x: Tensor, largest: Tensor, row: Tensor, step: Tensor) -> Tensor:
    """Return the sums over tokens, from the last block on."""
    heads, rows, steps = largest.shape
    head = torch.arange(heads, device=x.device).unsqueeze(-1).expand_as(row)
    sums = x.new_zeros(heads, steps, rows, x.size(-1))
    sums = sums.index_put((head, step, row), x, accumulate=True)
    shrink = _factors(largest)
    for now in reversed(range(steps - 1)):
        sums[:, now] += sums[:, now + 1] * shrink[now]
    return sums


def _factors(largest: Tensor) -> Tensor:  # [steps - 1, H, m, 1]
    """Return what weights of one step are worth in the next."""
    return (largest[..., :-1] - largest[..., 1:]).exp().permute(2, 0, 1).unsqueeze(-1)


# --- numba ---------------------------------------------------------------------------------------


def gather_numba(
    sums: Tensor, extra: Tensor, course: Course, row: Tensor, step: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what rows have read, row after row."""
    total = sums.new_empty(*row.shape, sums.size(-1))
    final = sums.new_zeros(len(sums), *sums.shape[2:])
    arrays = (sums, extra, course.left, course.largest, row, step, total, final)
    _gather(*(x.numpy() for x in arrays))
    return total, final


def spread_numba(x: Tensor, largest: Tensor, row: Tensor, step: Tensor) -> Tensor:
    """Return the sums over tokens, row after row."""
    heads, rows, steps = largest.shape
    sums = x.new_empty(heads, steps, rows, x.size(-1))
    _spread(*(x.numpy() for x in (x, largest, row, step, sums)))
    return sums


@loop(**ANY_ORDER)
def _gather(
    sums: Array,
    extra: Array,
    left: Array,
    largest: Array,
    row: Array,
    step: Array,
    total: Array,
    final: Array,
) -> None:
    heads, steps, rows, width = sums.shape
    event = 0
    for head in range(heads):
        token = 0
        for own in range(rows):
            running = final[head, own]
            for now in range(steps):
                if now > 0 and largest[head, own, now] != largest[head, own, now - 1]:
                    factor = np.exp(largest[head, own, now - 1] - largest[head, own, now])
                    for column in range(width):
                        running[column] *= factor
                _add(running, sums[head, now, own])
                while event < len(left) and (
                    left[event, 0] == head and left[event, 1] == own and left[event, 2] == now
                ):
                    _add(running, extra[event])
                    event += 1
                while token < row.shape[1] and row[head, token] == own and step[head, token] == now:
                    total[head, token] = running
                    token += 1


@loop(**ANY_ORDER)
def _add(total: Array, part: Array) -> None:
    for column in range(len(total)):
        total[column] += part[column]


@loop(**ANY_ORDER)
def _spread(x: Array, largest: Array, row: Array, step: Array, sums: Array) -> None:
    heads, steps, rows, width = sums.shape
    running = np.empty(width, x.dtype)
    for head in range(heads):
        token = row.shape[1] - 1
        for own in range(rows - 1, -1, -1):
            running[:] = 0.0
            for now in range(steps - 1, -1, -1):
                if now + 1 < steps and largest[head, own, now] != largest[head, own, now + 1]:
                    factor = np.exp(largest[head, own, now] - largest[head, own, now + 1])
                    for column in range(width):
                        running[column] *= factor
                while token >= 0 and row[head, token] == own and step[head, token] == now:
                    _add(running, x[head, token])
                    token -= 1
                sums[head, now, own] = running
