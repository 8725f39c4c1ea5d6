"""Graphs to look at: what joins two tokens, and who stands on which stone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph, jump_operator, stone_graph
from jat_graph.hf import CapturedLayer
from jat_graph.inspection import Token
from jat_graph.inspection.graphs import layer_graph
from jat_graph.inspection.statistics import layer_statistics
from jat_graph.masks import TokenMask
from tests.inputs import random_heads, random_padding_mask
from tests.support import assert_equal

TOKENS = [Token(n, "") for n in range(9)]
KINDS = st.sampled_from(("excess", "hard", "sigmoid"))


def captured(config, causal=False, valid=None, seed=0, batch=1):
    """Return a layer of two heads and nine tokens."""
    query, key, _, _ = random_heads(batch, 2, 9, 4, seed=seed)
    mask = TokenMask(valid=None if valid is None else valid.unsqueeze(1), causal=causal)
    return CapturedLayer(0, (0, 1), query, key, config, mask, 0.5)


def stones_and_walk(layer):
    """Return B and P of the layer's first sequence, [2, 9, m] and [2, 9, 9]."""
    options = {"config": layer.config, "is_causal": layer.mask.causal, "scale": layer.scale}
    operator = jump_operator(layer.query, layer.key, **options)
    return operator.links[0], operator.to_dense()[0]


@given(
    kind=KINDS,
    causal=st.booleans(),
    sides=st.sampled_from(("both", "positive")),
    self_weight=st.sampled_from((0.0, 0.1)),
    seed=st.integers(0, 999),
)
def test_shares_say_how_much_of_a_walk_goes_over_each_stone(kind, causal, sides, self_weight, seed):
    config = JatConfig.stones(incidence=kind, sides=sides, self_weight=self_weight, backend="dense")
    layer = captured(config, causal, seed=seed)
    whole, (links, walk) = layer_graph(layer), stones_and_walk(layer)
    graphs = [layer_graph(layer.of_head(head)) for head in (0, 1)]
    assert_equal(whole.weights[0], walk - torch.diag_embed(walk.diagonal(dim1=-2, dim2=-1)))
    for head, i, k in ((head, i, k) for head in (0, 1) for i in range(9) for k in range(9)):
        b = links[head]
        seen = b[: i + 1] if causal else b
        wanted = {
            (m % 9, 1 if m < 9 else -1): float(b[i, m] * b[k, m] / seen[:, m].sum())
            for m in range(b.size(1))
            if b[i, m] > 0 and b[k, m] > 0 and k < len(seen)
        }
        found = graphs[head].stepping_stones(i, k, TOKENS)
        shares = [stone.share for stone in found]
        assert shares == sorted(shares, reverse=True)
        assert {(stone.token.index, stone.side) for stone in found} == set(wanted)
        degree = float(b[i].sum()) + self_weight
        for stone in found:
            weight = stone.share * sum(wanted.values()) / degree  # the part of P_ik over it
            part = wanted[stone.token.index, stone.side]
            assert weight == pytest.approx(part / degree, abs=1e-10)
        if i != k:
            assert sum(wanted.values()) == pytest.approx(float(walk[head, i, k]) * degree)


@given(kind=KINDS, causal=st.booleans(), seed=st.integers(0, 999))
def test_stones_say_who_stands_on_them_and_how_many_walks_go_over(kind, causal, seed):
    layer = captured(JatConfig.stones(incidence=kind, backend="dense"), causal, seed=seed)
    links, _ = stones_and_walk(layer)
    for head in (0, 1):
        b, graph = links[head], layer_graph(layer.of_head(head))
        stones = graph.stones(TOKENS)
        columns = [stone.token.index + 9 * (stone.side == -1) for stone in stones]
        assert sorted(columns) == b.any(0).nonzero().flatten().tolist()
        for stone, own in zip(stones, b[:, columns].T, strict=True):
            standing = [(link.token.index, link.weight) for link in stone.links]
            assert standing == [(i, pytest.approx(float(own[i]))) for i in range(9) if own[i]]
            assert stone.share == pytest.approx(float((own / (b.sum(1) + 0.1)).mean()))
        shares = [stone.share for stone in stones]
        assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize(
    "change", [{}, {"key_selection": "strided", "key_step": 2}, {"sides": "positive"}]
)
@pytest.mark.parametrize("causal", [False, True])
def test_densities_count_links_among_those_that_there_may_be(change, causal):
    config = JatConfig.stones(**change)
    valid = random_padding_mask(3, 9)
    layer = captured(config, causal, valid, batch=3)
    graphs = stone_graph(
        layer.query, layer.key, config=config, attention_mask=valid, is_causal=causal, scale=0.5
    ).to_data_list()
    allowed = 0
    for tokens in valid:
        (places,) = tokens.nonzero(as_tuple=True)
        stones = places[::2] if "key_step" in change else places
        sides = 1 if config.graph.sides == "positive" else 2
        pairs = stones[None] <= places[:, None] if causal else torch.ones(len(places), len(stones))
        allowed += sides * int(pairs.sum())
    for head, found in enumerate(layer_statistics(layer, layer_graph(layer))):
        weights = torch.cat([graph.hyperedge_weight for graph in graphs[head::2]])
        assert found.pairs == allowed
        assert found.density == pytest.approx(len(weights) / allowed)
        assert found.mean_weight == pytest.approx(float(weights.mean()))
        assert 0.05 < found.density < 0.6


def test_standard_scores_vote_and_are_shown():
    config = JatConfig(PairGraph(standardize=True, threshold=1.0))
    layer = captured(config)
    graph = layer_graph(layer.of_head(0))
    scores = graph.fixed.source.columns(None)[0, 0]
    assert abs(float(scores.mean())) < 1e-10
    assert float(scores.square().mean()) == pytest.approx(1.0)
    joined = graph.weights[0, 0].nonzero().tolist()
    assert joined
    for i, k in joined:
        found = graph.stepping_stones(i, k, TOKENS)
        assert len(found) == round(float(graph.weights[0, 0, i, k]) * 9)
        for stone in found:
            assert stone.query_score == pytest.approx(float(scores[i, stone.token.index]))
            assert stone.query_score * stone.key_score > 1.0
            assert (stone.side, stone.share) == (None, None)
