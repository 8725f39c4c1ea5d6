"""What clusters choose on a text, against what the model's heads compute."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph import ClusterGraph, JatConfig, clustered_attention
from jat_graph.hf import attach, capture_scores, detach
from jat_graph.inspection import (
    ClusterInspection,
    ClusterView,
    inspect_clusters,
    inspect_text,
    view_clusters,
)

TEXT = "Book costs more than pencil. Book costs less than computer. " * 3
RULE: dict[str, Any] = {"keys": 3, "block": 4, "clusters": 6, "dense_below": 0}
CONFIG = JatConfig.clustered(**RULE, layers=(1, 3), heads=(1, 4, 7))


@pytest.fixture
def model(plain: PreTrainedModel) -> Iterator[PreTrainedModel]:
    attach(plain, CONFIG)
    yield plain
    detach(plain)


@pytest.fixture
def everything(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> list[tuple[ClusterView, torch.Tensor, torch.Tensor]]:
    """The view of each head, special tokens shown, and what it was made of: q and k, [L, D]."""
    with torch.no_grad(), capture_scores(model, ClusterGraph) as layers:
        model(**tokenizer(TEXT, return_tensors="pt"))
    return [
        (
            view_clusters(
                model, tokenizer, TEXT, layer=layer.layer, head=head, special_tokens=True
            ),
            layer.query[0, index],
            layer.key[0, index],
        )
        for layer in layers
        for index, head in enumerate(layer.heads)
    ]


def test_attention_is_what_the_heads_multiply_values_by(everything: Any) -> None:
    assert [(v.report.layer, v.report.head) for v, _, _ in everything] == [
        (layer, head) for layer in (1, 3) for head in (1, 4, 7)
    ]
    for view, query, key in everything:
        value = torch.randn(key.shape)
        heads = (x[None, None] for x in (query, key, value))
        wanted = clustered_attention(*heads, **RULE)[0, 0]
        torch.testing.assert_close(view.attention @ value, wanted, rtol=0, atol=1e-5)
        dense = (query @ key.mT / query.size(-1) ** 0.5).softmax(-1)
        torch.testing.assert_close(view.before, dense, rtol=0, atol=1e-6)
        assert (view.attention - view.before).abs().max() > 1e-3


def test_numbers_are_what_their_names_say(everything: Any) -> None:
    for view, _, _ in everything:
        report, length = view.report, len(view.tokens)
        block = torch.arange(length) // 4
        assert torch.equal(view.near, (block[:, None] - block).abs() <= 1)
        assert (view.best.sum(-1) == 3).all()
        exact = view.near | view.best
        shares = (view.attention * exact).sum(-1)
        tv = (view.attention - view.before).abs().sum(-1) / 2
        assert report.density == pytest.approx(float(exact.float().mean()))
        assert report.exact == pytest.approx(float(shares.mean()))
        assert report.tv == pytest.approx(float(tv.mean()))
        assert (report.num_clusters, report.block, report.dense) == (6, 4, False)
        for index in range(length):
            cluster, member = report.of_token(index)
            assert cluster is report.clusters[int(view.joined[index])]
            assert member.token == view.tokens[index]
            assert member.exact == pytest.approx(float(shares[index]))
            assert member.tv == pytest.approx(float(tv[index]), abs=1e-6)
            keys = {key.token.index for key in cluster.keys}
            assert keys == set(view.best[index].nonzero().flatten().tolist())
        with pytest.raises(ValueError, match="index must be that of a token"):
            report.of_token(length)


def test_clusters_part_the_tokens_the_largest_first(everything: Any) -> None:
    for view, _, _ in everything:
        clusters = view.report.clusters
        found = [own.token.index for cluster in clusters for own in cluster.members]
        assert sorted(found) == list(range(len(view.tokens)))
        sizes = [len(cluster.members) for cluster in clusters]
        assert sizes == sorted(sizes, reverse=True)
        for cluster in clusters:
            scores = [key.score for key in cluster.keys]
            assert scores == sorted(scores, reverse=True)


def test_special_tokens_are_counted_and_not_named(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    report = inspect_clusters(model, tokenizer, TEXT, layers=3, heads=4).heads[0]
    whole = inspect_clusters(model, tokenizer, TEXT, layers=3, heads=4, special_tokens=True)
    names = [own.token.text for cluster in report.clusters for own in cluster.members]
    assert not {"[CLS]", "[SEP]"} & set(names)
    hidden = sum(cluster.hidden_members for cluster in report.clusters)
    alone = len(whole.heads[0].clusters) - len(report.clusters)  # of special tokens only
    assert alone + hidden in (1, 2)
    assert {"[CLS]"} & {key.token.text for cluster in report.clusters for key in cluster.keys}
    assert (report.exact, report.density) == (whole.heads[0].exact, whole.heads[0].density)


def test_some_tokens_show_their_clusters_whole(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    own = {"layers": 1, "heads": 1}
    (every,) = inspect_clusters(model, tokenizer, TEXT, **own).heads
    (one,) = inspect_clusters(model, tokenizer, TEXT, tokens=range(6, 7), **own).heads
    assert one.clusters == (every.of_token(6)[0],)
    assert len(one.clusters[0].members) > 1
    (first,) = inspect_clusters(model, tokenizer, TEXT, top=2, **own).heads
    assert first.clusters == every.clusters[:2]
    view = view_clusters(model, tokenizer, TEXT, layer=1, head=1, tokens=range(2, 9))
    assert view.attention.shape == view.best.shape == (7, 7)
    assert [token.index for token in view.tokens] == list(range(2, 9))


def test_a_short_text_is_read_densely_and_the_report_says_so(
    plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, everything: Any
) -> None:
    detach(plain)
    attach(plain, CONFIG.replace(dense_below=None, layers=(1,)))
    found = inspect_clusters(plain, tokenizer, TEXT)
    assert all(head.dense for head in found.heads)
    wanted = [view.report.num_clusters for view, _, _ in everything[:3]]
    assert [head.num_clusters for head in found.heads] == wanted


def test_without_the_rest_all_attention_is_exact(
    plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    attach(plain, CONFIG.replace(propagate=False))
    try:
        found = inspect_clusters(plain, tokenizer, TEXT, layers=1)
    finally:
        detach(plain)
    assert [head.exact for head in found.heads] == pytest.approx([1.0] * 3)
    assert all(head.density < 0.6 for head in found.heads)


def test_everything_becomes_json(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    found: ClusterInspection = inspect_clusters(model, tokenizer, TEXT, heads=(1, 7))
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert JatConfig.from_dict(content["config"]) == found.config == CONFIG
    assert content["tokens"][0] == "[CLS]"
    assert [(head["layer"], head["head"]) for head in content["heads"]] == [
        (1, 1), (1, 7), (3, 1), (3, 7),
    ]  # fmt: skip
    (member, *_) = content["heads"][0]["clusters"][0]["members"]
    assert set(member) == {"token", "likeness", "exact", "tv"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 2}, r"layer 2 must have cluster heads, got them in \[1, 3\]"),
        ({"heads": 2}, r"head 2 must be a cluster head in layers \[1, 3\], got \[1, 4, 7\]"),
        ({"top": -1}, "top must be at least 0"),
        ({"text": " "}, "text must not be empty"),
    ],
)
def test_what_is_not_there_is_refused(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, change: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        inspect_clusters(model, tokenizer, **{"text": TEXT} | change)
    with pytest.raises(ValueError, match="model must have jump heads, got none"):
        inspect_text(model, tokenizer, TEXT)


def test_a_model_without_such_heads_is_refused(
    plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises(ValueError, match="model must have cluster heads, got none: attach"):
        inspect_clusters(plain, tokenizer, TEXT)
    with (
        pytest.raises(ValueError, match="model must have cluster heads"),
        capture_scores(plain, ClusterGraph),
    ):
        pass
