"""Attention along trees of keys, against its oracle, and what holds whatever the input."""

import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st
from torch import Tensor

from jat_graph import JatConfig, clustered_attention, jump_attention
from tests.inputs import random_padding_mask
from tests.oracles import reference_tree_attention
from tests.support import assert_equal, random_tensors

LENGTHS = (1, 2, 5, 12, 17, 31, 64, 65)
SIDES = ("right", "left", "scattered")
SETTINGS = {"keys": 4, "groups": 1, "size": 2, "segment": 8}

seeds = st.integers(0, 2**20)


def fast(heads: list[Tensor], **options: Any) -> Tensor:
    """Return attention by clusters, of short sequences, too."""
    return clustered_attention(*heads, **{"dense_below": 0, "enable_gqa": True} | options)


def slow(heads: list[Tensor], is_causal: bool = False, **settings: Any) -> Tensor:
    """Return the same by the oracle, which has a window in causal order only."""
    if not is_causal:
        settings["window"] = 0
    return reference_tree_attention(*heads, causal=is_causal, **settings)


def with_gradients(output: Tensor, leaves: list[Tensor], cotangent: Tensor) -> list[Tensor]:
    """Return a result and its gradients."""
    return [output, *torch.autograd.grad(output, leaves, cotangent, retain_graph=True)]


def assert_agree(ours: Tensor, theirs: Tensor, leaves: list[Tensor], valid: Tensor) -> None:
    """Compare values and gradients of what valid tokens, [B, L], read."""
    assert valid.any()
    shown = valid[:, None, :, None].to(ours.dtype)
    (cotangent,) = random_tensors(0, tuple(ours.shape))
    assert_equal(*(with_gradients(x * shown, leaves, cotangent) for x in (ours, theirs)))


def everyone(heads: list[Tensor]) -> Tensor:
    return torch.ones(heads[0].size(0), heads[0].size(2), dtype=torch.bool)


def mask_of(sequence: Tensor) -> Tensor:
    """Return which tokens see which, [B, 1, L, L], for the number of each token's sequence."""
    return ((sequence[:, :, None] == sequence[:, None]) & (sequence >= 0)[:, None])[:, None]


def additive(mask: Tensor, lowest: float = -math.inf) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, lowest)


@st.composite
def drawn_heads(draw: st.DrawFn, lengths: tuple[int, ...] = LENGTHS) -> list[Tensor]:
    """Draw queries, keys and values, some of them of grouped heads, that want a gradient."""
    batch, groups, shared = (draw(st.integers(1, 2)) for _ in range(3))
    length = draw(st.sampled_from(lengths))
    width, value_width = draw(st.sampled_from((2, 3, 8))), draw(st.sampled_from((1, 5, 8)))
    shapes = ((groups * shared, width), (groups, width), (groups, value_width))
    heads = random_tensors(draw(seeds), *((batch, h, length, size) for h, size in shapes))
    return [x.requires_grad_() for x in heads]


