"""Tokens that come after others get over stones what they would have got all at once."""

import copy
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph import JatConfig
from jat_graph.attention.jump_heads import JumpHeads
from jat_graph.attention.past_stones import BACK, KeptRows, StonePast
from jat_graph.attention.propagation import head_groups
from jat_graph.masks.tokens import TokenMask
from tests.oracles import stone_attention
from tests.support import assert_equal, random_tensors

INCIDENCES, SIDES = ("excess", "hard", "sigmoid"), ("both", "positive")

SCALE = 0.4
SELECTIONS: tuple[dict[str, Any], ...] = (
    {"key_selection": "all"},
    {"key_selection": "strided", "key_step": 3},
)


class Tokens(NamedTuple):
    """Heads of a causal sequence, and how they jump."""

    query: Tensor
    key: Tensor
    value: Tensor
    strength: Tensor
    config: JatConfig
    valid: Tensor | None  # [B, 1, L]
    excluded: Tensor | None

    def mask(self, length: int) -> TokenMask:
        """The mask of the first tokens."""
        valid, excluded = (
            None if part is None else part[..., :length] for part in (self.valid, self.excluded)
        )
        return TokenMask(valid, causal=True, excluded=excluded)

    def changed(self, order: Tensor) -> "Tokens":
        """The sequences of the batch in another order."""
        moved = (None if part is None else part[order] for part in (*self[:3], *self[5:]))
        query, key, value, valid, excluded = moved
        return Tokens(query, key, value, self.strength, self.config, valid, excluded)


@st.composite
def drawn_tokens(draw: st.DrawFn, longest: int = 150) -> Tokens:
    batch, heads, hops = (draw(st.integers(1, 2)) for _ in range(3))
    length = draw(st.integers(1, longest))
    shape = batch, heads, length, draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**20))
    query, key, value, strength = random_tensors(
        seed, shape, shape, (*shape[:3], 3), (3, hops, heads)
    )
    generator = torch.Generator().manual_seed(seed)
    valid = excluded = None
    padding = draw(st.sampled_from(("none", "left", "scattered")))
    if padding == "left":
        first = torch.randint(0, length, (batch, 1, 1), generator=generator)
        valid = torch.arange(length) >= first
    elif padding == "scattered":
        valid = torch.rand(batch, 1, length, generator=generator) < 0.7
    if draw(st.booleans()):
        excluded = torch.rand(batch, 1, length, generator=generator) < 0.3
    config = JatConfig.stones(
        threshold=draw(st.sampled_from((0.0, 0.5, 1.0))),
        incidence=draw(st.sampled_from(INCIDENCES)),
        sides=draw(st.sampled_from(SIDES)),
        self_weight=draw(st.sampled_from((0.0, 0.1))),
        hops=hops,
        **draw(st.sampled_from(SELECTIONS)),
    )
    tensors = [x.requires_grad_() for x in (query, key, value, strength)]
    return Tokens(*tensors, config, valid, excluded)


def run(tokens: Tokens, start: int, end: int, past: StonePast | None) -> tuple[Tensor, ...]:
    """Return the features of some queries and of the keys up to them, and what is carried."""
    jumping = JumpHeads.everyone(tokens.config, tokens.query.size(1))
    (group,) = head_groups(
        tokens.query[:, :, start:end],
        tokens.key[:, :, :end],
        tokens.value[:, :, :end],
        jumping,
        mask=tokens.mask(end),
        scale=SCALE,
        past=past,
        strength=tokens.strength,
    )
    nothing = torch.zeros_like(tokens.value[:, :, start:end])
    return group.query, group.key, group.finish(nothing)


def grow(tokens: Tokens, ends: list[int], past: StonePast) -> list[tuple[Tensor, ...]]:
    """Return what each chunk of tokens gets; chunks end at the lengths."""
    chunks = []
    for end in ends:
        chunks.append(run(tokens, past.length, end, past))
        assert past.length == end
    return chunks


