"""Attention by clusters in causal order, a whole sequence at once: nothing later counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.adjacency.clusters import BlockStatistics, causal_landmarks, number_of_landmarks
from jat_graph.attention.causal_state import CausalState, Keys, Moments, directions
from jat_graph.attention.cluster_parts import (
    Gradients,
    Kept,
    Reading,
    Tokens,
    differentiate_scores,
    draw_mask,
    masked,
    numbers_at_a_time,
    read_values,
    take,
)
from jat_graph.attention.cluster_window import NearKeys
from jat_graph.attention.clusters import DenseHeads, Pair, Parts, first_clustered
from jat_graph.graph_config import ClusterRule
from jat_graph.kernels.best_so_far import NOTHING, Course, follow_best
from jat_graph.kernels.listed_keys import differentiate_listed, read_listed
from jat_graph.kernels.running_rows import gather_running, spread_running
from jat_graph.kernels.threads import run_tasks

ROWS = 64  # landmarks of a head on a CPU whose scores are held at a time


class Rows(NamedTuple):
    """Some landmarks, and the tokens that joined them: by landmark, then by position."""

    inside: slice  # of all landmarks
    token: Tensor  # [H, T]
    row: Tensor  # of each token, counted from the first of these landmarks, [H, T]
    step: Tensor  # the last block that is far from each token, [H, T]


class CausalClusterHeads:
    """Some heads of one sequence in float32 or float64; nothing that comes later counts."""

    def __init__(
        self,
        query: Tensor,  # [H, n, D]
        key: Tensor,  # [H, n, D]
        value: Tensor,  # [H, n, Dv]
        rule: ClusterRule,
        scale: float,
        joined: Tensor | None = None,  # [H, n], as the forward pass found it
    ) -> None:
        self.rule, self.scale, block = rule, scale, rule.block
        self.tokens = tokens = Tokens(query * scale, key, value, block)
        self.first = first = min(first_clustered(rule), tokens.length)
        self.dense = DenseHeads(query[:, :first], key[:, :first], value[:, :first], scale, True)
        self.begin = -(-first // block)  # the block of that token; there is none if all are dense
        self.near = NearKeys(tokens, 1.0, causal=True, first=self.begin)
        blocks = tokens.length // block
        self.steps = max(blocks - 1, 0)  # blocks that are far from some token, or from the next
        self.landmarks = causal_landmarks(blocks * block, query.device)
        self.queries = tokens.query[:, self.landmarks]  # [H, m, D]
        whole = (tokens.blocked(x)[:, :blocks] for x in (tokens.query, tokens.key))
        self.statistics = BlockStatistics(*whole)
        self.joined = self._join() if joined is None else joined
        self.highest = None  # best keys change from block to block: backward finds them anew
        self.key, self.value = (
            tokens.blocked(x)[:, : self.steps] for x in (tokens.key, tokens.value)
        )
        self.ends = list[tuple[Tensor, ...]]()  # what landmarks have read in the end

    def _join(self) -> Tensor:  # [H, n]
        """Return the landmark that each token is most like, of those in blocks before its own."""
        tokens, known, block = self.tokens, self.statistics, self.tokens.block
        joined = self.landmarks.new_zeros(tokens.heads, tokens.length)
        size = max(1, self.queries[..., 0].numel()) * block
        step = max(1, 2 * numbers_at_a_time(joined.device) // size)
        query, tiny = tokens.blocked(tokens.query), torch.finfo(tokens.query.dtype).tiny
        numbers = [number_of_landmarks(b * block) for b in range(tokens.blocks + 1)]
        starts = range(self.begin, tokens.blocks, step)
        for start, spread in zip(starts, known.spreads(self.begin - 1, step), strict=False):
            stop = min(start + step, tokens.blocks)
            before, centres = slice(start - 1, stop - 1), self.queries[:, : numbers[stop - 1]]
            mean, spread = known.query[:, before].unsqueeze(-2), spread[:, : stop - start]
            # One product for all blocks: spreads are symmetric.
            towards = (centres @ spread.flatten(1, 2).mT).view(*centres.shape[:2], stop - start, -1)
            towards = towards.transpose(1, 2).sub_(mean @ spread)  # [H, blocks, m, D]
            squares = (towards @ -mean.mT).add_((towards * centres.unsqueeze(1)).sum(-1, True))
            norm = squares.clamp_(min=tiny).rsqrt_().mT
            scores = ((query[:, start:stop] - mean) @ towards.mT).mul_(norm)
            for place in range(stop - start - 1):
                scores[:, place, :, numbers[start + place] :] = -torch.inf
            inside = slice(start * block, min(stop * block, tokens.length))
            found = scores.argmax(-1).flatten(1)
            joined[:, inside] = found[:, : inside.stop - inside.start]
        return joined

    def _rows(self) -> Iterator[Rows]:
        """Yield some landmarks of a head, or all of several heads."""
        order, block = self.joined[:, self.first :].sort(stable=True), self.tokens.block
        token = order.indices + self.first
        number = len(self.landmarks)
        step = ROWS if len(token) == 1 else max(1, number)
        starts = torch.arange(0, number + step, step, device=token.device)
        ends = torch.searchsorted(order.values[0], starts).tolist() if step < number else None
        for index, first in enumerate(range(0, number, step)):
            own = slice(None) if ends is None else slice(ends[index], ends[index + 1])
            row, inside = order.values[:, own] - first, slice(first, min(first + step, number))
            yield Rows(inside, token[:, own], row, token[:, own] // block - 2)

    def _weights(self, rows: Rows) -> tuple[Course, Tensor, Tensor]:
        """Return how best keys changed, and the weights of the others; of those that left apart."""
        key = self.tokens.whole(self.tokens.key)[:, : self.steps * self.tokens.block]
        scores = self.queries[:, rows.inside] @ key.mT
        scores = scores.view(*scores.shape[:2], self.steps, -1)
        course = follow_best(scores, self.rule.keys, rows.row, rows.step, self.begin - 2)
        head, row, step, _ = course.left.unbind(-1)
        left = (course.score - course.largest[head, row, step]).exp_()
        return course, scores.exp_().transpose(1, 2), left.unsqueeze(-1)  # [H, steps, m, block]

    def _apart(self, rows: Rows) -> tuple[Tensor, Tensor]:  # [H, T, D], [H, T]
        """Return tokens' queries, and the score by which the rest of each is shifted."""
        query = take(self.tokens.query, rows.token)
        apart = query - take(self.queries[:, rows.inside], rows.row)
        return query, (apart * take(self.statistics.key, rows.step)).sum(-1)

    def read(self, kept: Kept = None) -> Parts:
        """Return the heads' outputs, and the shift and the sum of their weights, [H, n] each."""
        output, shift, weight = self.read_far(kept)
        if self.first:
            output[:, : self.first] = self.dense.read(kept)[0]
        return output, shift, weight

    def read_far(self, kept: Kept = None) -> Parts:
        """Return the same, but that of the first tokens, which are dense, means nothing."""
        tokens, reading = self.tokens, Reading.nothing(self.tokens)
        for rows in self._rows() if self.steps else ():
            self._read_rows(rows, reading, kept)
        self.near.read(reading, kept)
        total, shift = (tokens.of_tokens(x) for x in (reading.total, reading.shift))
        weight = total[..., -1:]
        weight[:, : self.first], shift[:, : self.first] = 1.0, torch.inf
        return total[..., :-1] / weight, shift.squeeze(-1), weight.squeeze(-1)

    def _read_rows(self, rows: Rows, reading: Reading, kept: Kept) -> None:
        """Add what tokens read by their landmarks: the best keys, and the rest."""
        course, weights, left = self._weights(rows)
        key, value = (self.tokens.whole(x) for x in (self.tokens.key, self.tokens.value))
        query, shift = self._apart(rows)
        total = value.new_zeros(*shift.shape, value.size(-1))
        end = total.new_zeros(len(total), weights.size(2), value.size(-1))
        if self.rule.propagate:
            sums = read_values(weights, self.value, draw_mask(weights, kept))
            head, _, _, place = course.left.unbind(-1)
            extra = value[head, place]
            extra[:, :-1] *= masked(left, draw_mask(left, kept))
            extra[:, -1:] = left
            total, end = gather_running(sums, extra, course, rows.row, rows.step)
            shift = shift + self._largest(course, rows)
        shift = shift.masked_fill(total[..., -1] == 0, NOTHING)
        mask = draw_mask(query.new_empty(course.best.shape), kept)
        read_listed(query, key, value, course.best, mask, total, shift)
        for x, part in ((reading.total, total), (reading.shift, shift.unsqueeze(-1))):
            x.scatter_(1, rows.token.unsqueeze(-1).expand_as(part), part)
        self.ends.append((course.kept, course.kept_score, course.largest[..., -1:], end))

    def _largest(self, course: Course, rows: Rows) -> Tensor:  # [H, T]
        """Return the score that the weights of each token's landmark are relative to."""
        return course.largest.flatten(1).gather(1, rows.row * self.steps + rows.step)

    def gradients(self, grad: Tensor, output: Tensor, sums: Pair, kept: Kept = None) -> Parts:
        """Return the gradients of queries, keys and values."""
        back, first = Gradients(self.tokens, grad, output, *sums), self.first
        by_rows = torch.zeros_like(self.queries)
        for rows in self._rows() if first < self.tokens.length else ():
            by_rows[:, rows.inside] = self._differentiate_rows(rows, back, kept)
        self.near.differentiate(back, kept)
        if self.rule.propagate:
            self._differentiate_shifts(back, by_rows)
        found = [self.tokens.of_tokens(x) for x in (back.query, back.key, back.value)]
        found[0].index_add_(1, self.landmarks, by_rows).mul_(self.scale)
        found[2] = found[2][..., :-1]
        if first:
            dense = self.dense.gradients(grad[:, :first], output[:, :first], sums, kept)
            for total, part in zip(found, dense, strict=True):
                total[:, :first] += part
        return found[0], found[1], found[2]

    def _differentiate_rows(self, rows: Rows, back: Gradients, kept: Kept) -> Tensor:  # [H, m, D]
        """Add the gradients by landmarks' rows; return those of the landmarks' queries."""
        tokens, (course, weights, left) = self.tokens, self._weights(rows)
        key, value, by_key, by_value = (
            tokens.whole(x) for x in (tokens.key, tokens.value, back.key, back.value)
        )
        query, shift = self._apart(rows)
        own = self.queries[:, rows.inside]
        grad = torch.cat([take(back.grad, rows.token), -take(back.delta, rows.token)], dim=-1)
        known, by_row = take(back.shift, rows.token).squeeze(-1), torch.zeros_like(own)
        if self.rule.propagate:
            factor = (shift + self._largest(course, rows) - known).exp_().unsqueeze(-1)
            grads = spread_running(grad * factor, course.largest, rows.row, rows.step)
            mask, far = draw_mask(weights, kept), slice(self.steps * tokens.block)
            blocks = (len(own), self.steps, tokens.block, -1)
            by_value[:, far].view(blocks).add_(masked(weights, mask).mT @ grads)
            weights *= differentiate_scores(grads, self.value, mask)
            by_score = weights.transpose(1, 2).flatten(2)  # as it was: [H, m, keys]
            for total, x, y in zip(by_key[:, far], by_score.mT, own, strict=True):
                total.addmm_(x, y)
            by_row += by_score @ key[:, far]
            by_row += self._differentiate_left(course, own, grads, back, draw_mask(left, kept))
        mask = draw_mask(query.new_empty(course.best.shape), kept)
        listed = query, key, value, course.best, mask, known, grad, by_key, by_value
        for total, part in zip(
            (back.query, back.exact), differentiate_listed(*listed), strict=True
        ):
            part = part.view(*part.shape[:2], total.size(-1))
            total.scatter_add_(1, rows.token.unsqueeze(-1).expand_as(part), part)
        return by_row

    def _differentiate_left(
        self, course: Course, own: Tensor, grads: Tensor, back: Gradients, mask: Tensor | None
    ) -> Tensor:  # [H, m, D]
        """Do the same for keys that left the best, each as if it were all that a token reads."""
        head, row, step, place = course.left.unbind(-1)
        place = place + self.tokens.margin + head * self.tokens.key.size(1)
        keys = (
            x.view(1, -1, x.size(-1))
            for x in (self.tokens.key, self.tokens.value, back.key, back.value)
        )
        key, value, by_key, by_value = keys
        query, shift = own[head, row][None], course.largest[head, row, step][None]
        listed = key, value, place.view(1, -1, 1), None if mask is None else mask[None]
        grad = grads[head, step, row][None]
        found, _ = differentiate_listed(query, *listed, shift, grad, by_key, by_value)
        return torch.zeros_like(own).index_put_((head, row), found[0], accumulate=True)

    def _differentiate_shifts(self, back: Gradients, by_rows: Tensor) -> None:
        """Add the gradients by what the rest is shifted by: (q - landmark's query) · mean key."""
        block, first, end = self.tokens.block, self.first, self.tokens.length
        if first == end:
            return
        # Over all keys of a token the gradients of scores add up to 0.
        by_shift = -back.exact[:, first:end]
        step = torch.arange(first, end, device=by_shift.device) // block - 2
        by_query = by_shift * self.statistics.key[:, step]
        back.query[:, first:end] += by_query
        joined = self.joined[:, first:]
        by_rows.scatter_add_(1, joined.unsqueeze(-1).expand_as(by_query), -by_query)
        by_mean = by_shift * (self.tokens.query[:, first:end] - take(self.queries, joined))
        by_means = torch.zeros_like(self.statistics.key).index_add_(1, step, by_mean)
        by_means = by_means / self.statistics.count.view(-1, 1)
        by_keys = by_means.flip(1).cumsum(1).flip(1)[:, : self.steps]  # each is in later means, too
        self.tokens.blocked(back.key)[:, : self.steps] += by_keys.unsqueeze(2)


