"""ClusterConv against the fast path, and against softmax over a matrix of all scores."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from jat_graph import JatConfig, attention_graph, cluster_graph, clustered_attention
from jat_graph.nn import ClusterConv
from tests.inputs import random_padding_mask
from tests.support import assert_equal, random_tensors


@st.composite
def settings(draw):
    return {
        "clusters": draw(st.sampled_from((None, 1, 4, 50))),
        "keys": draw(st.sampled_from((0, 1, 3, 50))),
        "block": draw(st.sampled_from((0, 1, 4, 50))),
    }


def run(tensors, mask, settings, layer=None):
    """Return what the layer gives each valid token of each head, [N, Dv]."""
    query, key, value = tensors
    config = JatConfig.clustered(**settings)
    graphs = cluster_graph(query, key, config=config, attention_mask=mask)
    return (layer or ClusterConv())(value[valid_rows(mask, value)], graphs)


def valid_rows(mask, value):
    return mask.unsqueeze(1).expand(value.shape[:3])


def assert_same(found, wanted, tensors):
    """Compare values and gradients."""
    assert_equal(found, wanted)
    (cotangent,) = random_tensors(9, found.shape)
    pairs = [torch.autograd.grad((x * cotangent).sum(), tensors) for x in (found, wanted)]
    for got, want in zip(*pairs, strict=True):
        assert_equal(got, want)


@given(
    own=settings(),
    length=st.sampled_from((1, 2, 7, 16, 33)),
    side=st.sampled_from(("right", "left", "scattered")),
    seed=st.integers(0, 999),
)
def test_it_gives_what_the_fast_path_gives(own, length, side, seed):
    tensors = [x.requires_grad_() for x in random_tensors(seed, *[(2, 2, length, 4)] * 3)]
    mask = random_padding_mask(2, length, side=side, seed=seed)
    found = run(tensors, mask, own)
    wanted = clustered_attention(*tensors, attention_mask=mask, dense_below=0, **own)
    assert_same(found, wanted[valid_rows(mask, wanted)], tensors)


@given(own=settings(), seed=st.integers(0, 999))
def test_without_the_rest_it_reads_nothing_else(own, seed):
    tensors = [x.requires_grad_() for x in random_tensors(seed, *[(1, 2, 13, 4)] * 3)]
    found = run(tensors, torch.ones(1, 13, dtype=torch.bool), own, ClusterConv(rest=False))
    found = found.view(1, 2, 13, 4)
    query, key, value = tensors
    graphs = cluster_graph(query, key, config=JatConfig.clustered(**own)).to_data_list()
    read = torch.zeros(2, 13, 13, dtype=torch.bool)
    for head, graph in enumerate(graphs):
        read[(head, *graph["read_by"].edge_index.flip(0))] = True
    scores = (query @ key.mT / 2).masked_fill(~read, -torch.inf)
    weights = scores.softmax(-1).nan_to_num()  # with no key, nothing
    assert_same(found, weights @ value, tensors)


@given(
    own=st.fixed_dictionaries(
        {
            "keys": st.sampled_from((1, 4, 50)),
            "groups": st.sampled_from((1, 2)),
            "size": st.sampled_from((1, 2, 4)),
            "segment": st.sampled_from((4, 8)),
            "window": st.sampled_from((1, 6)),
            "propagate": st.booleans(),
        }
    ),
    length=st.sampled_from((1, 7, 33, 120)),
    side=st.sampled_from(("right", "left", "scattered")),
    seed=st.integers(0, 999),
)
def test_in_causal_order_it_gives_what_the_fast_path_gives(own, length, side, seed):
    shapes = (2, 4, length, 4), (2, 2, length, 4), (2, 2, length, 3)
    tensors = [x.requires_grad_() for x in random_tensors(seed, *shapes)]
    query, key, value = tensors
    mask = random_padding_mask(2, length, side=side, seed=seed)
    options = {"attention_mask": mask, "is_causal": True}
    rows = valid_rows(mask, query)
    values = value.repeat_interleave(2, 1)[rows]
    wanted = clustered_attention(*tensors, enable_gqa=True, dense_below=0, **options, **own)
    graphs = attention_graph(query, key, config=JatConfig.clustered(**own), **options)
    assert_same(ClusterConv()(values, graphs), wanted[rows], tensors)
    config = JatConfig.clustered(**own | {"propagate": True})
    graphs = attention_graph(query, key, config=config, **options)
    assert_equal(ClusterConv(rest=own["propagate"])(values, graphs), wanted[rows])


def test_a_far_key_that_no_cluster_names_counts_by_its_clusters_score():
    query, key, value = random_tensors(3, *[(1, 1, 24, 4)] * 3)
    graph = cluster_graph(query, key, config=JatConfig.clustered(clusters=3, keys=1, block=2))[0]
    joined, read = graph["joined"].edge_index[1], graph["read_by"].edge_index
    scores = (graph["cluster"].query @ graph["token"].key.T)[joined]
    scores[read[1], read[0]] = graph["read_by"].score
    assert read.size(1) < 24 * 24 / 2
    assert_equal(ClusterConv()(value[0, 0], graph), scores.softmax(-1) @ value[0, 0])


def test_one_graph_and_a_batch_of_it_are_the_same():
    query, key, value = random_tensors(4, *[(2, 3, 9, 4)] * 3)
    batch = cluster_graph(query, key, config=JatConfig.clustered(clusters=3, keys=1, block=2))
    whole = ClusterConv()(value.flatten(0, 2), batch).view_as(value).flatten(0, 1)
    for number, graph in enumerate(batch.to_data_list()):
        assert_equal(ClusterConv()(value.flatten(0, 1)[number], graph), whole[number])


def test_it_has_nothing_to_learn_and_says_what_it_is():
    assert not list(ClusterConv().parameters())
    assert repr(ClusterConv(rest=False)) == "ClusterConv(rest=False)"


def test_bad_input_is_refused_in_one_line():
    query, key = random_tensors(0, *[(1, 1, 9, 4)] * 2)
    graph = cluster_graph(query, key, config=JatConfig.clustered())[0]
    for x in (torch.ones(8, 4), torch.ones(9), torch.ones(1, 9, 4)):
        with pytest.raises(ValueError, match=r"x must be \[9, F\] for the graph's tokens") as error:
            ClusterConv()(x, graph)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"must be a HeteroData of .* got Data"):
        ClusterConv()(x, Data(edge_index=torch.zeros(2, 0).long(), num_nodes=9))
    with pytest.raises(ValueError, match="rest must be"):
        ClusterConv(rest=1)
