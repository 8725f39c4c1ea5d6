"""Jumps, gains and stepping stones on the real model, checked against the plain definitions."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.hf import attach, detach
from jat_graph.inspection import Inspection, calibrate, inspect_text, view_head
from jat_graph.jumps.config import JatConfig

TEXT = "Book costs more than pencil. Book costs less than computer."
SETTINGS = JatConfig(heads=(1, 4, 7), layers=(1, 3))


@pytest.fixture(scope="module")
def config(plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> JatConfig:
    """Settings that join three in ten pairs of the text in every head."""
    return calibrate(plain, [tokenizer(TEXT, return_tensors="pt")], density=0.3, config=SETTINGS)


@pytest.fixture
def model(plain: PreTrainedModel, config: JatConfig) -> Iterator[PreTrainedModel]:
    attach(plain, config)
    yield plain
    detach(plain)


@pytest.fixture
def everything(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Inspection:
    return inspect_text(model, tokenizer, TEXT, top=10_000, special_tokens=True)


def test_jumps_are_the_edges_and_stones_the_votes(model, tokenizer, everything):
    for report in everything.heads:
        own = {"layer": report.layer, "head": report.head, "special_tokens": True}
        view = view_head(model, tokenizer, TEXT, **own)
        scores, length = view.scores, len(view.tokens)
        edges = {(jump.query.index, jump.key.index): jump for jump in report.jumps}
        assert 0.1 < report.density < 0.9
        assert report.density == pytest.approx(len(edges) / (length * (length - 1)))
        for i in range(length):
            for k in range(length):
                products = (scores[i] * scores[k]).tolist()
                voters = [j for j in range(length) if products[j] > report.threshold]
                if i == k or not voters:
                    assert (i, k) not in edges
                    continue
                jump = edges[i, k]
                assert sorted(stone.token.index for stone in jump.stones) == voters
                assert jump.weight == pytest.approx(len(voters) / length)
                for stone in jump.stones:
                    assert stone.query_score == pytest.approx(float(scores[i, stone.token.index]))
                    assert stone.key_score == pytest.approx(float(scores[k, stone.token.index]))


def test_jumps_come_by_gain_and_stones_by_product(model, tokenizer, everything):
    cut = inspect_text(model, tokenizer, TEXT, top=2, special_tokens=True)
    for report, first in zip(everything.heads, cut.heads, strict=True):
        gains = [jump.gain for jump in report.jumps]
        assert gains == sorted(gains, reverse=True)
        assert first.jumps == report.jumps[:2]
        for jump in report.jumps:
            products = [stone.query_score * stone.key_score for stone in jump.stones]
            assert products == sorted(products, reverse=True)


def test_special_tokens_are_hidden_unless_asked_for(model, tokenizer, everything):
    hidden = inspect_text(model, tokenizer, TEXT, top=10_000)
    special = {0, len(everything.tokens) - 1}
    some_hidden = 0
    for report, full in zip(hidden.heads, everything.heads, strict=True):
        assert (report.density, report.mean_weight) == (full.density, full.mean_weight)
        whole = {(jump.query.index, jump.key.index): jump for jump in full.jumps}
        assert {pair for pair in whole if not special & set(pair)} == {
            (jump.query.index, jump.key.index) for jump in report.jumps
        }
        for jump in report.jumps:
            stones = whole[jump.query.index, jump.key.index].stones
            assert not special & {stone.token.index for stone in jump.stones}
            assert len(jump.stones) + jump.hidden_stones == len(stones)
            some_hidden += jump.hidden_stones
    assert some_hidden


def test_json_holds_everything(everything: Inspection, config: JatConfig) -> None:
    content = json.loads(json.dumps(everything.to_dict(), allow_nan=False))
    assert content["tokens"][:3] == ["[CLS]", "book", "costs"]
    assert JatConfig.from_dict(content["config"]) == config
    first = content["heads"][0]
    assert (first["layer"], first["head"]) == (1, 1)
    assert first["threshold"] == config.graph.threshold[0][0]
    jump = first["jumps"][0]
    assert jump["gain"] == pytest.approx(jump["after"] - jump["before"])
    endless = replace(everything, heads=(replace(everything.heads[0], threshold=math.inf),))
    assert endless.to_dict()["heads"][0]["threshold"] == "inf"


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"normalize_keys": True},
        {"same_sign_only": True},
        {"key_selection": "significance", "key_factor": 1.5},
        {"vote_rate": 0.05},
        {"nodes": "selected", "key_selection": "sampled_queries", "key_factor": 4.0},
        {"hop_weights": (0.0, 0.0, 1.0)},
        {"hop_weights": {(0,): (0.5, 0.5), (1,): (0.0, 1.0)}},
        {"standardize": True},
        {"strength": (0.5, 0.5, 0.1)},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_weights_are_shares_of_the_votes_in_every_variant(plain, tokenizer, settings):
    chosen = JatConfig.paper(heads=2, layers=(2,), **settings)
    if chosen.graph.vote_rate is None:
        batch = tokenizer(TEXT, return_tensors="pt")
        chosen = calibrate(plain, [batch], density=0.3, config=chosen)
    attach(plain, chosen)
    try:
        report = inspect_text(plain, tokenizer, TEXT, top=10_000, special_tokens=True)
        view = view_head(plain, tokenizer, TEXT, layer=2, head=1, special_tokens=True)
    finally:
        detach(plain)
    for head in report.heads:
        assert 0.1 < head.density < 0.9
        voters = {round(len(jump.stones) / jump.weight, 3) for jump in head.jumps}
        assert len(voters) == 1  # one number of voting keys for all pairs
    assert not torch.allclose(view.scores, view.propagated)


# --- which head, which jump, which words ---------------------------------------------------------

LONG = "Book costs more than pencil. Book costs less than an incomprehensibly large computer."
PAIR = ("pencil", "computer")


@pytest.fixture
def stepping(plain, tokenizer):
    attach(plain, JatConfig.stones(layers=(1, 4), heads=(0, 1, 3, 4, 10), strength=0.5), tokenizer)
    yield plain
    detach(plain)


def test_a_change_is_the_attention_that_goes_elsewhere(stepping, tokenizer):
    report = inspect_text(stepping, tokenizer, LONG)
    for head in report.heads:
        place = {"layer": head.layer, "head": head.head}
        view = view_head(stepping, tokenizer, LONG, special_tokens=True, **place)
        before, after = view.scores.softmax(-1), view.propagated.softmax(-1)
        moved = (after - before).clamp(min=0).sum(-1)  # what is gained somewhere is lost elsewhere
        assert head.change == pytest.approx(float(moved.mean()), abs=1e-5)
        assert 0 < head.change < 1
    changes = [head.change for head in report.ranked()]
    assert changes == sorted(changes, reverse=True)
    assert set(report.ranked()) == set(report.heads)


def test_heads_are_ranked_by_one_jump(stepping, tokenizer):
    every = inspect_text(stepping, tokenizer, LONG, top=10_000)
    gains = {}
    for head in every.heads:
        for jump in head.jumps:
            if (jump.query.text, jump.key.text) == PAIR:
                gains[head.layer, head.head] = jump.gain
    assert 0 < len(gains) < len(every.heads)
    report = inspect_text(stepping, tokenizer, LONG, jump=PAIR)
    found = [(head.layer, head.head) for head in report.ranked(by_jump=True)]
    joined = [place for place in found if place in gains]
    assert found[: len(gains)] == joined  # those that do not join them come last
    assert joined == sorted(gains, key=lambda place: -gains[place])
    for head in report.heads:
        assert {(jump.query.text, jump.key.text) for jump in head.jumps} <= {PAIR}
    best = report.ranked(by_jump=True)[0]
    view = view_head(stepping, tokenizer, LONG, layer=best.layer, head=best.head, jump=PAIR)
    assert view.report.jumps == best.jumps
    even = [
        replace(head, jumps=[replace(j, before=j.after) for j in head.jumps])
        for head in report.heads
    ]
    ranked = replace(report, heads=tuple(even)).ranked(by_jump=True)
    weights = [head.jumps[0].weight for head in ranked if head.jumps]
    assert weights == sorted(weights, reverse=True)  # as of strengths that are still 0


def test_words_choose_tokens_wherever_they_stand_and_with_all_pieces(stepping, tokenizer):
    place = {"layer": 1, "head": 10}
    view = view_head(stepping, tokenizer, LONG, tokens="BOOK computer incomprehensibly", **place)
    shown = [token.text for token in view.tokens]
    pieces = tokenizer.tokenize("incomprehensibly")
    assert len(pieces) > 1
    assert shown == ["book", "book", *pieces, "computer"]
    assert view.weights.shape == (len(shown), len(shown))
    for jump in view.report.jumps:
        assert {jump.query, jump.key} <= set(view.tokens)
    whole = view_head(stepping, tokenizer, LONG, **place)
    keep = torch.tensor([whole.tokens.index(token) for token in view.tokens])
    torch.testing.assert_close(view.scores, whole.scores[keep][:, keep])
