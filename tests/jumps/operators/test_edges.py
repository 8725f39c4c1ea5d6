import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.jumps.operators.threshold
from jat_graph import JatConfig, PairGraph
from jat_graph.core.masks import TokenMask, resolve_mask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import MapScores, QueryKeyScores
from jat_graph.jumps.operators.sparse import GROUP, heaviest, vote_edges
from jat_graph.operators import DenseOperator
from tests.inputs import random_heads
from tests.oracles import reference_prune
from tests.support import (
    CAUSAL_MASKS,
    PADDING_MASKS,
    PAIR_MASKS,
    MemoryMeter,
    assert_equal,
    heads_and_masks,
)

MAX_NEIGHBORS = st.sampled_from((None, 1, 2, 4, 99))


@st.composite
def integer_maps(draw, masks):
    """Draw the adjacency of a map of small integers, with many ties, under a mask."""
    case = draw(heads_and_masks(masks))
    mask = resolve_mask(case.mask, case.is_causal, case.query)
    batch, heads, length = case.query.shape[:3]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    scores = torch.randint(-2, 3, (batch, heads, length, length), generator=generator)
    config = JatConfig(PairGraph(threshold=draw(st.integers(0, 3)), inclusive=draw(st.booleans())))
    return PairAdjacency.of_scores(config, MapScores(scores.float()), mask)


def dense(edges, shape):
    """The matrix of the edges, rows are targets; each edge is there once, in order."""
    source, target = edges.edge_index
    size = math.prod(shape)
    assert ((target * size + source).diff() > 0).all()
    matrix = torch.zeros(size, size, dtype=edges.edge_weight.dtype)
    matrix[target, source] = edges.edge_weight
    graphs, length = math.prod(shape[:2]), shape[2]
    blocks = matrix.view(graphs, length, graphs, length).diagonal(dim1=0, dim2=2)
    assert blocks.count_nonzero() == len(source)  # no edge joins two graphs
    return blocks.permute(2, 0, 1).view(*shape, length)


@pytest.mark.parametrize("masks", [PADDING_MASKS, CAUSAL_MASKS, PAIR_MASKS])
@given(
    data=st.data(),
    max_neighbors=MAX_NEIGHBORS,
    elements=st.sampled_from((1, 30, 10**6)),
    temperature=st.sampled_from((None, None, 0.5)),
)
def test_pruned_edges_are_the_oracles(masks, data, max_neighbors, elements, temperature):
    adjacency = data.draw(integer_maps(masks))
    rule = dataclasses.replace(adjacency.rule, soft_temperature=temperature)
    adjacency = dataclasses.replace(adjacency, rule=rule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jat_graph.jumps.operators.threshold, "BLOCK", elements)
        edges = vote_edges(adjacency, max_neighbors)
    whole = DenseOperator.of_pairs(adjacency).to_dense()
    wanted = reference_prune(whole, max_neighbors)
    assert torch.equal(dense(edges, adjacency.source.shape), wanted)
    number = (whole != wanted).flatten(0, 1).sum((-2, -1))
    lost = (whole.double() - wanted.double()).flatten(0, 1).sum((-2, -1))
    assert torch.equal(edges.dropped_edges, number)
    torch.testing.assert_close(edges.dropped_weight, lost, rtol=1e-6, atol=1e-6)
    assert torch.equal(edges.dropped_weight == 0, number == 0)


def test_pruned_soft_votes_have_the_gradients_of_the_dense_ones():
    query, key, _, _ = random_heads(2, 2, 9, 4)
    leaves = query.requires_grad_(), key.requires_grad_()
    config = JatConfig(PairGraph(soft_temperature=1.0))
    adjacency = PairAdjacency.of_scores(config, QueryKeyScores(*leaves, 0.5), TokenMask())
    edges = vote_edges(adjacency, max_neighbors=2)
    cotangent = torch.randn(2, 2, 9, 9, dtype=torch.float64)
    source, target = edges.edge_index
    weights = cotangent.flatten(0, 1)[target // 9, target % 9, source % 9]
    got = torch.autograd.grad((edges.edge_weight * weights).sum(), leaves, retain_graph=True)
    whole = DenseOperator.of_pairs(adjacency).to_dense()
    pruned = torch.where(reference_prune(whole.detach(), max_neighbors=2) > 0, whole, 0.0)
    assert 0 < pruned.count_nonzero() == len(source) < whole.count_nonzero()
    assert_equal(got, torch.autograd.grad(pruned, leaves, cotangent))


@given(
    size=st.integers(1, 9 * GROUP) | st.integers(1, 40 * GROUP),
    number=st.integers(1, 5),
    values=st.sampled_from((1, 2, 5, 1000)),
    seed=st.integers(0, 2**20),
)
def test_the_heaviest_are_those_of_a_stable_sort(size, number, values, seed):
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randint(values, (2, 3, size), generator=generator).float()
    order = votes.sort(dim=-1, descending=True, stable=True).indices
    assert torch.equal(heaviest(votes, number), order[..., :number])


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_dropped_is_never_stored(causal, monkeypatch):
    monkeypatch.setattr(jat_graph.jumps.operators.threshold, "BLOCK", 1024)
    length, number = 256, {"key_step": 32} if causal else {"num_keys": 8}
    config = JatConfig(PairGraph(threshold=0.0, key_selection="strided", **number))
    query, key, _, _ = random_heads(1, 1, length, 4)
    source = QueryKeyScores(query.float(), key.float(), 0.5)
    adjacency = PairAdjacency.of_scores(config, source, TokenMask(causal=causal))
    with MemoryMeter() as meter:
        edges = vote_edges(adjacency, max_neighbors=2)
    assert 0 < edges.edge_weight.numel() <= 4 * length < int(edges.dropped_edges) / 8
    assert meter.largest <= length * 8  # columns of 8 keys, and 2 edges both ways
    assert meter.peak < length**2 * 4  # bytes of a matrix
