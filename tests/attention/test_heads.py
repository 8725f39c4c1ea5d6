from itertools import pairwise

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


@given(drawn=grouped(), weights=st.lists(st.floats(-2, 2), min_size=3, max_size=3))
def test_gradients_are_those_of_indexing(drawn, weights):
    groups, tensor = drawn
    leaf, twin = (tensor.clone().requires_grad_() for _ in range(2))
    cotangent = torch.randn(tensor.shape)
    parts = [
        part.square() * weight
        for part, weight in zip(split_heads(leaf, groups), weights, strict=False)
    ]
    (got,) = torch.autograd.grad(merge_heads(groups, parts), leaf, cotangent)
    by_head = torch.empty(tensor.size(1))
    for group, weight in zip(groups, weights, strict=False):
        by_head[list(group)] = weight
    (want,) = torch.autograd.grad(twin.square() * by_head[:, None, None], twin, cotangent)
    torch.testing.assert_close(got, want)


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


@given(heads=st.sets(st.integers(0, 12)))
def test_neighbours_follow_each_other(heads):
    runs = neighbours(tuple(sorted(heads)))
    assert [head for run in runs for head in run] == sorted(heads)
    assert all(list(run) == list(range(run[0], run[-1] + 1)) for run in runs)
    assert all(later[0] > run[-1] + 1 for run, later in pairwise(runs))


def test_one_group_is_the_tensor_itself():
    tensor = torch.randn(1, 3, 2, 2)
    (part,) = split_heads(tensor, [(0, 1, 2)])
    assert part is tensor
    assert merge_heads([(0, 1, 2)], [tensor]) is tensor
