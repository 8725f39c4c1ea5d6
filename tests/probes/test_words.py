"""What a model makes of words, against loops over the tokens of one sentence at a time."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import PreTrainedModel

from jat_graph.config import JatConfig
from jat_graph.hf import attach
from jat_graph.hf.capture import capture_scores
from jat_graph.inspection.graphs import layer_graph
from jat_graph.inspection.tracing import HeadTrace
from jat_graph.probes.words import ATTENTION, GRAPH, MAPS, PROPAGATED, SCORES, WordReader
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_config, tiny_model

SENTENCES = [
    ["barks", "dook"],
    ["fillingly"],
    ["book", "bill", "larking"],
    ["dook", "barks"],
    ["fook", "gark", "dill", "look"],
]


def words_of(sentence: list[str]) -> list[int]:
    tokens = tiny_tokenizer()([sentence], is_split_into_words=True).word_ids(0)
    return [-1 if word is None else word for word in tokens]


def token_maps(model: PreTrainedModel, sentence: list[str], kind: str) -> tuple[Tensor, Tensor]:
    """States [layers + 1, L, D] and maps [C, L, L] of the tokens of one sentence."""
    inputs = tiny_tokenizer()([sentence], is_split_into_words=True, return_tensors="pt")
    options = {"output_hidden_states": True, "use_cache": False}
    if kind == ATTENTION:
        with torch.no_grad():
            outputs = model(**inputs, **options, output_attentions=True)
        return torch.stack(outputs.hidden_states)[:, 0], torch.cat(outputs.attentions, 1)[0]
    with torch.no_grad(), capture_scores(model) as layers:
        outputs = model(**inputs, **options)
    traces = [HeadTrace(layer.of_head(head)) for layer in layers for head in layer.heads]
    named = {SCORES: "scores", PROPAGATED: "propagated", GRAPH: "weights"}[kind]
    assert kind != GRAPH or all(layer_graph(layer).weights.any() for layer in layers)
    maps = [getattr(trace, named) for trace in traces]
    return torch.stack(outputs.hidden_states)[:, 0], torch.stack(maps)


def slow_words(states: Tensor, maps: Tensor, words: list[int], kind: str) -> tuple[Tensor, Tensor]:
    number = max(words) + 1
    places = [[n for n, word in enumerate(words) if word == own] for own in range(number)]
    own_states = torch.stack([states[:, own].mean(1) for own in places], dim=1)
    own_maps = torch.zeros(len(maps), number, number)
    for i, rows in enumerate(places):
        for k, columns in enumerate(places):
            block = maps[:, rows][:, :, columns]
            to = block.mean(2) if kind in (SCORES, PROPAGATED) else block.sum(2)
            own_maps[:, i, k] = to.mean(1)
    return own_states, own_maps


@pytest.mark.parametrize("graph", ["pairs", "stones"])
@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("kind", MAPS)
def test_words_are_those_of_loops_over_one_sentence(kind: str, name: str, graph: str) -> None:
    config = tiny_config() if graph == "pairs" else JatConfig.stones(threshold=0.2, strength=0.5)
    if name == "llama" and graph == "stones":
        config = JatConfig.stones(threshold=0.2, strength=0.5, key_selection="all")
    model = attach(tiny_model(name), config)
    reader = WordReader(model, tiny_tokenizer(), kind, batch_size=2)
    plan = reader.plan(SENTENCES)
    found = {own.row: own for batch in reader.read(plan) for own in batch}
    assert sorted(found) == list(range(len(SENTENCES)))
    for row, sentence in enumerate(SENTENCES):
        states, maps = token_maps(model, sentence, kind)
        wanted = slow_words(states, maps, words_of(sentence), kind)
        assert_close(found[row].states, wanted[0], atol=1e-5, rtol=1e-5)
        assert found[row].maps is not None
        assert_close(found[row].maps, wanted[1], atol=1e-5, rtol=1e-5)
        assert len(reader.heads) == len(maps)


def test_a_base_gives_attention_and_keeps_how_it_computes_it() -> None:
    model = tiny_model("bert")
    model.set_attn_implementation("sdpa")
    reader = WordReader(model, tiny_tokenizer(), ATTENTION)
    (own,) = (own for batch in reader.read(reader.plan([["dook", "barks"]])) for own in batch)
    assert model.config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    states, maps = token_maps(model, ["dook", "barks"], ATTENTION)
    wanted = slow_words(states, maps, words_of(["dook", "barks"]), ATTENTION)
    assert_close(own.maps, wanted[1], atol=1e-5, rtol=1e-5)


def test_what_cannot_be_read_whole_is_left_out() -> None:
    reader = WordReader(tiny_model("bert"), tiny_tokenizer())
    plan = reader.plan([["dook"] * 99, ["dook"], ["dook", ""]])
    assert plan.left_out == (0, 2)
    assert plan.batches == [[1]]
    with pytest.raises(ValueError, match="sentences must fit the model, got none that it can take"):
        reader.plan([["dook"] * 99])


def test_later_words_of_a_decoder_are_not_seen() -> None:
    reader = WordReader(tiny_model("llama"), tiny_tokenizer(), ATTENTION)
    (own,) = (own for batch in reader.read(reader.plan([SENTENCES[4]])) for own in batch)
    assert own.maps is not None
    assert not own.maps.triu(1).any()


@pytest.mark.parametrize(
    ("maps", "said"),
    [("eyes", "maps must be one of attention"), (GRAPH, "model must have jump heads")],
)
def test_maps_that_are_not_there_are_refused_at_once(maps: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WordReader(tiny_model("bert"), tiny_tokenizer(), maps)
