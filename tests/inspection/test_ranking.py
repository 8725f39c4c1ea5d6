"""Which head to look at, which jump and which words, against what all of them are."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph import JatConfig
from jat_graph.hf import attach, detach
from jat_graph.inspection import inspect_text, view_head

TEXT = "Book costs more than pencil. Book costs less than an incomprehensibly large computer."
PAIR = ("pencil", "computer")


@pytest.fixture
def model(plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Iterator[PreTrainedModel]:
    attach(plain, JatConfig.stones(layers=(1, 4), heads=(0, 1, 3, 4, 10), strength=0.5), tokenizer)
    yield plain
    detach(plain)


def test_a_change_is_the_attention_that_goes_elsewhere(model, tokenizer):
    report = inspect_text(model, tokenizer, TEXT)
    for head in report.heads:
        place = {"layer": head.layer, "head": head.head}
        view = view_head(model, tokenizer, TEXT, special_tokens=True, **place)
        before, after = view.scores.softmax(-1), view.propagated.softmax(-1)
        moved = (after - before).clamp(min=0).sum(-1)  # what is gained somewhere is lost elsewhere
        assert head.change == pytest.approx(float(moved.mean()), abs=1e-5)
        assert 0 < head.change < 1
    changes = [head.change for head in report.ranked()]
    assert changes == sorted(changes, reverse=True)
    assert set(report.ranked()) == set(report.heads)


def test_heads_are_ranked_by_one_jump(model, tokenizer):
    every = inspect_text(model, tokenizer, TEXT, top=10_000)
    gains = {}
    for head in every.heads:
        for jump in head.jumps:
            if (jump.query.text, jump.key.text) == PAIR:
                gains[head.layer, head.head] = jump.gain
    assert 0 < len(gains) < len(every.heads)
    report = inspect_text(model, tokenizer, TEXT, jump=PAIR)
    found = [(head.layer, head.head) for head in report.ranked(by_jump=True)]
    joined = [place for place in found if place in gains]
    assert found[: len(gains)] == joined  # those that do not join them come last
    assert joined == sorted(gains, key=lambda place: -gains[place])
    for head in report.heads:
        assert {(jump.query.text, jump.key.text) for jump in head.jumps} <= {PAIR}
    best = report.ranked(by_jump=True)[0]
    view = view_head(model, tokenizer, TEXT, layer=best.layer, head=best.head, jump=PAIR)
    assert view.report.jumps == best.jumps
    even = [
        replace(head, jumps=[replace(j, before=j.after) for j in head.jumps])
        for head in report.heads
    ]
    ranked = replace(report, heads=tuple(even)).ranked(by_jump=True)
    weights = [head.jumps[0].weight for head in ranked if head.jumps]
    assert weights == sorted(weights, reverse=True)  # as of strengths that are still 0


def test_words_choose_tokens_wherever_they_stand_and_with_all_pieces(model, tokenizer):
    place = {"layer": 1, "head": 10}
    view = view_head(model, tokenizer, TEXT, tokens="BOOK computer incomprehensibly", **place)
    shown = [token.text for token in view.tokens]
    pieces = tokenizer.tokenize("incomprehensibly")
    assert len(pieces) > 1
    assert shown == ["book", "book", *pieces, "computer"]
    assert view.weights.shape == (len(shown), len(shown))
    for jump in view.report.jumps:
        assert {jump.query, jump.key} <= set(view.tokens)
    whole = view_head(model, tokenizer, TEXT, **place)
    keep = torch.tensor([whole.tokens.index(token) for token in view.tokens])
    torch.testing.assert_close(view.scores, whole.scores[keep][:, keep])