@st.composite
def drawn_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Draw all that changes what is computed."""
    return {
        "keys": draw(st.sampled_from((0, 1, 4, 32))),
        "groups": draw(st.integers(1, 3)),
        "size": draw(st.sampled_from((1, 2, 4))),
        "segment": draw(st.sampled_from((4, 8, 16))),
        "window": draw(st.sampled_from((1, 2, 8))),
        "margin": draw(st.sampled_from((0.0, 2.0, math.inf))),
        "scale": draw(st.sampled_from((None, 0.5, -0.3, 2.0))),
    }


# --- the oracle ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("is_causal", [False, True])
@given(
    heads=drawn_heads(),
    settings=drawn_settings(),
    side=st.sampled_from((None, *SIDES)),
    propagate=st.booleans(),
    dense_below=st.sampled_from((0, 20, 64)),
    seed=seeds,
)
def test_each_token_reads_what_it_reads_alone(
    is_causal, heads, settings, side, propagate, dense_below, seed
):
    batch, _, length, _ = heads[0].shape
    settings["dense_below"] = dense_below if is_causal else 0
    valid, mask = everyone(heads), None
    if side:
        valid = mask = random_padding_mask(batch, length, side=side, seed=seed)
    options = {"attention_mask": mask, "is_causal": is_causal, "propagate": propagate}
    theirs = slow(heads, is_causal, sequence=valid.long() - 1, rest=propagate, **settings)
    assert_agree(fast(heads, **options, **settings), theirs, heads, valid)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["additive", "4D", "4D of pairs", "4D additive"])
@given(heads=drawn_heads(), settings=drawn_settings(), side=st.sampled_from(SIDES), seed=seeds)
def test_padding_is_no_token_in_any_form(form, heads, settings, side, seed):
    batch, _, length, _ = heads[0].shape
    valid = random_padding_mask(batch, length, side=side, seed=seed)
    row = valid[:, None, None]
    mask = {
        "additive": additive(valid),
        "4D": row,
        "4D of pairs": row & valid[:, None, :, None],
        "4D additive": additive(row.expand(-1, -1, length, -1), torch.finfo(torch.float32).min),
    }[form]
    theirs = slow(heads, sequence=valid.long() - 1, **settings)
    assert_agree(fast(heads, attention_mask=mask, **settings), theirs, heads, valid)


@pytest.mark.slow
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("form", ["bool", "additive", "one for the batch"])
@given(
    heads=drawn_heads(),
    settings=drawn_settings(),
    arranged=st.sampled_from(("packed", "interleaved", "with padding")),
    seed=seeds,
)
def test_documents_are_sequences_of_their_own(is_causal, form, heads, settings, arranged, seed):
    batch, _, length, _ = heads[0].shape
    generator = torch.Generator().manual_seed(seed)
    first = -1 if arranged == "with padding" else 0
    sequence = torch.randint(first, 3, (batch, length), generator=generator)
    sequence[:, 0] = 0
    if arranged == "packed":
        sequence = sequence.sort(dim=-1).values
    if form == "one for the batch":
        sequence = sequence[:1]
    mask = mask_of(sequence)
    if is_causal and seed % 2:  # the mask may know of the order, too
        mask = mask.tril()
    if not is_causal:  # padded queries may see anything
        padded, anything = sequence < 0, torch.rand(mask.shape, generator=generator) < 0.5
        mask = mask | (anything & padded[:, None, :, None] & ~padded[:, None, None])
    sequence = sequence.expand(batch, -1)
    theirs = slow(heads, is_causal, sequence=sequence, **settings)
    mask = additive(mask) if form == "additive" else mask
    ours = fast(heads, attention_mask=mask, is_causal=is_causal, **settings)
    assert_agree(ours, theirs, heads, sequence >= 0)


def test_one_document_is_no_mask_and_one_with_padding_is_padding():
    heads = random_tensors(0, *[(2, 2, 12, 4)] * 3)
    read = partial(fast, heads, keys=2, size=2, segment=4)
    assert torch.equal(read(attention_mask=torch.ones(1, 1, 12, 12).bool()), read())
    valid = torch.arange(12).expand(2, -1) < torch.tensor([[12], [7]])
    documents = mask_of(valid.int() - 1)
    assert torch.equal(read(attention_mask=documents), read(attention_mask=valid))


@pytest.mark.slow
@given(
    heads=drawn_heads(),
    settings=drawn_settings(),
    side=st.sampled_from((None, *SIDES, "documents")),
    share=st.sampled_from((0.05, 0.5)),
    seed=seeds,
)
@how(max_examples=30)
def test_global_tokens_read_and_are_read_by_all(heads, settings, side, share, seed):
    batch, _, length, _ = heads[0].shape
    generator = torch.Generator().manual_seed(seed)
    everywhere = torch.rand(batch, length, generator=generator) < share
    everywhere[seed % batch] = seed % 3 == 0  # none, or all tokens, in one sequence
    sequence = everyone(heads).long() - 1
    if side == "documents":
        sequence = torch.randint(-1, 2, sequence.shape, generator=generator)
        sequence[:, 0] = 0
    elif side is not None:
        sequence = random_padding_mask(batch, length, side=side, seed=seed).long() - 1
    theirs = slow(heads, sequence=sequence, everywhere=everywhere, **settings)
    mask = everywhere if seed % 2 else everywhere.long()
    options = {"attention_mask": None if side is None else mask_of(sequence)}
    options["global_attention_mask"] = mask
    assert_agree(fast(heads, **options, **settings), theirs, heads, sequence >= 0)


@pytest.mark.slow
@given(heads=drawn_heads(), settings=drawn_settings(), seed=seeds)
def test_sequences_shorter_than_dense_below_are_read_by_sdpa(heads, settings, seed):
    batch, _, length, _ = heads[0].shape
    sequence = torch.randint(0, 3, (batch, length), generator=torch.Generator().manual_seed(seed))
    mask, shortest = mask_of(sequence), length // 3 + 1
    ours = fast(heads, attention_mask=mask, **settings | {"dense_below": shortest})
    scale = settings["scale"]
    plain = F.scaled_dot_product_attention(*heads, mask, scale=scale, enable_gqa=True)
    clustered = slow(heads, sequence=sequence, **settings)
    short = (mask.sum(-1) < shortest)[:, 0]  # [B, L]
    theirs = torch.where(short[:, None, :, None], plain, clustered)
    assert_agree(ours, theirs, heads, everyone(heads))


# --- batches -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("side", SIDES)
def test_a_batch_is_its_items_bit_for_bit(side, dtype):
    heads = [x.to(dtype) for x in random_tensors(1, *((4, h, 130, 8) for h in (4, 2, 2)))]
    valid = random_padding_mask(4, 130, side=side, seed=5, min_valid=20)
    leaves = [x.clone().requires_grad_() for x in heads]
    cotangent = random_tensors(2, (4, 4, 130, 8))[0].to(dtype) * valid[:, None, :, None]
    together = with_gradients(fast(leaves, attention_mask=valid, **SETTINGS), leaves, cotangent)
    with torch.inference_mode():
        assert torch.equal(fast(heads, attention_mask=valid, **SETTINGS), together[0])
    for item in range(4):
        own = valid[item]
        alone = [x[item : item + 1, :, own].clone().requires_grad_() for x in heads]
        results = with_gradients(fast(alone, **SETTINGS), alone, cotangent[item : item + 1, :, own])
        for part, whole in zip(results, together, strict=True):
            assert torch.equal(part[0], whole[item][:, own])
            assert not whole[item][:, ~own].any()


def test_a_sequence_is_the_same_by_itself_and_before_any_later_token():
    heads = random_tensors(3, *((3, h, 200, 4) for h in (4, 2, 2)))
    valid = random_padding_mask(3, 200, side="scattered", seed=1)
    causal = partial(fast, is_causal=True, window=2, **SETTINGS)
    for options in ({}, {"attention_mask": valid}):
        whole = causal(heads, **options)
        for row in range(3):
            own = {name: mask[row : row + 1] for name, mask in options.items()}
            assert torch.equal(causal([x[row : row + 1] for x in heads], **own)[0], whole[row])
        other = [x.clone() for x in heads]
        for x in other:
            x[:, :, 131:] = 3 * torch.randn_like(x[:, :, 131:])
        assert torch.equal(causal(other, **options)[:, :, :131], whole[:, :, :131])


# --- what holds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [None, "left", "scattered"])
def test_where_there_is_no_cluster_it_is_sdpa_bit_for_bit(side):
    heads = [x.requires_grad_() for x in random_tensors(4, *[(2, 2, 67, 8)] * 3)]
    valid = None if side is None else random_padding_mask(2, 67, side=side)
    shown = everyone(heads) if valid is None else valid
    mask = None if valid is None else valid[:, None, None]
    plain = F.scaled_dot_product_attention(*heads, mask).transpose(1, 2)[shown]
    ours = fast(heads, attention_mask=valid, size=64, segment=64).transpose(1, 2)[shown]
    results = [with_gradients(x, heads, torch.ones_like(x)) for x in (ours, plain)]
    assert all(map(torch.equal, *results))


def test_tokens_before_the_first_cluster_are_those_of_sdpa():
    heads = [x.float() for x in random_tensors(4, *[(1, 2, 4300, 8)] * 3)]
    ours = clustered_attention(*heads, is_causal=True)
    want = F.scaled_dot_product_attention(*heads, is_causal=True)
    torch.testing.assert_close(ours[:, :, :4096], want[:, :, :4096], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(ours[:, :, 4096:], want[:, :, 4096:], atol=1e-3)
    for length, rule in ((4096, {}), (579, {"dense_below": 0})):  # 4, a window, a segment less one
        short = [x[:, :, :length] for x in heads]
        ours = clustered_attention(*short, is_causal=True, **rule)
        assert torch.equal(ours, F.scaled_dot_product_attention(*short, is_causal=True))


@pytest.mark.parametrize("is_causal", [False, True])
@given(heads=drawn_heads((3, 17, 64, 65)), size=st.sampled_from((2, 4)))
def test_where_all_is_opened_and_read_it_is_attention(is_causal, heads, size):
    settings = {"keys": 99, "groups": 99, "size": size, "segment": 8, "margin": math.inf}
    theirs = F.scaled_dot_product_attention(*heads, is_causal=is_causal, enable_gqa=True)
    ours = fast(heads, is_causal=is_causal, window=1, **settings)
    assert_agree(ours, theirs, heads, everyone(heads))


@pytest.mark.parametrize("scale", [-0.7, 0.0])
@pytest.mark.parametrize("rule", [{"dense_below": 99}, {"keys": 99, "groups": 99, "size": 2}])
def test_scales_below_zero_are_read_in_causal_order(scale, rule):
    """SDPA's fast path multiplies its mask, too, and gives NaN."""
    query, key, value = random_tensors(3, *[(1, 2, 60, 8)] * 3)
    scores = (query @ key.mT * scale).masked_fill(torch.ones(60, 60).triu(1).bool(), -math.inf)
    settings = {"is_causal": True, "dense_below": 0, "segment": 8, "window": 1} | rule
    ours = clustered_attention(query, key, value, scale=scale, **settings)
    torch.testing.assert_close(ours, scores.softmax(-1) @ value, rtol=1e-5, atol=1e-5)
    paper = JatConfig.stones(heads=(0,), strength=0.0)
    plain = jump_attention(query, key, value, config=paper, scale=scale, is_causal=True)
    torch.testing.assert_close(plain, scores.softmax(-1) @ value)


def test_second_derivatives_are_refused():
    heads = [x.requires_grad_() for x in random_tensors(3, *[(1, 2, 60, 8)] * 3)]
    ours = clustered_attention(*heads, keys=2, size=2, segment=4, window=1, dense_below=0)
    (first,) = torch.autograd.grad(ours.square().sum(), heads[0], create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only, got create_graph=True"):
        first.sum().backward()
