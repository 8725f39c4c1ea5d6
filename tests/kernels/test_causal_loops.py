"""The loops of clusters in causal order: each form by sorting, by sums and by softmax."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.kernels import best_so_far, listed_keys, running_rows
from jat_graph.kernels.best_so_far import NOTHING, Before, Course

forms = pytest.mark.parametrize("form", ["torch", "numba"])
# Heads, rows, blocks, tokens of a block, best keys.
sizes = st.tuples(
    st.integers(1, 2), st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(0, 7)
)
seeds = st.integers(0, 9999)


def tokens_of(seed: int, heads: int, rows: int, steps: int) -> tuple[Tensor, Tensor, int]:
    """Return the rows of some tokens and how far they read, in order, and the least of these."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.randint(0, rows * steps, (heads, 9), generator=generator).sort(-1).values
    first = seed % steps
    return place // steps, (place % steps).clamp(min=first), first


def followed(form: str, seed: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Course]:
    """Return scores with ties, what is left of them, and what was followed."""
    heads, rows, steps, block, keys = shape
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-4, 5, (heads, rows, steps, block), generator=generator).double()
    changed, follow = scores.clone(), getattr(best_so_far, f"follow_{form}")
    course = follow(changed, *tokens_of(seed, heads, rows, steps), nothing_before(scores, keys))
    return scores, changed, course


def nothing_before(scores: Tensor, keys: int) -> Before:
    """Return what came of no keys."""
    score = scores.new_full((*scores.shape[:2], keys), -torch.inf)
    return torch.full(score.shape, -1), score, scores.new_full(scores.shape[:2], NOTHING), 0


def highest(scores: Tensor, keys: int) -> list[int]:
    """Return the positions of the highest scores, of equal ones the first."""
    return sorted(sorted(range(len(scores)), key=lambda j: (-float(scores[j]), j))[:keys])


@forms
@given(seed=seeds, shape=sizes)
def test_best_keys_are_those_of_all_blocks_so_far(form, seed, shape):
    heads, rows, steps, block, keys = shape
    scores, changed, course = followed(form, seed, shape)
    row, step, first = tokens_of(seed, heads, rows, steps)
    left = course.left.tolist()
    for head in range(heads):
        for own in range(rows):
            flat, known = scores[head, own].flatten(), list[int]()
            for now in range(first, steps):
                best = highest(flat[: (now + 1) * block], keys)
                gone = sorted(key for h, r, s, key in left if (h, r, s) == (head, own, now))
                assert gone == sorted(set(known) - set(best))
                others = [float(flat[j]) for j in range((now + 1) * block) if j not in best]
                most = max(others, default=NOTHING)
                new = slice(now if now > first else 0, now + 1)
                assert (course.largest[head, own, new] == most).all()
                for place in range(new.start * block, new.stop * block):
                    mine = changed[head, own].flatten()[place]
                    assert mine == (-torch.inf if place in best else float(flat[place]) - most)
                known = best
                for token in ((row[head] == own) & (step[head] == now)).nonzero().flatten():
                    assert sorted(x for x in course.best[head, token].tolist() if x >= 0) == best
            kept = course.kept[head, own]
            assert sorted(x for x in kept.tolist() if x >= 0) == known
            assert torch.equal(flat[kept[kept >= 0]], course.kept_score[head, own][kept >= 0])
    places = [(head, own, now) for head, own, now, _ in left]
    assert places == sorted(places)
    for (head, own, _, key), score in zip(left, course.score.tolist(), strict=True):
        assert scores[head, own].flatten()[key] == score


@forms
@given(seed=seeds, shape=sizes, data=st.data())
def test_later_blocks_go_on_from_what_came_of_earlier_ones(form, seed, shape, data):
    heads, _, steps, block, keys = shape
    scores, changed, whole = followed(form, seed, shape)
    follow, none = getattr(best_so_far, f"follow_{form}"), torch.zeros(heads, 0).long()
    cut, first = data.draw(st.integers(0, steps)), tokens_of(seed, *shape[:3])[2]
    cut, parts = max(cut, first), list[Course]()
    before = nothing_before(scores, keys)
    for start, end, begin in ((0, cut, first), (cut, steps, 0)):
        if start == end:
            continue
        part = scores[:, :, start:end].clone()
        earlier = before[0].clone()
        parts.append(follow(part, none, none, min(begin, end - start - 1), before))
        assert torch.equal(before[0], earlier)
        if start >= first:
            assert torch.equal(part, changed[:, :, start:end])
        own = parts[-1]
        before = own.kept, own.kept_score, own.largest[..., -1], end * block
    assert torch.equal(before[0].sort(-1).values, whole.kept.sort(-1).values)
    assert torch.equal(before[1].sort(-1).values, whole.kept_score.sort(-1).values)
    assert torch.equal(before[2], whole.largest[..., -1])