def seen(tokens: Tokens, x: Tensor, start: int = 0) -> Tensor:
    """Return rows from a position on, those of padding as 0."""
    if tokens.valid is None:
        return x
    return x * tokens.valid[..., start : start + x.size(2)].unsqueeze(-1)


def drawn_ends(data: st.DataObject, length: int) -> list[int]:
    some = data.draw(st.sets(st.integers(1, length), max_size=4))
    one_by_one = data.draw(st.integers(0, 3))
    return sorted({*some, *range(max(1, length - one_by_one), length + 1)})


@given(tokens=drawn_tokens(), data=st.data())
def test_growing_gives_what_the_whole_gives_values_and_gradients(tokens, data):
    length = tokens.query.size(2)
    chunks = grow(tokens, drawn_ends(data, length), StonePast())
    wanted = run(tokens, 0, length, None)
    got = (
        torch.cat([chunk[0] for chunk in chunks], dim=2),
        chunks[-1][1],
        torch.cat([chunk[2] for chunk in chunks], dim=2),
    )
    inputs, generator = tokens[:4], torch.Generator().manual_seed(1)
    losses = []
    for mine, theirs in zip(got, wanted, strict=True):
        mine, theirs = seen(tokens, mine), seen(tokens, theirs)
        assert_equal(mine, theirs)
        weights = torch.randn(mine.shape, generator=generator, dtype=mine.dtype)
        losses.append(((mine * weights).sum(), (theirs * weights).sum()))
    gradients = (torch.autograd.grad(sum(loss), inputs) for loss in zip(*losses, strict=True))
    for mine, theirs in zip(*gradients, strict=True):
        assert_equal(mine, theirs)


@given(tokens=drawn_tokens(), data=st.data(), gradients=st.booleans())
def test_cropped_and_reordered_pasts_are_those_of_what_is_left(tokens, data, gradients):
    length = tokens.query.size(2)
    ends = drawn_ends(data, length)
    left, again = data.draw(st.integers(0, length)), drawn_ends(data, length)
    order = torch.tensor(data.draw(st.lists(st.integers(0, len(tokens.query) - 1), min_size=1)))
    moved = tokens.changed(order)
    past = StonePast()
    with torch.set_grad_enabled(gradients):
        wanted = run(moved, 0, length, None)
        grow(tokens, ends, past)
        past.change_batch(lambda x: x[order])
        past.crop(left)
        assert past.length == left
        for end in (end for end in again if end > left):
            start = past.length
            query, key, carried = run(moved, start, end, past)
            for mine, theirs in ((query, wanted[0]), (carried, wanted[2])):
                assert_equal(seen(moved, mine, start), seen(moved, theirs[:, :, start:end], start))
            assert_equal(seen(moved, key), seen(moved, wanted[1][:, :, :end]))


@given(tokens=drawn_tokens(40), new=st.integers(1, 3))
def test_next_tokens_are_the_oracles(tokens, new):
    query, key, value, strength, config, valid, excluded = tokens
    length = query.size(2)
    start = max(0, length - new)
    past = StonePast()
    if start:
        run(tokens, 0, start, past)
    queries, keys, carried = run(tokens, start, length, past)
    scores = (SCALE * queries @ keys.mT).masked_fill(
        ~tokens.mask(length).allowed(length, query.device)[..., start:, :], -torch.inf
    )
    got = scores.softmax(-1).nan_to_num() @ value + carried
    voting = torch.ones(1, 1, length, dtype=torch.bool) if valid is None else valid
    voting = voting if excluded is None else voting & ~excluded
    rank = voting.cumsum(-1) - 1
    expected = stone_attention(
        query,
        key,
        value,
        strength,
        threshold=config.graph.threshold,
        scale=SCALE,
        incidence=config.graph.incidence,
        temperature=0.5,
        sides=config.graph.sides,
        self_weight=config.graph.self_weight,
        stones=voting & (rank % (config.graph.key_step or 1) == 0),
        valid=None if valid is None else valid[:, 0].expand(len(query), -1),
        causal=True,
    )[:, :, start:]
    assert_equal(seen(tokens, got, start), seen(tokens, expected, start))


