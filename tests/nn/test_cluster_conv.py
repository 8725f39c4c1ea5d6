"""ClusterConv against the fast path, and against softmax over a matrix of all scores."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from jat_graph import JatConfig, attention_graph, clustered_attention, tree_graph
from jat_graph.nn import ClusterConv
from tests.inputs import random_padding_mask
from tests.support import assert_equal, random_tensors

SETTINGS = st.fixed_dictionaries(
    {
        "keys": st.sampled_from((0, 1, 4, 50)),
        "groups": st.sampled_from((1, 2)),
        "size": st.sampled_from((1, 2, 4)),
        "segment": st.sampled_from((4, 8)),
        "window": st.sampled_from((1, 6)),
        "propagate": st.booleans(),
    }
)


def valid_rows(mask, value):
    return mask.unsqueeze(1).expand(value.shape[:3])


def assert_same(found, wanted, tensors):
    """Compare values and gradients."""
    assert_equal(found, wanted)
    (cotangent,) = random_tensors(9, found.shape)
    pairs = [torch.autograd.grad((x * cotangent).sum(), tensors) for x in (found, wanted)]
    for got, want in zip(*pairs, strict=True):
        assert_equal(got, want)


@pytest.mark.slow
@given(
    own=SETTINGS,
    causal=st.booleans(),
    length=st.sampled_from((1, 7, 33, 120)),
    side=st.sampled_from(("right", "left", "scattered")),
    seed=st.integers(0, 999),
)
def test_it_gives_what_the_fast_path_gives(own, causal, length, side, seed):
    shapes = (2, 4, length, 4), (2, 2, length, 4), (2, 2, length, 3)
    tensors = [x.requires_grad_() for x in random_tensors(seed, *shapes)]
    query, key, value = tensors
    mask = random_padding_mask(2, length, side=side, seed=seed)
    options = {"attention_mask": mask, "is_causal": causal}
    rows = valid_rows(mask, query)
    values = value.repeat_interleave(2, 1)[rows]
    wanted = clustered_attention(*tensors, enable_gqa=True, dense_below=0, **options, **own)
    graphs = attention_graph(query, key, config=JatConfig.clustered(**own), **options)
    assert_same(ClusterConv()(values, graphs), wanted[rows], tensors)
    config = JatConfig.clustered(**own | {"propagate": True})
    graphs = attention_graph(query, key, config=config, **options)
    assert_equal(ClusterConv(rest=own["propagate"])(values, graphs), wanted[rows])


@given(own=SETTINGS, seed=st.integers(0, 999))
def test_without_the_rest_it_reads_nothing_else(own, seed):
    tensors = [x.requires_grad_() for x in random_tensors(seed, *[(1, 2, 33, 4)] * 3)]
    query, key, value = tensors
    graphs = tree_graph(query, key, config=JatConfig.clustered(**own))
    found = ClusterConv(rest=False)(value.flatten(0, 2), graphs).view(1, 2, 33, 4)
    read = torch.zeros(2, 33, 33, dtype=torch.bool)
    for head, graph in enumerate(graphs.to_data_list()):
        read[(head, *graph["token", "read_by", "token"].edge_index.flip(0))] = True
    scores = (query @ key.mT / 2).masked_fill(~read, -torch.inf)
    assert_same(found, scores.softmax(-1) @ value, tensors)


def test_one_graph_and_a_batch_of_it_are_the_same():
    query, key, value = random_tensors(4, *[(2, 3, 19, 4)] * 3)
    batch = tree_graph(query, key, config=JatConfig.clustered(keys=2, size=2, segment=4))
    whole = ClusterConv()(value.flatten(0, 2), batch).view_as(value).flatten(0, 1)
    for number, graph in enumerate(batch.to_data_list()):
        assert_equal(ClusterConv()(value.flatten(0, 1)[number], graph), whole[number])


def test_it_has_nothing_to_learn_and_says_what_it_is():
    assert not list(ClusterConv().parameters())
    assert repr(ClusterConv(rest=False)) == "ClusterConv(rest=False)"


def test_bad_input_is_refused_in_one_line():
    query, key = random_tensors(0, *[(1, 1, 9, 4)] * 2)
    graph = tree_graph(query, key, config=JatConfig.clustered())[0]
    for x in (torch.ones(8, 4), torch.ones(9), torch.ones(1, 9, 4)):
        with pytest.raises(ValueError, match=r"x must be \[9, F\] for the graph's tokens") as error:
            ClusterConv()(x, graph)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"must be a HeteroData of .* got Data"):
        ClusterConv()(x, Data(edge_index=torch.zeros(2, 0).long(), num_nodes=9))
    with pytest.raises(ValueError, match="rest must be"):
        ClusterConv(rest=1)
