"""The keys that rows of scores hold highest so far, block by block, and those that they let go."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from jat_graph.kernels.compiling import Array, choose, loop

NOTHING = -1e30  # where nothing was read; infinity would give NaN


class Course(NamedTuple):
    """What became of some rows while blocks of keys came; E keys left in a later block."""

    best: Tensor  # of the row of each token, as its step left them; -1 for none, [H, T, keys]
    largest: Tensor  # score of all keys that are not among the best, after each step, [H, m, steps]
    left: Tensor  # head, row, step and key of those that left, rows and steps rising, [E, 4]
    score: Tensor  # of these, [E]
    kept: Tensor  # the best of each row in the end, in any order; -1 for none, last, [H, m, keys]
    kept_score: Tensor  # of these, [H, m, keys]


# The best of each row and their scores, [H, m, keys], the largest of the others, [H, m], and how
# many keys came before.
Before: TypeAlias = tuple[Tensor, Tensor, Tensor, int]


def follow_best(
    scores: Tensor,  # [H, m, steps, block]
    keys: int,
    row: Tensor,  # of each token, rising, [H, T]
    step: Tensor,  # the last whose keys the token may read, rising within a row, [H, T]
    first: int = 0,  # the first step that a token reads up to; blocks before are as one with it
    before: Before | None = None,  # what came of earlier keys
) -> Course:
    """Find the highest scores of rows after each block; of equal ones the first.

    From the scores, which change, the largest of what is not among the best is taken away; those of
    keys that are become -inf.
    """
    if before is None:
        none = torch.full((*scores.shape[:2], keys), -1, device=scores.device)
        value = scores.new_full(none.shape, -torch.inf)
        before = none, value, scores.new_full(none.shape[:2], NOTHING), 0
    follow = choose(scores.device, follow_torch, follow_numba, follow_torch, slow=True)
    return follow(scores, row, step, min(first, scores.size(2) - 1), before)


# --- torch ---------------------------------------------------------------------------------------


def follow_torch(scores: Tensor, row: Tensor, step: Tensor, first: int, before: Before) -> Course:
    """Follow all rows together, a block at a time."""
    kept, value, others, start = before
    (heads, rows, steps, block), keys, out = scores.shape, kept.size(-1), others.unsqueeze(-1)
    best = kept.new_full((*row.shape, keys), -1)
    largest, left, gone = scores.new_empty(heads, rows, steps), [], []
    for now in range(first, steps):
        new = slice(now if now > first else 0, now + 1)
        here = torch.arange(new.start * block, new.stop * block, device=scores.device)
        position = torch.cat([kept, (start + here).expand(heads, rows, -1)], dim=-1)
        every = torch.cat([value, scores[:, :, new].flatten(2)], dim=-1)
        order = position.sort(dim=-1, stable=True).indices  # of equal ones the first
        order = order.gather(
            -1, every.gather(-1, order).sort(dim=-1, descending=True, stable=True).indices
        )
        chosen = torch.zeros_like(every, dtype=torch.bool)
        chosen = chosen.scatter(-1, order[..., :keys], True) & (every > -torch.inf)
        out = torch.maximum(out, every.masked_fill(chosen, -torch.inf).amax(-1, keepdim=True))
        leaves = (~chosen[..., :keys] & (kept >= 0)).nonzero()
        head, own, place = leaves.unbind(-1)
        found = [head, own, torch.full_like(head, now), kept[head, own, place]]
        left.append(torch.stack(found, dim=-1))
        gone.append(value[head, own, place])
        taken = chosen[..., keys:].view_as(scores[:, :, new])
        scores[:, :, new] = (scores[:, :, new] - out.unsqueeze(-1)).masked_fill(taken, -torch.inf)
        largest[..., new] = out
        kept, value = (x.gather(-1, order[..., :keys]) for x in (position, every))
        head, token = (step == now).nonzero().unbind(-1)
        best[head, token] = kept[head, row[head, token]]
    events = torch.cat(left)
    order = (events[:, 0] * rows + events[:, 1]).sort(stable=True).indices
    return Course(best, largest, events[order], torch.cat(gone)[order], kept, value)


# --- numba ---------------------------------------------------------------------------------------


def follow_numba(scores: Tensor, row: Tensor, step: Tensor, first: int, before: Before) -> Course:
    """Follow row after row; a block whose highest score is too low changes nothing."""
    kept, value = (x.clone() for x in before[:2])
    best = kept.new_full((*row.shape, kept.size(-1)), -1)
    largest = scores.new_empty(scores.shape[:3])
    given = scores, scores.flatten(2), scores.amax(-1), row, step, before[2]
    arrays = (x.numpy() for x in (*given, best, largest, kept, value))
    left, gone = _follow(first, before[3], *arrays)
    return Course(best, largest, torch.from_numpy(left), torch.from_numpy(gone), kept, value)


@loop()
def _follow(
    first: int,
    earlier: int,
    scores: Array,
    flat: Array,  # the same without blocks
    highest: Array,  # of each block
    row: Array,
    step: Array,
    others: Array,  # the largest of these before
    best: Array,
    largest: Array,
    kept: Array,
    value: Array,
) -> tuple[Array, Array]:
    heads, rows, steps, block = scores.shape
    keys, events = kept.shape[-1], 0
    known = min(keys, earlier)
    left, gone = np.empty((1024, 4), np.int64), np.empty(1024, scores.dtype)
    for head in range(heads):
        token = 0
        for own in range(rows):
            position, score = kept[head, own], value[head, own]
            number, out = known, others[head, own]
            if number == keys:
                _heap(position, score)
            for now in range(steps):
                start, most = now * block if now > first else 0, highest[head, own, now]
                if number < keys or (keys > 0 and most > score[0]):
                    if events + keys > len(gone):
                        left = np.concatenate((left, np.empty_like(left)))
                        gone = np.concatenate((gone, np.empty_like(gone)))
                    before, here = events, scores[head, own, now]
                    number, out, events = _merge(
                        here,
                        earlier + now * block,
                        position,
                        score,
                        number,
                        out,
                        left,
                        gone,
                        events,
                        earlier + start,
                    )
                    left[before:events, 0], left[before:events, 1] = head, own
                    left[before:events, 2] = now
                else:
                    out = max(out, most)
                if now < first:
                    continue
                taken = position[:number] - earlier
                _take_away(flat[head, own], start, (now + 1) * block, out, taken)
                largest[head, own, start // block : now + 1] = out
                while token < row.shape[1] and row[head, token] == own and step[head, token] == now:
                    best[head, token] = position
                    token += 1
    return left[:events], gone[:events]


@loop()
def _take_away(scores: Array, start: int, stop: int, out: float, position: Array) -> None:
    """Take the largest of the others away from some scores; -inf is what is among the best."""
    for place in range(start, stop):
        scores[place] -= out
    for best in position:
        if best >= start:
            scores[best] = -np.inf


@loop()
def _merge(
    here: Array,
    start: int,
    position: Array,
    score: Array,
    number: int,
    out: float,
    left: Array,
    gone: Array,
    events: int,
    known: int,  # keys that count as having left, if they do
) -> tuple[int, float, int]:
    """Let a block of scores compete with the best keys, a heap as soon as there are enough."""
    keys = len(position)
    for place in range(len(here)):
        if number < keys:
            position[number], score[number] = start + place, here[place]
            number += 1
            if number == keys:
                _heap(position, score)
        elif keys > 0 and here[place] > score[0]:
            out = max(out, score[0])
            if position[0] < known:
                left[events, 3], gone[events] = position[0], score[0]
                events += 1
            position[0], score[0] = start + place, here[place]
            _sink(position, score, 0)
        else:
            out = max(out, here[place])
    return number, out, events


@loop()
def _heap(position: Array, score: Array) -> None:
    """Order keys so that the lowest is the first."""
    for parent in range(len(score) // 2 - 1, -1, -1):
        _sink(position, score, parent)


@loop()
def _sink(position: Array, score: Array, parent: int) -> None:
    """Let a key sink in a heap, whose top is the lowest; of equal ones the last."""
    child = 2 * parent + 1
    while child < len(score):
        if child + 1 < len(score) and _is_lower(position, score, child + 1, child):
            child += 1
        if not _is_lower(position, score, child, parent):
            return
        position[child], position[parent] = position[parent], position[child]
        score[child], score[parent] = score[parent], score[child]
        parent, child = child, 2 * child + 1


@loop()
def _is_lower(position: Array, score: Array, one: int, other: int) -> bool:
    if score[one] == score[other]:
        return bool(position[one] > position[other])
    return bool(score[one] < score[other])