def example(length: int, **settings: Any) -> Tokens:
    query, key, value, strength = random_tensors(
        7, (2, 2, length, 4), (2, 2, length, 4), (2, 2, length, 3), (3, 1, 2)
    )
    return Tokens(query, key, value, strength, JatConfig.stones(**settings), None, None)


def test_a_short_way_back_begins_at_what_was_known_before():
    tokens, past = example(400, key_selection="strided", key_step=8), StonePast()
    grow(tokens, list(range(200, 400)), past)
    past.crop(399 - BACK)
    assert 399 - 3 * BACK < past.known[-1].length <= 399 - BACK
    assert len(past.known) <= 2
    past.crop(199)
    assert not past.known
    assert_equal(run(tokens, 199, 400, past)[1], run(tokens, 0, 400, None)[1])


def test_a_copy_goes_its_own_way():
    tokens, past = example(60), StonePast()
    grow(tokens, [40, 50], past)
    other = copy.deepcopy(past)
    other.crop(45)
    run(tokens._replace(query=-tokens.query), 45, 60, other)
    wanted = run(tokens, 0, 60, None)
    for mine, theirs in zip(run(tokens, 50, 60, past)[1:2], wanted[1:2], strict=True):
        assert_equal(mine, theirs)


def test_strengths_of_zero_leave_tokens_as_they_are():
    tokens, past = example(30), StonePast()
    still = tokens._replace(strength=torch.zeros_like(tokens.strength))
    for end in (20, 29):
        _, key, carried = run(still, past.length, end, past)
        assert key.data_ptr() == tokens.key.data_ptr()
        assert not carried.any()
    assert_equal(run(tokens, 29, 30, past)[1], run(tokens, 0, 30, None)[1])


@pytest.mark.parametrize("first", ["inference_mode", "no_grad", "enable_grad"])
def test_a_past_goes_on_in_another_mode(first):
    tokens = example(60, key_selection="strided", key_step=3)
    tokens = tokens._replace(query=tokens.query.requires_grad_())
    wanted = run(tokens, 0, 60, None)[1]
    past = StonePast()
    for end, name in ((20, first), (30, first), (31, "no_grad"), (32, first), (60, "no_grad")):
        with getattr(torch, name)():
            key = run(tokens, past.length, end, past)[1]
        assert_equal(key, wanted[:, :, :end])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_keeps_its_dtype(dtype):
    tokens, past = example(50), StonePast()
    low = tokens._replace(
        **{name: getattr(tokens, name).to(dtype) for name in ("query", "key", "value")}
    )
    parts = grow(low, [40, 50], past)[-1]
    wanted = run(low, 0, 50, None)
    assert [part.dtype for part in parts] == [dtype] * 3
    assert_close(parts[1], wanted[1])
    assert_close(parts[2], wanted[2][:, :, 40:])


def test_room_for_more_rows_saves_copies():
    kept, rows = KeptRows(), torch.randn(1, 2, 400, 3)
    places = []
    for token in range(400):
        found = kept.put(token, rows[:, :, token : token + 1])
        assert torch.equal(found, rows[:, :, : token + 1])
        places.append(found.data_ptr())
    assert len(set(places)) < 10


def test_nothing_is_kept_under_other_masks():
    tokens = example(6)
    jumping = JumpHeads.everyone(tokens.config, 2)
    past = StonePast()
    head_groups(
        tokens.query,
        tokens.key,
        tokens.value,
        jumping,
        mask=TokenMask(),
        scale=1.0,
        past=past,
        strength=tokens.strength,
    )
    assert past.length == 0


def test_keys_that_look_ahead_are_refused():
    tokens, past = example(6, key_selection="significance"), StonePast()
    past.keep(tokens.query[:, :, :5], tokens.mask(5))
    with pytest.raises(ValueError, match="looks at later tokens"):
        run(tokens, 5, 6, past)
