import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.masks import TokenMask
from jat_graph.masks.tokens import resolve_mask, shared_row
from tests.oracles import reference_mask
from tests.support import CAUSAL_MASKS, MASKS, PADDING_MASKS, heads_and_masks, make_mask


def whole(mask, query):
    """M as one matrix a sequence and head."""
    length = query.size(2)
    allowed = mask.allowed(length, query.device)
    everything = torch.ones(*query.shape[:3], length, dtype=torch.bool)
    return everything if allowed is None else everything & allowed


@given(case=heads_and_masks())
def test_the_rule_is_the_oracles(case):
    query = case.query
    mask = resolve_mask(case.mask, case.is_causal, query)
    truth = reference_mask(query, case.mask, case.is_causal)
    assert torch.equal(whole(mask, query), truth.pairs)


@given(case=heads_and_masks())
def test_sdpa_gets_the_mask_and_the_bias_of_every_valid_row(case):
    query = case.query
    length = query.size(2)
    truth = reference_mask(query, case.mask, case.is_causal)
    attn_mask, causal = resolve_mask(case.mask, case.is_causal, query).attention_mask(length, query)
    scores = torch.zeros(*query.shape[:3], length, dtype=query.dtype)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if causal:
        scores = scores.masked_fill(~torch.ones(length, length).tril().bool(), -math.inf)
    want = truth.bias.masked_fill(~truth.visible, -math.inf)
    rows = case.valid.bool().expand_as(want)
    assert torch.equal(scores[rows], want[rows])


@pytest.mark.parametrize("kind", MASKS)
def test_each_kind_takes_its_cheapest_form(kind):
    query = torch.zeros(3, 2, 9, 4)
    mask = resolve_mask(*make_mask(kind, 3, 2, 9, seed=1), query)
    assert mask.causal == (kind in CAUSAL_MASKS or kind == "pairs causal")
    assert (mask.pairs is None) == (kind in PADDING_MASKS + CAUSAL_MASKS)
    assert (mask.bias is not None) == (kind in ("padding bias", "pairs additive"))
    if kind in ("none", "causal", "causal additive"):
        assert mask.valid is None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("side", ["right", "left", "scattered"])
@given(seed=st.integers(0, 999))
def test_padding_is_recognised_whatever_padded_queries_see(side, additive, causal, seed):
    padding, _ = make_mask(side, 2, 1, 7, seed=seed)
    pairs = padding[:, None, None, :].expand(2, 1, 7, 7)
    if causal:
        pairs = pairs.tril()
    generator = torch.Generator().manual_seed(seed)
    anything = torch.rand(2, 1, 7, 7, generator=generator) < 0.5
    if causal:
        anything = anything.tril()
    pairs = torch.where(padding[:, None, :, None], pairs, anything & padding[:, None, None, :])
    form = pairs
    if additive:
        form = torch.zeros(pairs.shape).masked_fill(~pairs, torch.finfo(torch.float32).min)
    mask = resolve_mask(form, False, torch.zeros(2, 3, 7, 4))
    assert mask.pairs is None
    assert mask.bias is None
    assert mask.causal == causal
    assert mask.valid is None or torch.equal(mask.valid[:, 0], padding)
    assert mask.valid is not None or padding.all()


@given(case=heads_and_masks(PADDING_MASKS))
def test_a_row_that_all_queries_share_is_read_as_padding_without_a_look_at_it(case):
    query = case.query
    row = torch.rand(query.size(0), 1, 1, query.size(2)) < 0.5
    row[..., 0] = True

    def expanded(mask):
        return mask.expand(-1, query.size(1), query.size(2), -1)

    assert shared_row(expanded(row)).size(2) == 1
    mask = resolve_mask(expanded(row.to("meta")), False, query.to("meta"))  # it has no values
    assert mask.pairs is None
    assert mask.valid.size(2) == query.size(2)
    found = whole(resolve_mask(expanded(row), False, query), query)
    assert ((found == row) | ~row.mT).all()  # for every query that is no padding itself
    matrix = expanded(row).contiguous().clone()
    assert torch.equal(shared_row(matrix), matrix)


def test_a_causal_mask_with_the_flag_is_still_causal():
    triangle = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    assert resolve_mask(triangle, True, torch.zeros(2, 2, 5, 4)) == TokenMask(causal=True)
    everything = torch.ones(1, 1, 5, 5, dtype=torch.bool)
    assert resolve_mask(everything, True, torch.zeros(2, 2, 5, 4)) == TokenMask(causal=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_lowest_half_of_a_dtype_is_masked(dtype):
    lowest = torch.finfo(dtype).min
    row = torch.tensor([0.0, lowest, lowest / 2, lowest / 4, -math.inf], dtype=dtype)
    mask = resolve_mask(row.expand(1, 5), False, torch.zeros(1, 2, 5, 4, dtype=dtype))
    assert mask.valid[0, 0].tolist() == [True, False, False, True, False]
    assert mask.bias.flatten().tolist() == [0.0, 0.0, 0.0, lowest / 4, 0.0]


def test_heads_are_cut_where_there_are_some():
    query = torch.zeros(2, 3, 5, 4)
    pairs, _ = make_mask("pairs per head", 2, 3, 5)
    cut = resolve_mask(pairs, False, query).select_heads((0, 2))
    assert torch.equal(cut.pairs, pairs[:, [0, 2]])
    shared, _ = make_mask("right", 2, 3, 5)
    kept = resolve_mask(shared, True, query).select_heads((1,))
    assert torch.equal(kept.valid[:, 0], shared)
    assert kept.causal


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.ones(2, 6, dtype=torch.bool), r"attention_mask must be \[2, 5\] or .* got \[2, 6\]"),
        (torch.ones(1, 5, dtype=torch.bool), r"got \[1, 5\]"),
        (torch.ones(2, 5, 5, dtype=torch.bool), r"got \[2, 5, 5\]"),
        (torch.ones(2, 3, 4, 5, dtype=torch.bool), r"got \[2, 3, 4, 5\]"),
        (torch.ones(2, 2, 5, 5, dtype=torch.bool), r"\[2\|1, 3\|1, 5, 5\], got \[2, 2, 5, 5\]"),
        (torch.ones(2, 1, 5, 1, dtype=torch.bool), r"got \[2, 1, 5, 1\]"),
        (torch.ones(2, 5, dtype=torch.long), "got torch.int64: use mask.bool()"),
        (torch.full((2, 5), math.nan), r"must hold finite biases or -inf, got NaN or \+inf"),
        (torch.full((2, 5), math.inf), r"must hold finite biases or -inf, got NaN or \+inf"),
        ([[True] * 5] * 2, "attention_mask must be a tensor, got list"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, words):
    with pytest.raises(ValueError, match=words):
        resolve_mask(mask, False, torch.zeros(2, 3, 5, 4))
