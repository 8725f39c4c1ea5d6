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
from jat_graph.attention.heads import JumpHeads, add_carried
from jat_graph.attention.past_stones import BACK, KeptRows, StonePast
from jat_graph.attention.propagation import head_groups
from jat_graph.config_fields import INCIDENCES, SIDES
from jat_graph.masks import TokenMask
from jat_graph.reference import stone_attention
from tests.support import assert_equal, random_tensors

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
    silent: Tensor | None

    def mask(self, length: int) -> TokenMask:
        """The mask of the first tokens."""
        valid, silent = (
            None if part is None else part[..., :length] for part in (self.valid, self.silent)
        )
        return TokenMask(valid, causal=True, silent=silent)

    def changed(self, order: Tensor) -> "Tokens":
        """The sequences of the batch in another order."""
        moved = (None if part is None else part[order] for part in (*self[:3], *self[5:]))
        query, key, value, valid, silent = moved
        return Tokens(query, key, value, self.strength, self.config, valid, silent)


@st.composite
def drawn_tokens(draw: st.DrawFn, longest: int = 150) -> Tokens:
    batch, heads, hops = (draw(st.integers(1, 2)) for _ in range(3))
    length = draw(st.integers(1, longest))
    shape = batch, heads, length, draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**20))
    query, key, value, strength = random_tensors(seed, shape, shape, (*shape[:3], 3), (3, hops, heads))
    generator = torch.Generator().manual_seed(seed)
    valid = silent = None
    padding = draw(st.sampled_from(("none", "left", "scattered")))
    if padding == "left":
        first = torch.randint(0, length, (batch, 1, 1), generator=generator)
        valid = torch.arange(length) >= first
    elif padding == "scattered":
        valid = torch.rand(batch, 1, length, generator=generator) < 0.7
    if draw(st.booleans()):
        silent = torch.rand(batch, 1, length, generator=generator) < 0.3
    config = JatConfig.stones(
        threshold=draw(st.sampled_from((0.0, 0.5, 1.0))),
        incidence=draw(st.sampled_from(INCIDENCES)),
        sides=draw(st.sampled_from(SIDES)),
        self_weight=draw(st.sampled_from((0.0, 0.1))),
        hops=hops,
        **draw(st.sampled_from(SELECTIONS)),
    )
    tensors = [x.requires_grad_() for x in (query, key, value, strength)]
    return Tokens(*tensors, config, valid, silent)


def run(tokens: Tokens, start: int, end: int, past: StonePast | None) -> tuple[Tensor, ...]:
    """Return the features of some queries and of the keys up to them, and what is carried."""
    jumping = JumpHeads.everyone(tokens.config, tokens.query.size(1))
    groups = head_groups(
        tokens.query[:, :, start:end],
        tokens.key[:, :, :end],
        jumping,
        mask=tokens.mask(end),
        scale=SCALE,
        past=past,
        strength=tokens.strength,
    )
    (group,) = groups
    nothing = torch.zeros_like(tokens.value[:, :, start:end])
    return group.query, group.key, add_carried(nothing, groups, tokens.value[:, :, :end])


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
