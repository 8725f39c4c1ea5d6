import torch

from tests.oracles import reference_mask

QUERY = torch.zeros(2, 3, 4, 2)


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


def test_finite_biases_are_kept_and_do_not_mask():
    bias = torch.randn(2, 1, 4, 4)
    bias[0, 0, 1, 2] = float("-inf")
    mask = reference_mask(QUERY, bias)
    assert not mask.visible[0, 0, 1, 2]
    assert mask.visible.sum() == 2 * 3 * 16 - 3
    assert mask.bias[0, 0, 1, 2] == 0
    assert mask.bias[1, 2, 3, 3] == bias[1, 0, 3, 3]
