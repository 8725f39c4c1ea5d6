"""Graphs to look at: what joins two tokens, who stands on which stone, and what is hidden."""

import pytest
import torch

from jat_graph import JatConfig, PairGraph, attach, jump_operator, stone_graph
from jat_graph.inspection import graph_statistics, inspect_text, view_head
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model
from tests.oracles import standard_scores
from tests.support import assert_equal, captured_layers

TEXT = "gark book lumps barks dook"
MODELS = ["bert", "gpt2"]  # which is causal


def look(name, config):
    """Return the view of each head of a layer, and what the layer saw."""
    tokenizer = tiny_tokenizer()
    model = attach(tiny_model(name).double(), config.replace(layers=(1,), heads=(0, 1)))
    options = {"layer": 1, "special_tokens": True, "top": 10_000}
    views = [view_head(model, tokenizer, TEXT, head=head, **options) for head in (0, 1)]
    return views, captured_layers(model, tokenizer(TEXT, return_tensors="pt"))[0]


def stones_and_walk(layer):
    """Return B and P of the layer's first sequence, [2, L, m] and [2, L, L]."""
    options = {"config": layer.config, "is_causal": layer.mask.causal, "scale": layer.scale}
    operator = jump_operator(layer.query, layer.key, **options)
    return operator.links[0], operator.to_dense()[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["excess", "hard", "sigmoid"])
@pytest.mark.parametrize(("sides", "self_weight"), [("both", 0.0), ("both", 0.1), ("positive", 0)])
def test_shares_say_how_much_of_a_walk_goes_over_each_stone(name, kind, sides, self_weight):
    graph = {"incidence": kind, "sides": sides, "self_weight": self_weight, "backend": "dense"}
    views, layer = look(name, JatConfig.stones(**graph, strength=(0.5, -0.3, 0.2)))
    for b, walk, view in zip(*stones_and_walk(layer), views, strict=True):
        length = len(walk)
        assert_equal(view.weights, walk - torch.diag(walk.diagonal()))
        assert len(view.report.jumps) == view.weights.count_nonzero() > 0
        assert view.report.strengths == ((0.5, pytest.approx(-0.3), pytest.approx(0.2)),)
        for jump in view.report.jumps:
            i, k = jump.query.index, jump.key.index
            seen = b[: i + 1] if layer.mask.causal else b
            wanted = {
                (m % length, 1 if m < length else -1): float(b[i, m] * b[k, m] / seen[:, m].sum())
                for m in range(b.size(1))
                if b[i, m] > 0 and b[k, m] > 0
            }
            shares = [stone.share for stone in jump.stones]
            assert shares == sorted(shares, reverse=True) and sum(shares) == pytest.approx(1)
            assert {(stone.token.index, stone.side) for stone in jump.stones} == set(wanted)
            degree = float(b[i].sum()) + self_weight
            for stone in jump.stones:
                part = wanted[stone.token.index, stone.side] / degree  # of P_ik over it
                assert stone.share * jump.weight == pytest.approx(part, abs=1e-10)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["excess", "hard", "sigmoid"])
def test_stones_say_who_stands_on_them_and_how_many_walks_go_over(name, kind):
    views, layer = look(name, JatConfig.stones(incidence=kind, backend="dense"))
    for b, view in zip(stones_and_walk(layer)[0], views, strict=True):
        stones, length = view.report.stones, len(b)
        columns = [stone.token.index + length * (stone.side == -1) for stone in stones]
        assert sorted(columns) == b.any(0).nonzero().flatten().tolist()
        for stone, own in zip(stones, b[:, columns].T, strict=True):
            standing = [(link.token.index, link.weight) for link in stone.links]
            assert standing == [(i, pytest.approx(float(own[i]))) for i in range(length) if own[i]]
            assert stone.share == pytest.approx(float((own / (b.sum(1) + 0.1)).mean()))
        shares = [stone.share for stone in stones]
        assert shares == sorted(shares, reverse=True)
        report, sizes = view.report, b.count_nonzero(0)
        assert report.num_stones == len(stones)
        assert report.linked == pytest.approx(float(b.any(1).double().mean()))
        assert report.median_size == float(sizes[sizes > 0].double().quantile(0.5))
        # Strengths are still 0.
        assert report.change == 0
        assert all(jump.gain == 0 for jump in report.jumps)
        weights = [jump.weight for jump in report.jumps]
        assert weights == sorted(weights, reverse=True) and weights[0] > weights[-1] > 0


