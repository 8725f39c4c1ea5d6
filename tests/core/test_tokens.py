"""Masks of every form: what they are taken for, as attention and its graphs show it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, attention_graph, jump_attention
from tests.inputs import random_heads
from tests.support import MASKS, PAIR_MASKS, assert_equal, count_operations, make_mask

# This backend takes padding and causal order only: it shows what a mask is taken for.
STRICT = JatConfig.paper(threshold=1.0, backend="threshold")


@pytest.mark.parametrize("kind", MASKS)
def test_padding_and_causal_order_are_recognised_in_every_form(kind):
    heads, (mask, causal) = random_heads(3, 2, 9, 4)[:3], make_mask(kind, 3, 2, 9, seed=1)
    options = {"attention_mask": mask, "is_causal": causal}
    if kind in PAIR_MASKS:
        with pytest.raises(ValueError, match="backend"):
            jump_attention(*heads, config=STRICT, **options)
    else:
        got = jump_attention(*heads, config=STRICT, **options)
        assert_equal(got, jump_attention(*heads, config=STRICT.replace(backend="dense"), **options))


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("side", ["right", "left", "scattered"])
@given(seed=st.integers(0, 999))
def test_padding_is_recognised_whatever_padded_queries_see(side, additive, causal, seed):
    padding, _ = make_mask(side, 2, 1, 7, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    anything = torch.rand(2, 1, 7, 7, generator=generator) < 0.5
    form = padding[:, None, None, :] & (anything | padding[:, None, :, None])
    if causal:
        form = form.tril()
    if additive:
        form = torch.zeros(form.shape).masked_fill(~form, torch.finfo(torch.float32).min)
    heads = random_heads(2, 3, 7, 4, seed=seed)[:3]
    got = jump_attention(*heads, config=STRICT, attention_mask=form)
    wanted = jump_attention(*heads, config=STRICT, attention_mask=padding, is_causal=causal)
    valid = padding[:, None, :, None].expand_as(got)
    assert_equal(got[valid], wanted[valid])


def test_a_row_that_all_queries_share_is_read_as_padding_without_a_look_at_it():
    heads, (padding, _) = random_heads(2, 2, 9, 4)[:3], make_mask("scattered", 2, 2, 9)
    row = padding[:, None, None].expand(-1, 2, 9, -1)
    outputs, looks = [], []
    for mask in (padding, row, row.contiguous()):
        with count_operations() as operations:
            outputs.append(jump_attention(*heads, config=STRICT, attention_mask=mask))
        looks.append(operations["aten._local_scalar_dense.default"])
    valid = padding[:, None, :, None].expand_as(outputs[0])
    assert_equal(outputs[1][valid], outputs[0][valid])
    assert looks[1] == looks[0] < looks[2]


@pytest.mark.parametrize("mask", [torch.ones(1, 1, 5, 5).tril() > 0, torch.ones(1, 1, 5, 5) > 0])
def test_a_causal_mask_with_the_flag_is_still_causal(mask):
    heads = random_heads(2, 2, 5, 4)[:3]
    got = jump_attention(*heads, config=STRICT, attention_mask=mask, is_causal=True)
    assert_equal(got, jump_attention(*heads, config=STRICT, is_causal=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_lowest_half_of_a_dtype_is_masked(dtype):
    lowest = torch.finfo(dtype).min
    row = torch.tensor([[0.0, lowest, lowest / 2, lowest / 4, -math.inf]], dtype=dtype)
    query = torch.ones(1, 2, 5, 4, dtype=dtype)
    graphs = attention_graph(query, query, config=JatConfig(), attention_mask=row)
    assert [graph.token.tolist() for graph in graphs.to_data_list()] == [[0, 3], [0, 3]]


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(2, 6, dtype=torch.bool),
        torch.ones(1, 5, dtype=torch.bool),
        torch.ones(2, 5, 5, dtype=torch.bool),
        torch.ones(2, 3, 4, 5, dtype=torch.bool),
        torch.ones(2, 2, 5, 5, dtype=torch.bool),
        torch.ones(2, 1, 5, 1, dtype=torch.bool),
        torch.ones(2, 5, dtype=torch.long),
        torch.full((2, 5), math.nan),
        torch.full((2, 5), math.inf),
        [[True] * 5] * 2,
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask):
    heads = random_heads(2, 3, 5, 4)[:3]
    with pytest.raises(ValueError, match="attention_mask must"):
        jump_attention(*heads, config=JatConfig(), attention_mask=mask)
