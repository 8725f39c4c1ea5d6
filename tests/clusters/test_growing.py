"""The tree of keys is a function of the keys alone: however it has grown, it is the oracle's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.clusters.choice import Nodes, Rule
from jat_graph.clusters.tree import FAN, Tree, _halve_numba, grow, grow_whole, halve_torch
from tests.clusters.support import random_heads, with_twins
from tests.oracles import tree_levels, tree_means
from tests.support import random_tensors

SIZES = st.sampled_from(((2, 8), (1, 4), (3, 12), (5, 5), (8, 64)))


def assert_same_tree(one: Tree, other: Tree) -> None:
    assert torch.equal(one.keys, other.keys) and one[1:] == other[1:]


def keys_of(length: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return random_heads(length, seed=seed)[1].to(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
@given(length=st.integers(0, 200), seed=st.integers(0, 99), sizes=SIZES, twins=st.booleans())
def test_nodes_are_those_of_the_oracle(causal, length, seed, sizes, twins):
    key = keys_of(length, seed)
    key = with_twins(key) if twins else key
    tree = grow(key, *sizes) if causal else grow_whole(key, sizes[0])
    assert tree.keys.size(1) == max(0, length - 4) // sizes[causal] * sizes[causal]
    rule = Rule(groups=0, size=sizes[0], segment=sizes[1], causal=causal)  # which meets few nodes
    means = Nodes.of(tree, key, key, rule).keys
    for head, own in enumerate(key):
        wanted = tree_levels(own, *sizes, None if causal else length)
        inside, width = torch.eye(length, dtype=torch.bool)[4:][tree.keys[head].long()], tree.size
        assert [len(x[head]) for x in means if len(x[head])] == [len(x) for x in wanted]
        for own_means, want in zip(means, wanted, strict=False):
            inside = inside[: len(inside) // width * width].unflatten(0, (-1, width)).any(dim=1)
            assert torch.equal(inside, want)
            near, width = {"rtol": 1e-12, "atol": 1e-12}, FAN
            torch.testing.assert_close(own_means[head], tree_means(inside, own), **near)


@pytest.mark.parametrize("width", [5, 16, 37, 64])
def test_loops_halve_as_torch_does(width):
    (x,) = random_tensors(3, (3, 3, 64, width))
    assert torch.equal(_halve_numba(x, 8), halve_torch(x, 8))
    x = x[:, :, torch.arange(64) // 3]
    assert torch.equal(_halve_numba(x, 4), halve_torch(x, 4))


@pytest.mark.parametrize("distinct", [None, 1, 3])
@given(
    ends=st.lists(st.integers(0, 200), max_size=12),
    seed=st.integers(0, 99),
    sizes=SIZES,
    dtype=st.sampled_from((torch.float64, torch.float32, torch.bfloat16)),
)
def test_chunks_of_any_size_grow_the_tree_of_the_whole(distinct, ends, seed, sizes, dtype):
    key = keys_of(200, seed, dtype)
    if distinct is not None:  # equal keys
        key = key[:, torch.arange(200) * 7 // 3 % distinct]
    tree = None
    for end in sorted(ends):
        tree = grow(key[:, :end], *sizes, tree)
        assert_same_tree(tree, grow(key[:, :end], *sizes))


@given(
    length=st.integers(4, 200), seed=st.integers(0, 99), sizes=SIZES, segments=st.integers(0, 70)
)
def test_a_crop_is_the_tree_of_fewer_and_grows_again(length, seed, sizes, segments):
    key = keys_of(length, seed)
    whole = grow(key, *sizes)
    cropped = whole.crop(segments)
    assert_same_tree(cropped, grow(key[:, : 4 + segments * sizes[1]], *sizes))
    other = torch.cat([key[:, : 4 + segments * sizes[1]], keys_of(90, seed + 100)], dim=1)
    assert_same_tree(grow(other, *sizes, cropped), grow(other, *sizes))
    assert_same_tree(grow(key, *sizes, cropped), whole)
