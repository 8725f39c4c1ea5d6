"""What is looked at: parts equal the whole, nothing runs that is refused, one head in memory."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.hf import attach, disabled
from jat_graph.inspection import StoneReport, inspect_text, view_head
from jat_graph.jumps.config import JatConfig, PairGraph
from tests.data.support import TEXTS, tiny_tokenizer
from tests.hf.models import tiny_model
from tests.support import MemoryMeter, assert_equal

TEXT = " ".join(TEXTS)
SETTINGS = {
    "pairs": JatConfig(PairGraph(threshold=1.0), heads=(0, 2, 3)),
    "stones": JatConfig.stones(heads=(0, 2, 3), strength=0.5),
    "sampled": JatConfig(
        PairGraph(vote_rate=0.1, key_selection="sampled", key_factor=3.0), heads=(0, 2, 3)
    ),
    "hops": JatConfig(
        PairGraph(threshold=((1.0, 2.0, 0.5),) * 3),
        heads=(0, 2, 3),
        hop_weights={(0, 2): (0.0, 1.0), (3,): (0.5, 0.5)},
        pattern="window:5",
    ),
}
HEADS = [(layer, head) for layer in range(3) for head in (0, 2, 3)]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return tiny_tokenizer()


@pytest.fixture(params=SETTINGS)
def model(request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    return attach(tiny_model("bert").double(), SETTINGS[request.param], tokenizer)


def test_a_part_of_the_heads_is_that_part_of_the_whole(model, tokenizer):
    whole = inspect_text(model, tokenizer, TEXT, top=4)
    assert [(report.layer, report.head) for report in whole.heads] == HEADS
    assert all(report.jumps for report in whole.heads)
    for layers, heads, wanted in (
        (1, 2, [(1, 2)]),
        ((0, 2), None, [HEADS[n] for n in (0, 1, 2, 6, 7, 8)]),
        (None, (3, 0), [place for place in HEADS if place[1] != 2]),
        ([2], [0, 3], [(2, 0), (2, 3)]),
    ):
        part = inspect_text(model, tokenizer, TEXT, layers=layers, heads=heads, top=4)
        assert list(part.heads) == [whole.heads[HEADS.index(place)] for place in wanted]


@pytest.mark.slow
def test_a_part_of_the_tokens_has_the_jumps_between_them(model, tokenizer):
    span = range(3, 11)
    whole = inspect_text(model, tokenizer, TEXT, top=10_000)
    part = inspect_text(model, tokenizer, TEXT, tokens=span, top=10_000)
    for report, full in zip(part.heads, whole.heads, strict=True):
        inside = [jump for jump in full.jumps if {jump.query.index, jump.key.index} <= set(span)]
        assert 0 < len(inside) < len(full.jumps)
        assert list(report.jumps) == inside
        if isinstance(full, StoneReport):
            assert 0 < len(report.stones) <= len(full.stones)
            known = {(stone.token, stone.side): stone for stone in full.stones}
            for stone in report.stones:
                own = known[stone.token, stone.side]
                assert stone.share == own.share
                assert stone.links == tuple(x for x in own.links if x.token.index in span)
                size = len(own.links) + own.hidden_links
                assert len(stone.links) + stone.hidden_links == size
        empty = {"jumps": (), "stones": ()} if isinstance(full, StoneReport) else {"jumps": ()}
        assert replace(report, **empty) == replace(full, **empty)


@pytest.mark.slow
def test_views_are_cut_the_same_way(model, tokenizer):
    options: dict[str, Any] = {"layer": 1, "head": 2, "special_tokens": True}
    whole = view_head(model, tokenizer, TEXT, **options)
    part = view_head(model, tokenizer, TEXT, tokens=range(4, 9), **options)
    assert [token.index for token in part.tokens] == [4, 5, 6, 7, 8]
    for name in ("scores", "weights", "propagated", "gains"):
        assert_equal(getattr(part, name), getattr(whole, name)[4:9, 4:9])
    for jump in part.report.jumps:
        place = jump.query.index, jump.key.index
        assert float(whole.gains[place]) == jump.gain
        assert float(whole.weights[place]) == jump.weight


def test_gains_are_those_of_the_model(model, tokenizer):
    inputs = tokenizer(TEXT, return_tensors="pt")
    model.eval()
    with torch.no_grad():
        after = model(**inputs, output_attentions=True).attentions
        with disabled(model):
            before = model(**inputs, output_attentions=True).attentions
    report = inspect_text(model, tokenizer, TEXT, top=20, special_tokens=True)
    for head in report.heads:
        for jump in head.jumps:
            place = 0, head.head, jump.query.index, jump.key.index
            assert jump.after == pytest.approx(float(after[head.layer][place]), abs=1e-9)
            if head.layer == 0 and report.config.pattern is None:  # both saw the same there
                assert jump.before == pytest.approx(float(before[0][place]), abs=1e-9)


@pytest.mark.parametrize("name", ["albert", "gpt2", "llama"])
@pytest.mark.parametrize(
    "config",
    [
        JatConfig(PairGraph(threshold=1.0), heads=(0, 2)),
        JatConfig.stones(heads=(0, 2), strength=(0.5, -0.3, 0.2)),
        JatConfig.stones(heads=(0, 2)),
        JatConfig(PairGraph(threshold=1.0), heads=(0, 2), conv={"layer": "GCNConv"}, strength=0.5),
    ],
    ids=["pairs", "stones", "learned", "conv"],
)
def test_gains_are_those_of_other_models(tokenizer, name, config):
    model = attach(tiny_model(name).double(), config, tokenizer)
    for name, strength in model.named_parameters():
        if "strength" in name:
            strength.data.fill_(0.5)
    test_gains_are_those_of_the_model(model, tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize("most", [2, 5, 9, 30])
def test_cropping_keeps_what_is_strongest(model, tokenizer, most):
    for layer, head in HEADS[::3]:
        whole = view_head(model, tokenizer, TEXT, layer=layer, head=head, top=10_000)
        view = whole.strongest(most)
        indices = [token.index for token in view.tokens]
        assert len(indices) == min(most, len(whole.tokens))
        assert indices == sorted(indices)
        for jump in whole.report.jumps[: most // 2]:  # which have at most so many tokens
            assert {jump.query.index, jump.key.index} <= set(indices)
        shown = [j for j in whole.report.jumps if {j.query.index, j.key.index} <= set(indices)]
        assert list(view.report.jumps) == shown
        places = [whole.tokens.index(token) for token in view.tokens]
        for name in ("scores", "weights", "propagated", "gains"):
            assert_equal(getattr(view, name), getattr(whole, name)[places][:, places])
    with pytest.raises(ValueError, match="most must"):
        whole.strongest(0)


@pytest.mark.slow
def test_the_matrices_of_one_head_are_in_memory_at_a_time(model, tokenizer):
    text = " ".join(["bark look"] * 30)
    length = len(tokenizer(text)["input_ids"])
    peaks = []
    for layer, head in [(None, None), *HEADS]:
        with MemoryMeter() as meter:
            run = model.register_forward_hook(lambda *_, meter=meter: meter.restart())
            inspect_text(model, tokenizer, text, layers=layer, heads=head, top=3)
            run.remove()
        # Of stones of both sides, what each has of queries, keys and values; or sampled triples.
        assert meter.largest <= max(2 * length * (length + 2 * 8), 16384)
        peaks.append(meter.peak)
    everything, *alone = peaks
    assert everything <= 1.05 * max(alone)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": " \n"}, "text must not be empty"),
        ({"text": "book bark " * 600}, "text must have at most"),
        ({"layers": 3}, "layer 3 must"),
        ({"layers": 1, "heads": 1}, "head 1 must be a jump head"),
        ({"heads": (0, 13)}, "head 13 must"),
        ({"layers": ()}, "layers must"),
        ({"layers": "0"}, "layers must"),
        ({"heads": -1}, "heads must"),
        ({"heads": (2, 2)}, "heads must"),
        ({"tokens": range(40, 90)}, "tokens must"),
        ({"tokens": range(9, 3)}, "tokens must"),
        ({"tokens": range(0, 8, 2)}, "tokens must"),
        ({"tokens": (3, 4)}, "tokens must"),
        ({"tokens": range(0, 1)}, "tokens must"),
        ({"tokens": "book banana"}, "tokens must be words of the text, got .banana."),
        ({"jump": ("book", "banana")}, "tokens must be words of the text, got .banana."),
        ({"jump": ("book",)}, "jump must be two words"),
        ({"jump": "bo"}, "jump must be two words, got .bo."),
        ({"top": -1}, "top must"),
    ],
)
def test_what_is_not_there_is_refused_before_the_model_runs(tokenizer, options, message):
    model = attach(tiny_model("bert"), SETTINGS["pairs"])

    def refuse(*_: Any) -> None:
        raise AssertionError("the model was run")

    model.register_forward_pre_hook(refuse)
    with pytest.raises(AssertionError, match="the model was run"):
        inspect_text(model, tokenizer, TEXT)
    given = {"text": TEXT} | options
    with pytest.raises(ValueError, match=message):
        inspect_text(model, tokenizer, **given)
