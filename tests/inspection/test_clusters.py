"""What tokens read of a text by clusters, against what the model's heads compute."""

import json
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2Model, PreTrainedModel, PreTrainedTokenizerBase

from jat_graph import ClusterGraph, JatConfig, clustered_attention, tree_graph
from jat_graph.hf import attach, capture_scores, detach
from jat_graph.inspection import inspect_clusters, inspect_text, view_descent

TEXT = "Book costs more than pencil. Book costs less than computer. " * 8  # with groups of clusters
RULE: dict[str, Any] = {"keys": 4, "groups": 1, "size": 2, "segment": 16, "window": 5}
RULE |= {"dense_below": 0, "margin": 9.0}
CONFIG = JatConfig.clustered(**RULE, layers=(1, 3), heads=(1, 4, 7))


@pytest.fixture
def model(plain: PreTrainedModel) -> Iterator[PreTrainedModel]:
    attach(plain, CONFIG)
    yield plain
    detach(plain)


@pytest.fixture
def decoder(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    torch.manual_seed(0)
    shape = {"n_embd": 32, "n_layer": 4, "n_head": 8, "vocab_size": tokenizer.vocab_size}
    return attach(GPT2Model(GPT2Config(**shape, initializer_range=0.4)).eval(), CONFIG)


class Seen:
    """One head of a model: its report, its graph, and rows of attention of all tokens, [L, L]."""

    def __init__(self, report, layer):
        self.report, self.causal, self.length = report, layer.mask.causal, layer.key.size(2)
        options = {"is_causal": self.causal, "scale": layer.scale}
        self.graph = tree_graph(layer.query, layer.key, config=CONFIG, **options)[0]
        value = torch.eye(self.length)[None, None]
        self.rows = clustered_attention(layer.query, layer.key, value, **RULE, **options)[0, 0]
        later = torch.ones(self.length, self.length).triu(1).bool() & self.causal
        scores = layer.scale * (layer.query @ layer.key.mT)[0, 0]
        self.before = scores.masked_fill(later, -torch.inf).softmax(-1)

    def read(self, token):
        """Return the keys that a token reads exactly."""
        source, target = self.graph["token", "read_by", "token"].edge_index
        return set(source[target == token].tolist())

    def best(self, token):
        """Return those that are in clusters which it opens."""
        node, reader = self.graph["cluster", "opened_by", "token"].edge_index
        key, cluster = self.graph["token", "in", "cluster"].edge_index
        return set(key[torch.isin(cluster, node[reader == token])].tolist())


@pytest.fixture(params=["encoder", "decoder"])
def seen(request, model, decoder, tokenizer):
    """Each head of a model, special tokens shown."""
    model = decoder if request.param == "decoder" else model
    with torch.no_grad(), capture_scores(model, ClusterGraph) as layers:
        model(**tokenizer(TEXT, return_tensors="pt"))
    found = inspect_clusters(model, tokenizer, TEXT, special_tokens=True).heads
    parts = [layer.of_head(head) for layer in layers for head in (1, 4, 7)]
    assert [(head.layer, head.head) for head in found] == [(p.layer, *p.heads) for p in parts]
    return [Seen(*pair) for pair in zip(found, parts, strict=True)]


def test_a_report_is_of_the_rows_that_the_heads_multiply_values_by(seen):
    for own in seen:
        report, shares = own.report, []
        assert int(own.graph["cluster"].level.max()) > 0
        for index, reading in enumerate(report.tokens):
            assert reading.token.index == index
            keys = {key.token.index: key.share for key in reading.keys}
            assert set(keys) == own.best(index)
            assert keys == pytest.approx({k: float(own.rows[index, k]) for k in keys}, abs=1e-5)
            assert list(keys.values()) == sorted(keys.values(), reverse=True)
            read = sorted(own.read(index))
            shares.append(len(read) / (index + 1 if own.causal else own.length))
            tv = float((own.rows[index] - own.before[index]).abs().sum()) / 2
            assert reading.exact == pytest.approx(float(own.rows[index, read].sum()), abs=1e-5)
            assert reading.tv == pytest.approx(tv, abs=1e-5)
        assert any(len(reading.keys) == 4 for reading in report.tokens)
        assert report.share == pytest.approx(fmean(shares))
        assert report.exact == pytest.approx(fmean(x.exact for x in report.tokens))
        assert report.tv == pytest.approx(fmean(x.tv for x in report.tokens))
        assert 0.001 < report.tv and report.exact < 0.99 and not report.dense


def test_tokens_and_keys_can_be_chosen(model, tokenizer):
    where = {"layers": 1, "heads": 1}
    (every,) = inspect_clusters(model, tokenizer, TEXT, special_tokens=True, **where).heads
    (plain,) = inspect_clusters(model, tokenizer, TEXT, **where).heads
    assert plain.tokens == every.tokens[1:-1]
    assert [every.tokens[place].token.text for place in (0, -1)] == ["[CLS]", "[SEP]"]
    (some,) = inspect_clusters(model, tokenizer, TEXT, tokens=range(6, 8), **where).heads
    for own, other in zip(some.tokens, plain.tokens[5:7], strict=True):
        assert (own.token, own.exact) == (other.token, pytest.approx(other.exact))
        assert [key.token for key in own.keys] == [key.token for key in other.keys]
    assert some.tv == pytest.approx(fmean(reading.tv for reading in some.tokens))
    (named,) = inspect_clusters(model, tokenizer, TEXT, tokens="pencil", **where).heads
    assert {reading.token.text for reading in named.tokens} == {"pencil"}
    (first,) = inspect_clusters(model, tokenizer, TEXT, top=2, **where).heads
    assert [reading.keys for reading in first.tokens] == [own.keys[:2] for own in plain.tokens]


def test_a_short_text_is_read_densely_and_the_report_says_so(plain, tokenizer):
    reports = []
    for changes in ({}, {"dense_below": None}):
        attach(plain, CONFIG.replace(layers=(1,), **changes))
        reports.append(inspect_clusters(plain, tokenizer, TEXT).heads)
        short = inspect_clusters(plain, tokenizer, "Book.").heads
        detach(plain)
        for head in short:  # there is no cluster
            assert (head.dense, head.share, head.tv) == (True, 1.0, 0.0)
            assert {reading.keys for reading in head.tokens} == {()}
            assert head.exact == pytest.approx(1)
    for head, other in zip(*reports, strict=True):
        assert (head.dense, other.dense) == (False, True)
        assert head.tokens == other.tokens


def test_without_the_rest_all_attention_is_exact(plain, tokenizer):
    attach(plain, CONFIG.replace(propagate=False))
    try:
        found = inspect_clusters(plain, tokenizer, TEXT, layers=1)
    finally:
        detach(plain)
    assert [head.exact for head in found.heads] == pytest.approx([1.0] * 3)
    assert all(head.share < 0.3 and head.tv > 0.01 for head in found.heads)


@pytest.mark.slow
@pytest.mark.parametrize("place", [range(30, 31), "computer", None])
def test_the_descent_of_a_token_is_that_of_the_whole_graph(place, seen, model, decoder, tokenizer):
    own = seen[-1]
    model = decoder if own.causal else model
    graph, words = view_descent(model, tokenizer, TEXT, layer=3, head=7, tokens=place)
    index = 30 if isinstance(place, range) else own.length - 2 - (place == "computer")
    reading = own.report.tokens[index]
    if place == "computer":
        assert reading.token.text == "computer"
    length = index + 1 if own.causal else own.length
    assert graph["token"].num_nodes == len(words) == length
    said = " ".join(TEXT.lower().split())
    assert f"[CLS] {said} [SEP]".startswith("".join(words).lstrip())
    source, target = graph["token", "read_by", "token"].edge_index
    assert set(target.tolist()) == {index}
    assert set(graph["cluster", "opened_by", "token"].edge_index[1].tolist()) == {index}
    assert set(source.tolist()) == own.read(index)
    weight = graph["token", "read_by", "token"].weight
    torch.testing.assert_close(weight, own.rows[index, source], rtol=0, atol=1e-5)
    assert reading.exact == pytest.approx(float(weight.sum()), abs=1e-5)


def test_everything_becomes_json(model, tokenizer):
    found = inspect_clusters(model, tokenizer, TEXT, heads=(1, 7), top=3)
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert JatConfig.from_dict(content["config"]) == found.config == CONFIG
    assert content["tokens"][0] == "[CLS]"
    places = [(head["layer"], head["head"]) for head in content["heads"]]
    assert places == [(1, 1), (1, 7), (3, 1), (3, 7)]
    reading = content["heads"][0]["tokens"][2]
    assert set(reading) == {"token", "exact", "tv", "keys"}
    assert [set(key) for key in reading["keys"]] == [{"token", "share"}] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 2}, r"layer 2 must have cluster heads, got them in \[1, 3\]"),
        ({"heads": 2}, r"head 2 must be a cluster head in layers \[1, 3\], got \[1, 4, 7\]"),
        ({"top": -1}, "top must be at least 0"),
    ],
)
def test_what_is_not_there_is_refused(model, tokenizer, change, message):
    with pytest.raises(ValueError, match=message) as refused:
        inspect_clusters(model, tokenizer, TEXT, **change)
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="model must have jump heads, got none"):
        inspect_text(model, tokenizer, TEXT)


def test_a_model_without_such_heads_is_refused(plain, tokenizer):
    wanted = "model must have cluster heads, got none: attach"
    with pytest.raises(ValueError, match=wanted):
        inspect_clusters(plain, tokenizer, TEXT)
    with pytest.raises(ValueError, match=wanted):
        view_descent(plain, tokenizer, TEXT, layer=0, head=0)
    with pytest.raises(ValueError, match="model must have cluster heads"):
        capture_scores(plain, ClusterGraph).__enter__()