@forms
@given(seed=seeds, shape=sizes)
def test_rows_read_all_blocks_up_to_a_step_and_give_back_to_them(form, seed, shape):
    heads, rows, steps, _, _ = shape
    _, _, course = followed(form, seed, shape)
    row, step, _ = tokens_of(seed, heads, rows, steps)
    generator = torch.Generator().manual_seed(seed)
    sums, extra = (
        torch.randn(*size, 3, generator=generator, dtype=torch.float64)
        for size in ((heads, steps, rows), (len(course.left),))
    )
    gather, spread = (getattr(running_rows, f"{name}_{form}") for name in ("gather", "spread"))
    total, final = gather(sums.clone(), extra, course, row, step)
    x = torch.randn(heads, 9, 3, generator=generator, dtype=torch.float64)
    given_back = spread(x, course.largest, row, step)
    wanted, back = torch.zeros_like(total), torch.zeros_like(given_back)
    end = torch.zeros_like(final)
    for head in range(heads):
        for own in range(rows):
            largest = course.largest[head, own]

            def worth(earlier: int, now: int, largest: Tensor = largest) -> Tensor:
                return (largest[earlier] - largest[now]).exp()

            reads = [(now, sums[head, now, own]) for now in range(steps)]
            reads += [
                (now, part)
                for (h, r, now, _), part in zip(course.left.tolist(), extra, strict=True)
                if (h, r) == (head, own)
            ]
            end[head, own] = sum(worth(now, steps - 1) * part for now, part in reads)
            for token in (row[head] == own).nonzero().flatten().tolist():
                last = int(step[head, token])
                for now, part in reads:
                    if now <= last:
                        wanted[head, token] += worth(now, last) * part
                for now in range(last + 1):
                    back[head, now, own] += worth(now, last) * x[head, token]
    for got, want in ((total, wanted), (final, end), (given_back, back)):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@forms
@given(seed=seeds, keys=st.integers(0, 5), dropped=st.booleans())
def test_listed_keys_are_softmax_beside_what_was_read(form, seed, keys, dropped):
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_()

    query, key, value, grad = draw(2, 6, 4), draw(2, 8, 4), draw(2, 8, 3), draw(2, 6, 3)
    index = torch.randint(-1, 8, (2, 6, keys), generator=generator)
    mask = (torch.rand(2, 6, keys, generator=generator) < 0.7).double() * 1.4 if dropped else None
    ones = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1).detach()
    total, shift = torch.rand(2, 6, 4, generator=generator).double() + 0.1, draw(2, 6).detach()
    heads = torch.arange(2)[:, None, None]
    scores = (key[heads, index] * query.unsqueeze(2)).sum(-1).masked_fill(index < 0, -torch.inf)
    weights = (scores - shift.unsqueeze(-1)).exp()
    kept = weights if mask is None else weights * mask
    before = total.clone()
    weight = before[..., -1] + weights.sum(-1)
    output = (before[..., :-1] + (kept.unsqueeze(-1) * value[heads, index]).sum(2)) / weight[
        ..., None
    ]
    read, differentiate = (
        getattr(listed_keys, f"{name}_{form}") for name in ("read", "differentiate")
    )
    plain = [x.detach() for x in (query, key)]
    known = shift.clone()
    read(*plain, ones, index, mask, total, known)
    factor = (known - shift).exp()
    torch.testing.assert_close(total[..., :-1] / total[..., -1:], output.detach())
    torch.testing.assert_close(total[..., -1] * factor, weight.detach())
    wanted = torch.autograd.grad(output, (query, key, value), grad)
    given_back = grad.detach() / total[..., -1:]
    delta = (given_back * output.detach()).sum(-1, keepdim=True)
    by_key, by_value = torch.zeros_like(plain[1]), torch.zeros_like(ones)
    back = torch.cat([given_back, -delta], dim=-1)
    found = differentiate(*plain, ones, index, mask, known, back, by_key, by_value)
    for got, want in zip((found[0], by_key, by_value[..., :-1]), wanted, strict=True):
        torch.testing.assert_close(got, want)
    shares = (value[heads, index] * given_back.unsqueeze(2)).sum(-1).detach()
    shares = (shares if mask is None else shares * mask) - delta
    exact = (scores.detach() - known.unsqueeze(-1)).exp()
    torch.testing.assert_close(found[1], (exact * shares).sum(-1))
