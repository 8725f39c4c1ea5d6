"""What a model makes of words, against loops over the tokens of one sentence at a time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModel, PreTrainedModel

from jat_graph import JatConfig
from jat_graph.data.reading import ATTENTION, GRAPH
from jat_graph.hf import attach
from jat_graph.hf.capture import capture_scores
from jat_graph.inspection.graphs import layer_graph
from jat_graph.inspection.tracing import HeadTrace
from jat_graph.probes.words import WordReader, random_weights
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_config, tiny_model
from tests.probes.support import tiny

SENTENCES = [
    ["barks", "dook"],
    ["fillingly"],
    ["book", "bill", "larking"],
    ["dook", "barks"],
    ["fook", "gark", "dill", "look"],
]
SCORES, PROPAGATED = "scores", "propagated"


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
    tokens = [[n for n, word in enumerate(words) if word == own] for own in range(number)]
    own_states = torch.stack([states[:, own].mean(1) for own in tokens], dim=1)
    own_maps = torch.zeros(len(maps), number, number)
    for i, rows in enumerate(tokens):
        for k, columns in enumerate(tokens):
            block = maps[:, rows][:, :, columns]
            to = block.mean(2) if kind in (SCORES, PROPAGATED) else block.sum(2)
            own_maps[:, i, k] = to.mean(1)
    return own_states, own_maps


def read_all(reader: WordReader, sentences: list[list[str]]) -> tuple[list, list]:
    """Return states and maps of each sentence, as rows are made of them."""
    found: dict[int, tuple] = {}

    def rows_of(row: int, states: np.ndarray, maps: np.ndarray) -> np.ndarray:
        found[row] = torch.tensor(states), torch.tensor(maps)
        return states[:, :0]

    shape = reader.model.config.num_hidden_layers + 1, reader.model.config.hidden_size
    reader.read_rows(sentences, rows_of, [0] * len(sentences), shape, "test")
    own = [found[row] for row in sorted(found)]
    return [states for states, _ in own], [maps for _, maps in own]


@pytest.mark.parametrize("graph", ["pairs", "stones"])
@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("kind", [ATTENTION, SCORES, PROPAGATED, GRAPH])
def test_words_are_those_of_loops_over_one_sentence(
    kind: str, name: str, graph: str, tmp_path: Path
) -> None:
    config = tiny_config() if graph == "pairs" else JatConfig.stones(threshold=0.2, strength=0.5)
    if name == "llama" and graph == "stones":
        config = JatConfig.stones(threshold=0.2, strength=0.5, key_selection="all")
    model = attach(tiny_model(name), config)
    reader = replace(tiny(tmp_path, model), batch_size=2, maps=kind)
    found = read_all(reader, SENTENCES)
    for row, sentence in enumerate(SENTENCES):
        states, maps = token_maps(model, sentence, kind)
        wanted = slow_words(states, maps, words_of(sentence), kind)
        assert_close(found[0][row], wanted[0], atol=1e-5, rtol=1e-5)
        own = found[1][row]
        if name == "llama":  # which looks at no later word
            later = own.triu(1) if kind in (ATTENTION, GRAPH) else own.tril(-1).isinf()
            assert not later.any()
            own, wanted = own.tril(), (wanted[0], wanted[1].tril())
        assert_close(own, wanted[1], atol=1e-5, rtol=1e-5)
        assert len(reader.heads) == len(maps)


def test_a_base_gives_attention_and_keeps_how_it_computes_it(tmp_path: Path) -> None:
    model = tiny_model("bert")
    model.set_attn_implementation("sdpa")
    _, (own,) = read_all(
        WordReader(model, tiny_tokenizer(), tmp_path, maps=ATTENTION), SENTENCES[:1]
    )
    assert model.config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    states, maps = token_maps(model, SENTENCES[0], ATTENTION)
    wanted = slow_words(states, maps, words_of(SENTENCES[0]), ATTENTION)
    assert_close(own, wanted[1], atol=1e-5, rtol=1e-5)


def test_states_are_read_once_and_what_cannot_be_read_whole_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("bert")
    reader = tiny(tmp_path / "new", model)
    found = reader.read_states([["dook"] * 99, ["dook", "barks"], ["dook", ""]], [[1], [1], [0]])
    assert found.left_out == (0, 2) and list(found.starts) == [0, 1, 2, 3]
    alone = reader.read_states([["dook", "barks"]])
    assert np.allclose(found.values[:, 1], alone.values[:, 1], atol=1e-6)
    assert not found.values[:, [0, 2]].any()
    with pytest.raises(ValueError, match="sentences must fit the model, got none that it can take"):
        reader.read_states([["dook"] * 99])
    files = set((tmp_path / "new").iterdir())
    monkeypatch.setattr(type(model), "forward", None)
    assert np.array_equal(reader.read_states([["dook", "barks"]]).values, alone.values)
    with pytest.raises(TypeError):
        reader.read_states([["dook", "barks"]], [[0]])
    assert set((tmp_path / "new").iterdir()) == files  # and nothing half-written


@pytest.mark.parametrize(
    ("maps", "said"),
    [("eyes", "maps must be one of attention"), (GRAPH, "model must have jump heads")],
)
def test_maps_that_are_not_there_are_refused_at_once(maps: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        replace(tiny(tmp_path), maps=maps)


def test_random_weights_are_of_the_seed_and_leave_the_model_alone(minilm_path: str) -> None:
    model = AutoModel.from_pretrained(minilm_path)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = (random_weights(model, seed) for seed in (1, 1, 2))
    assert torch.rand(1) == expected  # nobody's random numbers are used up
    name = "encoder.layer.0.attention.self.query.weight"
    assert torch.equal(one.state_dict()[name], same.state_dict()[name])
    assert not torch.equal(one.state_dict()[name], other.state_dict()[name])
    assert not torch.equal(one.state_dict()[name], before[name])
    assert all(torch.equal(weight, before[key]) for key, weight in model.state_dict().items())
    assert not one.training


def test_a_twin_has_jump_heads_only_if_they_are_asked_for() -> None:
    model = tiny_model("bert")
    inputs = {"input_ids": torch.arange(1, 9)[None]}
    with torch.no_grad():
        plain = random_weights(model)(**inputs).last_hidden_state
        attach(model, JatConfig())
        twin, jumping = random_weights(model), random_weights(model, jumping=True)
        assert torch.equal(twin(**inputs).last_hidden_state, plain)
    assert model.config._attn_implementation == jumping.config._attn_implementation == "jat"