def read_blocks(
    query: Tensor,  # scaled, float32 or float64, of two whole blocks at least, [H, n, D]
    keys: Keys,  # of these tokens, and perhaps of later ones
    rule: ClusterRule,
) -> tuple[Tensor, CausalState]:  # [H, n, Dv]
    """Return what the first tokens read, but for dense ones, and what they leave behind."""
    number, dtype = query.size(1), query.dtype

    def read(heads: slice) -> tuple[Tensor, list[Tensor]]:
        owners = keys.owners[heads]
        key, value = (x[owners, :number].to(dtype) for x in (keys.key, keys.value))
        some = CausalClusterHeads(query[heads], key, value, rule, 1.0)
        return some.read_far()[0], [torch.cat(end, dim=1) for end in zip(*some.ends, strict=True)]

    step = 1 if query.device.type == "cpu" else len(query)
    pieces = [slice(first, first + step) for first in range(0, len(query), step)]
    outputs, ends = zip(*run_tasks(read, pieces), strict=True)
    best, score, shift, end = (torch.cat(part) for part in zip(*ends, strict=True))
    far = number - rule.block
    best, score = (x[..., :far] for x in (best, score))  # fewer than keys at first
    key = keys.part(0, number, dtype)[0]
    moments, mean = Moments.of(query, key), key[:, :far].mean(1, keepdim=True)
    landmarks = query[:, causal_landmarks(number, query.device)]
    state = CausalState(
        number, query[:, :0], moments, mean, directions(landmarks, moments), landmarks,
        best.int(), score, shift, end[..., :-1], end[..., -1:],
    )  # fmt: skip
    return torch.cat(outputs), state
