"""The tree of keys is a function of the keys alone: however it has grown, it is the oracle's."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.clusters.tree import Tree, grow, new_tree, node_means
from tests.clusters.support import random_heads, with_twins
from tests.oracles import tree_levels, tree_means

SIZES = st.sampled_from(((2, 8), (1, 3), (3, 12), (50, 5), (8, 64)))


def assert_same_tree(one: Tree, other: Tree) -> None:
    assert len(one.levels) == len(other.levels)
    for mine, its in zip(one.levels, other.levels, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(mine, its, strict=True))


def keys_of(length: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return random_heads(length, seed=seed)[1].to(dtype)


@given(length=st.integers(0, 200), seed=st.integers(0, 99), sizes=SIZES, twins=st.booleans())
def test_nodes_are_those_of_the_oracle(length, seed, sizes, twins):
    key = keys_of(length, seed)
    key = with_twins(key, *sizes) if twins else key
    tree = grow(new_tree(*sizes), key)
    assert tree.segments == max(0, length - 4) // sizes[1]
    means = node_means(tree, key[:, 4 : 4 + tree.segments * tree.segment])
    for head, own in enumerate(key):
        wanted = tree_levels(own, *sizes)
        assert len(wanted) == len(tree.levels)
        inside = torch.eye(length, dtype=torch.bool)[4:]
        for level, mean, want in zip(tree.levels, means, wanted, strict=True):
            starts, members = level.starts[head].tolist(), level.members[head].tolist()
            inside = torch.stack([inside[members[a:b]].any(dim=0) for a, b in pairwise(starts)])
            assert torch.equal(inside, want.members)
            assert torch.equal(level.sizes[head], inside.sum(1).int())
            torch.testing.assert_close(mean[head], tree_means(inside, own), rtol=1e-12, atol=1e-12)


@given(
    ends=st.lists(st.integers(0, 200), max_size=12),
    seed=st.integers(0, 99),
    sizes=SIZES,
    dtype=st.sampled_from((torch.float64, torch.float32, torch.bfloat16)),
)
def test_chunks_of_any_size_grow_the_tree_of_the_whole(ends, seed, sizes, dtype):
    key = keys_of(200, seed, dtype)
    tree = new_tree(*sizes)
    for end in sorted(ends):
        tree = grow(tree, key[:, :end])
        assert_same_tree(tree, grow(new_tree(*sizes), key[:, :end]))


@given(
    length=st.integers(4, 200), seed=st.integers(0, 99), sizes=SIZES, segments=st.integers(0, 70)
)
def test_a_crop_is_the_tree_of_fewer_and_grows_again(length, seed, sizes, segments):
    key = keys_of(length, seed)
    whole = grow(new_tree(*sizes), key)
    cropped = whole.crop(segments)
    assert_same_tree(cropped, grow(new_tree(*sizes), key[:, : 4 + segments * sizes[1]]))
    other = torch.cat([key[:, : 4 + segments * sizes[1]], keys_of(90, seed + 100)], dim=1)
    assert_same_tree(grow(cropped, other), grow(new_tree(*sizes), other))
    assert_same_tree(grow(cropped, key), whole)


@pytest.mark.parametrize("distinct", [1, 3])
@given(ends=st.lists(st.integers(4, 200), max_size=5), seed=st.integers(0, 99))
def test_equal_keys_grow_alike_too(distinct, ends, seed):
    few = keys_of(distinct, seed)
    key = few[:, torch.arange(200) * 7 // 3 % distinct]
    tree = new_tree(2, 8)
    for end in [*sorted(ends), 200]:
        tree = grow(tree, key[:, :end])
    assert_same_tree(tree, grow(new_tree(2, 8), key))
