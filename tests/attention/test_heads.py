import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.attention.heads import merge_heads, neighbours, split_heads
from tests.support import count_operations


@st.composite
def grouped(draw):
    """Draw groups of heads that cover them all, and a tensor in one of two layouts."""
    heads = draw(st.integers(1, 6))
    owners = draw(st.lists(st.integers(0, 2), min_size=heads, max_size=heads))
    groups = [tuple(h for h in range(heads) if owners[h] == owner) for owner in set(owners)]
    tensor = torch.arange(2.0 * heads * 3 * 5).view(2, heads, 3, 5)
    if draw(st.booleans()):
        tensor = tensor.transpose(1, 2).contiguous().transpose(1, 2)
    return groups, tensor


@given(drawn=grouped())
def test_what_is_split_is_merged_again(drawn):
    groups, tensor = drawn
    parts = split_heads(tensor, groups)
    for group, part in zip(groups, parts, strict=True):
        assert torch.equal(part, tensor[:, list(group)])
    whole = merge_heads(groups, parts)
    assert torch.equal(whole, tensor)
    assert whole.stride() == tensor.stride()


@pytest.mark.parametrize("groups", [[(0, 1), (2, 3, 4)], [(1, 2), (0, 3, 4)], [(0, 2), (1, 3, 4)]])
def test_the_whole_is_copied_once_forward_and_once_backward(groups):
    leaf = torch.randn(2, 5, 3, 4, requires_grad=True)
    with count_operations() as seen:
        parts = split_heads(leaf, groups)
        taken_apart = seen["aten.cat.default"]
        whole = merge_heads(groups, parts)
        assert seen["aten.cat.default"] == taken_apart + 1
        whole.backward(torch.ones_like(whole))
    assert taken_apart == sum(len(neighbours(group)) > 1 for group in groups)
    assert seen["aten.cat.default"] == 2 * taken_apart + 2
    written = {"aten.zeros.default", "aten.new_zeros.default", "aten.slice_backward.default"}
    assert not written & set(seen)
