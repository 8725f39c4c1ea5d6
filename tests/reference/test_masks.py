import torch

from jat_graph.reference import reference_mask
from jat_graph.testing import random_padding_mask

QUERY = torch.zeros(2, 3, 4, 2)


def test_no_mask_allows_everything():
    mask = reference_mask(QUERY)
    assert mask.pairs.all() and mask.visible.all() and not mask.bias.any()
    assert mask.pairs.shape == (2, 3, 4, 4)


def test_causal_is_the_lower_triangle():
    mask = reference_mask(QUERY, is_causal=True)
    want = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    assert torch.equal(mask.pairs, want.expand(2, 3, 4, 4))
    assert torch.equal(mask.visible, mask.pairs)


def test_padding_hides_keys_from_all_and_isolates_padding_in_the_graph():
    valid = torch.tensor([[True, True, True, False], [False, True, True, True]])
    mask = reference_mask(QUERY, valid)
    assert torch.equal(mask.visible, valid[:, None, None, :].expand(2, 3, 4, 4))
    assert torch.equal(mask.pairs, (valid[:, None, :, None] & mask.visible))


def test_padding_as_2d_4d_bool_and_additive_are_the_same():
    valid = random_padding_mask(2, 4, seed=3)
    assert not valid.all()
    want = reference_mask(QUERY, valid)
    lowest = torch.zeros(2, 4).masked_fill(~valid, torch.finfo(torch.float32).min)
    infinite = torch.zeros(2, 4).masked_fill(~valid, float("-inf"))
    wide = valid[:, None, None, :].expand(2, 1, 4, 4)
    for other in (lowest, infinite, wide, valid[:, None, None, :]):
        got = reference_mask(QUERY, other)
        assert torch.equal(got.pairs, want.pairs)
        assert torch.equal(got.visible, want.visible)
        assert not got.bias.any()


def test_finite_biases_are_kept_and_do_not_mask():
    bias = torch.randn(2, 1, 4, 4)
    bias[0, 0, 1, 2] = float("-inf")
    mask = reference_mask(QUERY, bias)
    assert not mask.visible[0, 0, 1, 2]
    assert mask.visible.sum() == 2 * 3 * 16 - 3
    assert mask.bias[0, 0, 1, 2] == 0
    assert mask.bias[1, 2, 3, 3] == bias[1, 0, 3, 3]


def test_half_of_the_lowest_number_is_masked_in_the_masks_own_dtype():
    half = torch.finfo(torch.float16).min / 2
    bias = torch.zeros(2, 1, 4, 4, dtype=torch.float16)
    bias[..., 0] = half
    bias[..., 1] = half + 32
    mask = reference_mask(QUERY, bias)
    assert not mask.visible[..., 0].any() and mask.visible[..., 1:].all()


def test_causal_combines_with_padding():
    valid = torch.tensor([[False, True, True, True], [True, True, False, False]])
    mask = reference_mask(QUERY, valid, is_causal=True)
    order = torch.ones(4, 4).tril().bool()
    assert torch.equal(mask.pairs, reference_mask(QUERY, valid).pairs & order)
