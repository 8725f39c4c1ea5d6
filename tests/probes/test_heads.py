"""The best head of each relation, against its definition in loops."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, attach
from jat_graph.probes import Sentence, best_heads, read_treebank
from jat_graph.probes.heads import WAYS, choosing_half, head_hits
from tests.hf.models import tiny_model
from tests.probes.support import (
    minilm,
    plant,
    random_maps,
    random_sentence,
    random_sentences,
    tiny,
)

INF = math.inf


def slow_hit(row: list[float], word: int, head: int) -> float:
    """What a word gets for the one that a row names."""
    others = [(value, index) for index, value in enumerate(row) if index != word]
    best = max([value for value, _ in others], default=-INF)
    named = [index for value, index in others if value == best > -INF]
    return (head in named) / len(named) if named else 0.0


@st.composite
def maps_and_heads(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    seed = draw(st.integers(0, 2**20))
    generator, length = np.random.default_rng(seed), draw(st.integers(1, 9))
    values = draw(st.sampled_from([(0.0, 1.0, -INF), (0.25, 0.5), tuple(range(99))]))
    maps = generator.choice(values, (draw(st.integers(1, 3)), length, length))
    return maps.astype(np.float32), np.array(random_sentence(length, seed).heads)


@given(maps_and_heads(), st.booleans())
def test_a_head_names_the_word_given_most(
    case: tuple[np.ndarray, np.ndarray], nothing_is_none: bool
) -> None:
    maps, heads = case
    found = head_hits(maps, heads, nothing_is_none)
    own_maps = np.where(maps > 0, maps, -INF) if nothing_is_none else maps
    for word, head in enumerate(heads):
        for number, own in enumerate(own_maps):
            assert found[0, word, number] == pytest.approx(slow_hit(own[word].tolist(), word, head))
            looked = own[:, word].tolist()
            assert found[1, word, number] == pytest.approx(slow_hit(looked, word, head))


@pytest.mark.parametrize("way", WAYS)
def test_a_planted_head_is_found(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Head 1 gives most to every word's head, head 2 to that of objects alone."""
    sentences = random_sentences(120, most=9, least=2)

    def maps_of(row: int, words: Any) -> torch.Tensor:
        maps = random_maps(3, 0)(row, words) / 2
        for word, head in sentences[row].edges:
            maps[1, word, head] = 1 - (sentences[row].relations[word] == "obj")
            maps[2, word, head] = sentences[row].relations[word] == "obj"
        return maps if way == WAYS[0] else maps.mT

    plant(monkeypatch, 3, maps_of)
    found = best_heads(tiny(tmp_path), sentences, least=5)
    table = found.table.set_index("relation")
    assert set(table["way"]) == {way}
    assert table.loc["obj", ["head", "accuracy", "low", "high"]].tolist() == [2, 1, 1, 1]
    for relation in ("nsubj", "det", "nmod:poss"):
        assert table.loc[relation, ["head", "accuracy", "low"]].tolist() == [1, 1, 1]
    assert table.loc["all", "head"] == 1 and 0.5 < table.loc["all", "accuracy"] < 1
    gains = table["accuracy"] - table["offset accuracy"]
    assert table["gain"].tolist() == pytest.approx(gains.tolist())
    assert (table["gain low"] > 0).all()


def test_random_attention_is_at_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = random_sentences(400, most=9)
    plant(monkeypatch, 4, random_maps(4, 0))
    table = best_heads(tiny(tmp_path), sentences).table
    first = choosing_half(400, seed=0)
    scored = [sentence for row, sentence in enumerate(sentences) if not first[row]]
    chances = [1 / (len(sentence) - 1) for sentence in scored for _ in sentence.edges]
    whole = table.set_index("relation").loc["all"]
    assert whole["low"] < float(np.mean(chances)) < whole["high"]


def test_chosen_on_one_half_and_scored_on_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each head of the model is right in one sentence alone: none keeps what it was chosen for."""
    sentences = random_sentences(40, most=9, least=4)

    def maps_of(row: int, words: Any) -> torch.Tensor:
        maps = torch.zeros(40, len(words), len(words))
        for word, head in sentences[row].edges:
            maps[row, word, head] = 1.0
        return maps

    plant(monkeypatch, 40, maps_of)
    table = best_heads(tiny(tmp_path), sentences, least=1).table
    assert (table["accuracy"] == 0).all()


@pytest.mark.parametrize("maps", ["attention", "scores", "propagated", "graph"])
def test_decoders_find_no_later_word(maps: str, tmp_path: Path) -> None:
    """In chains the head of each word is the next one."""
    chains = []
    for length in (5, 6, 7, 8) * 4:
        own = random_sentence(length, length)
        relations = ("obj",) * (length - 1) + ("root",)
        chains.append(Sentence(own.words, own.tags, (*range(1, length), -1), relations))
    model = tiny_model("gpt2")
    if maps != "attention":
        model = attach(model, JatConfig.paper(heads="all", threshold=0.1))
    table = best_heads(tiny(tmp_path, model), chains, maps=maps, least=1).table
    assert ((table["way"] == WAYS[1]) | (table["accuracy"] == 0)).all()


@pytest.mark.slow
def test_the_best_heads_of_a_real_model(data_dir: Path, minilm_path: str, tmp_path: Path) -> None:
    sentences = read_treebank(data_dir / "ud_english_ewt", split="dev", most=120)
    found = best_heads(minilm(tmp_path, minilm_path), sentences, least=20)
    table = found.table.set_index("relation")
    assert table.loc["det", "accuracy"] > 0.7 > table.loc["det", "offset accuracy"]
    assert table.loc["all", "gain low"] > 0
    assert len(found.save(tmp_path / "found")) == 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sentences": []}, "sentences must be one or more"),
        ({"sentences": ["dook"]}, "sentences must hold sentences of a treebank, got 'dook'"),
        ({"least": 0}, "least must be at least 1, got 0"),
        ({"least": 999}, "sentences must have a relation of 999 words"),
        ({"maps": "graph"}, "model must have jump heads"),
        ({"maps": "hidden"}, "maps must be one of attention, scores, propagated, graph"),
    ],
)
def test_bad_input(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        best_heads(tiny(tmp_path), **{"sentences": random_sentences(8)} | settings)