@pytest.mark.parametrize(
    "change", [{}, {"key_selection": "strided", "key_step": 2}, {"sides": "positive"}]
)
@pytest.mark.parametrize("name", MODELS)
def test_densities_count_links_among_those_that_there_may_be(change, name):
    config = JatConfig.stones(**change)
    model = attach(tiny_model(name).double(), config.replace(layers=(1,), heads=(0, 1)))
    valid = torch.arange(9) < torch.tensor([[9], [7], [4]])
    inputs = {"input_ids": 1 + torch.arange(27).view(3, 9), "attention_mask": valid.long()}
    (layer,), causal = captured_layers(model, inputs), name == "gpt2"
    options = {"attention_mask": valid, "is_causal": causal, "scale": layer.scale}
    graphs = stone_graph(layer.query, layer.key, config=config, **options).to_data_list()
    allowed = 0
    for tokens in valid:
        (places,) = tokens.nonzero(as_tuple=True)
        stones = places[::2] if "key_step" in change else places
        sides = 1 if config.graph.sides == "positive" else 2
        pairs = stones[None] <= places[:, None] if causal else torch.ones(len(places), len(stones))
        allowed += sides * int(pairs.sum())
    for head, found in enumerate(graph_statistics(model, [inputs])):
        weights = torch.cat([graph.hyperedge_weight for graph in graphs[head::2]])
        assert found.pairs == allowed
        assert found.density == pytest.approx(len(weights) / allowed)
        assert found.mean_weight == pytest.approx(float(weights.mean()))
        assert 0.05 < found.density < 0.6


def test_standard_scores_vote_and_are_shown():
    views, layer = look("bert", JatConfig(PairGraph(standardize=True, threshold=1.0)))
    standard = standard_scores(layer.query, layer.key, layer.scale)[0]
    for scores, view in zip(standard, views, strict=True):
        assert view.report.jumps
        for jump in view.report.jumps:
            i, k = jump.query.index, jump.key.index
            products = scores[i] * scores[k]
            assert {stone.token.index for stone in jump.stones} == {
                j for j in range(len(scores)) if products[j] > 1.0
            }
            assert jump.weight == pytest.approx(len(jump.stones) / len(scores))
            for stone in jump.stones:
                assert stone.query_score == pytest.approx(float(scores[i, stone.token.index]))
                assert stone.key_score == pytest.approx(float(scores[k, stone.token.index]))
                assert (stone.side, stone.share) == (None, None)


@pytest.mark.slow
def test_special_tokens_are_no_stones_and_stand_on_none_unless_they_are_asked_for():
    tokenizer = tiny_tokenizer()
    model = attach(tiny_model("bert").double(), JatConfig.stones(layers=(1,), heads=1))
    (hidden,) = inspect_text(model, tokenizer, TEXT, top=4).heads
    full = view_head(model, tokenizer, TEXT, layer=1, head=0, special_tokens=True)
    special = {0, len(full.tokens) - 1}
    known = {(stone.token, stone.side): stone for stone in full.report.stones}
    assert special & {token.index for token, _ in known}
    assert len(hidden.stones) == 4
    assert (hidden.linked, hidden.num_stones) == (full.report.linked, full.report.num_stones)
    for stone in hidden.stones:
        links = known[stone.token, stone.side].links
        assert stone.token.index not in special
        assert stone.links == tuple(link for link in links if link.token.index not in special)
        assert stone.hidden_links == len(links) - len(stone.links)
