"""What a page holds of real heads: their attention, their jumps as inspected, words with trees."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    GPT2Config,
    GPT2Model,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from jat_graph.hf import attach, detach, disabled
from jat_graph.inspection import inspect_clusters, inspect_text
from jat_graph.jumps.config import JatConfig, PairGraph
from jat_graph.probes import Sentence, view

TEXT = "Book costs more than pencil. Book costs less than computer."
SHORT: Any = {"keys": 4, "size": 2, "segment": 16, "dense_below": 0}  # of two segments of 3 texts
BARK = Sentence(
    ("Unbelievably", "dogs", "bark"),
    ("ADV", "NOUN", "VERB"),
    (2, 2, -1),
    ("advmod", "nsubj", "root"),
)


@pytest.fixture(params=["pairs", "stones"])
def model(
    request: pytest.FixtureRequest, plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Iterator[PreTrainedModel]:
    config = {
        "pairs": JatConfig(PairGraph(vote_rate=0.1), heads=(1, 4), layers=(3,)),
        "stones": JatConfig.stones(layers=(3,), heads=(1, 4), strength=0.5),
    }[request.param]
    attach(plain, config, tokenizer)
    yield plain
    detach(plain)


def dense(links: Any, length: int) -> torch.Tensor:
    matrix = torch.zeros(length, length)
    matrix[links.queries, links.keys] = links.values
    return matrix


def attention(model: PreTrainedModel, tokenizer: Any, text: str) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        outputs = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
    return tuple(rows[0] for rows in outputs.attentions)


def test_a_base_shows_its_attention_and_is_left_as_it_was(
    plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    before = plain.config._attn_implementation
    (shown,) = view(plain, tokenizer, TEXT, special_tokens=True).texts
    assert plain.config._attn_implementation == before
    assert [(head.layer, head.head) for head in shown.heads] == [
        (layer, head) for layer in range(6) for head in range(12)
    ]
    plain.set_attn_implementation("eager")
    rows = attention(plain, tokenizer, TEXT)
    plain.set_attn_implementation(before)
    for head in shown.heads:
        assert head.links.keys() == {"attention"}
        links = head.links["attention"]
        assert torch.equal(dense(links, len(shown.tokens)), rows[head.layer][head.head])
        assert links.left_out == links.hidden == 0
    (shown,) = view(plain, tokenizer, TEXT, layers=2, heads=(3,)).texts  # no special tokens
    assert shown.positions == tuple(range(1, 13))
    assert shown.tokens[0] == "book"
    (head,) = shown.heads
    links = head.links["attention"]
    assert links.hidden + float(links.values.sum()) / 12 == pytest.approx(1)
    assert links.hidden > 0.1


def test_jumps_are_those_that_inspection_finds(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    (shown,) = view(model, tokenizer, TEXT).texts
    rows = attention(model, tokenizer, TEXT)
    reports = {(r.layer, r.head): r for r in inspect_text(model, tokenizer, TEXT, top=60).heads}
    number = 0
    for head in shown.heads:
        own = rows[head.layer][head.head][1:-1, 1:-1]
        after = dense(head.links["attention"], 12)
        torch.testing.assert_close(after, own, rtol=1e-4, atol=1e-6)
        if (head.layer, head.head) not in reports:
            assert head.links.keys() == {"attention"}
            continue
        number += 1
        before, gain = (dense(head.links[kind], 12) for kind in ("before", "difference"))
        torch.testing.assert_close(after - before, gain)
        graph, report = dense(head.links["graph"], 12), reports[head.layer, head.head]
        assert head.num_jumps == int(graph.count_nonzero())
        assert len(head.jumps) == min(60, head.num_jumps)
        assert head.jumps == report.jumps
        for jump in head.jumps:
            assert graph[jump.query.index - 1, jump.key.index - 1] == jump.weight
    assert number == 2
    with disabled(model):
        (base,) = view(model, tokenizer, TEXT, layers=3).texts
    assert all(head.links.keys() == {"attention"} for head in base.heads)


@pytest.mark.parametrize("special", [False, True])
def test_trees_are_those_that_inspection_finds(
    plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, special: bool
) -> None:
    attach(plain, JatConfig.clustered(**SHORT, layers=(1, 3)))
    try:
        options = {"special_tokens": special}
        (shown,) = view(plain, tokenizer, 3 * TEXT, layers=3, heads=(1, 4), **options).texts
        report = inspect_clusters(plain, tokenizer, 3 * TEXT, layers=3, heads=(1, 4), **options)
        with pytest.raises(ValueError, match="layer 2 must have cluster heads"):
            view(plain, tokenizer, TEXT, layers=2)
        with disabled(plain):
            (base,) = view(plain, tokenizer, TEXT, layers=2).texts
    finally:
        detach(plain)
    assert all(head.links.keys() == {"attention"} for head in base.heads)
    for head, own in zip(shown.heads, report.heads, strict=True):
        assert (head.layer, head.head, head.jumps) == (own.layer, own.head, ())
        attention, before, change = (
            dense(head.links[kind], len(shown.tokens))
            for kind in ("attention", "before", "difference")
        )
        torch.testing.assert_close(attention - before, change)
        assert bool((attention.triu(1) > 0).any())  # tokens read later ones, too
        tree = head.tree
        assert tree is not None
        readings = [token for token in own.tokens if token.token.index in shown.positions]
        assert tree.exact == pytest.approx([reading.exact for reading in readings])
        for row, reading in enumerate(readings):
            weights = {shown.positions[k]: float(attention[row, k]) for k in range(len(attention))}
            keys = {key.token.index: key.share for key in reading.keys}
            seen = {n: share for n, share in keys.items() if n in weights}
            assert seen == pytest.approx({n: weights[n] for n in seen}, abs=1e-6)
            named = {shown.positions[n] for node, _ in tree.read[row] for n in tree.members[node]}
            assert named == set(seen)
        if special:
            tv = (change.abs().sum(-1) / 2).tolist()
            assert tv == pytest.approx([reading.tv for reading in readings], abs=1e-5)
            assert head.change == pytest.approx(own.tv, abs=1e-5)


def test_a_text_too_short_for_clusters_is_shown_and_the_note_says_so(
    plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    attach(plain, JatConfig.clustered(**SHORT | {"dense_below": 100}, layers=(3,)))
    try:
        short, longer = view(plain, tokenizer, ["Book.", TEXT], heads=4).texts
    finally:
        detach(plain)
    (none,), (some,) = short.heads, longer.heads
    assert (
        none.note == "100.0 % of the attention is exact. All of a text this short is read exactly."
    )
    assert none.change == 0
    assert len(none.links["difference"].values) == 0
    assert none.tree is not None and none.tree.read == none.tree.means == [[]] * len(short.tokens)
    assert some.note.endswith("read densely (dense_below): this is what clusters would do.")
    assert some.change and some.change > 0.001


def test_a_page_has_jumps_and_clusters_of_one_model(
    plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    attach(plain, JatConfig(PairGraph(vote_rate=0.1), heads=(1,), layers=(3,)))
    attach(plain, JatConfig.clustered(**SHORT, heads=(4,), layers=(3, 5)))
    try:
        (shown,) = view(plain, tokenizer, TEXT).texts
    finally:
        detach(plain)
    found = [(head.layer, head.head, head.tree is not None) for head in shown.heads]
    assert found == [(3, 1, False), (3, 4, True), (5, 4, True)]
    assert len(shown.heads[0].jumps) > 0


def test_trees_know_the_words_of_tokens(
    plain: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> None:
    shown, other = view(plain, tokenizer, [BARK, TEXT], layers=0).texts
    assert shown.parse is not None
    assert other.parse is None
    assert shown.parse.words == BARK.words
    assert len(shown.parse.tokens) == len(shown.tokens) > 3
    joined = [""] * 3
    for token, word in zip(shown.tokens, shown.parse.tokens, strict=True):
        joined[word] += token.removeprefix("##")
    assert joined == [word.lower() for word in BARK.words]


@pytest.fixture
def decoder(tokenizer: PreTrainedTokenizerBase) -> GPT2Model:
    torch.manual_seed(0)
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": tokenizer.vocab_size}
    return GPT2Model(GPT2Config(**shape)).eval()


def test_a_decoder_looks_at_nothing_later(
    decoder: GPT2Model, tokenizer: PreTrainedTokenizerBase
) -> None:
    attach(decoder, JatConfig.stones(heads=(0, 2), layers=(1,), strength=0.5), tokenizer)
    (shown,) = view(decoder, tokenizer, TEXT).texts
    assert len(shown.heads) == 8
    for head in shown.heads:
        for links in head.links.values():
            assert bool((links.keys <= links.queries).all())
    jumping = [head for head in shown.heads if head.jumps]
    assert [(head.layer, head.head) for head in jumping] == [(1, 0), (1, 2)]


def test_a_decoder_on_clusters_shows_what_each_token_reads(
    decoder: GPT2Model, tokenizer: PreTrainedTokenizerBase
) -> None:
    settings = {"keys": 4, "groups": 1, "size": 2, "segment": 8, "window": 4, "dense_below": 0}
    attach(decoder, JatConfig.clustered(layers=(1,), heads=(0, 2), **settings))
    (shown,) = view(decoder, tokenizer, 3 * TEXT).texts
    assert [(head.layer, head.head) for head in shown.heads] == [(1, 0), (1, 2)]
    for head in shown.heads:
        assert "% of the attention is exact" in head.note
        assert head.tree is not None
        attention = dense(head.links["attention"], len(shown.tokens))
        means = [dict(own) for own in head.tree.means]
        for row, read in enumerate(head.tree.read):
            shares = [*read, *means[row].items()]
            for node, share in shares:
                own = float(attention[row, list(head.tree.members[node])].sum())
                assert own == pytest.approx(share, abs=0.002)
                assert len(head.tree.members[node]) <= head.tree.sizes[node]
            assert len(read) <= 2
            assert head.tree.exact[row] + sum(means[row].values()) == pytest.approx(1, abs=0.03)
        assert len(head.tree.read[-1]) == 2
        assert len(means[-1]) > 2
        assert not means[0]


@pytest.mark.parametrize(
    ("texts", "options", "wanted"),
    [
        ([], {}, "texts must be one or more, got none"),
        (" ", {}, "text must not be empty, got ' '"),
        (TEXT * 80, {}, "text must have at most 512 tokens for this model, got 962"),
        ([TEXT, 3], {}, r"texts\[1\] must be a string or a Sentence, got int"),
        (TEXT, {"layers": 6}, "layer 6 must have heads"),
        (TEXT, {"heads": (0, 12)}, "head 12 must be a head"),
        (TEXT, {"tokens": range(9, 40)}, "tokens must lie in a text of 14"),
        (TEXT, {"tokens": range(1)}, "tokens must not all be special"),
        ([TEXT] * 900, {}, "the page must stay below 20 MB, got 64800 matrices of "),
    ],
)
def test_bad_input_is_refused_before_the_model_runs(
    plain: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    monkeypatch: pytest.MonkeyPatch,
    texts: Any,
    options: dict[str, Any],
    wanted: str,
) -> None:
    monkeypatch.setattr(type(plain), "forward", None)
    with pytest.raises(ValueError, match=wanted) as error:
        view(plain, tokenizer, texts, **options)
    assert not re.search("\n", str(error.value))


def test_a_model_of_several_parts_names_them(tokenizer: PreTrainedTokenizerBase) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = CLIPConfig(text_config=sizes | {"vocab_size": 30522}, vision_config=sizes)
    clip = CLIPModel(config).eval()
    with pytest.raises(ValueError, match="got a CLIPModel: pass a part of it, text_model, vision_"):
        view(clip, tokenizer, TEXT)
    assert len(view(clip.text_model, tokenizer, TEXT).texts[0].heads) == 8
