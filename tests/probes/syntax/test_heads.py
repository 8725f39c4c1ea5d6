"""The best head of each relation, against its definition in loops."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from jat_graph import JatConfig, PairGraph, attach
from jat_graph.probes import Sentence, best_heads, read_treebank
from jat_graph.probes.syntax.heads import OFFSETS, WAYS, Halves, head_hits, offset_hits
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model
from tests.probes.syntax.support import decoder, plant, random_sentence, random_sentences, tiny

INF = math.inf


def slow_hit(row: list[float], word: int, head: int) -> float:
    """What a word gets for the one that a row names."""
    others = [(value, place) for place, value in enumerate(row) if place != word]
    best = max([value for value, _ in others], default=-INF)
    named = [place for value, place in others if value == best > -INF]
    return (head in named) / len(named) if named else 0.0


@st.composite
def maps_and_heads(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    length = draw(st.integers(1, 9))
    values = draw(st.sampled_from([(0.0, 1.0, -INF), (0.25, 0.5), tuple(range(99))]))
    maps = generator.choice(values, (draw(st.integers(1, 3)), length, length))
    heads = random_sentence(length, generator).heads
    return maps.astype(np.float32), np.array(heads)


@given(maps_and_heads())
def test_a_head_names_the_word_given_most(case: tuple[np.ndarray, np.ndarray]) -> None:
    maps, heads = case
    found = head_hits(maps.copy(), heads)
    for word, head in enumerate(heads):
        for number, own in enumerate(maps):
            assert found[0, word, number] == pytest.approx(slow_hit(own[word].tolist(), word, head))
            looked = own[:, word].tolist()
            assert found[1, word, number] == pytest.approx(slow_hit(looked, word, head))


@given(maps_and_heads(), st.integers(0, 99))
def test_the_order_of_words_says_nothing(case: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    maps, heads = case
    order = np.random.default_rng(seed).permutation(len(heads))
    place = np.argsort(order)
    moved = np.array([-1 if heads[old] < 0 else place[heads[old]] for old in order])
    found = head_hits(maps[:, order][:, :, order], moved)
    assert np.array_equal(found, head_hits(maps.copy(), heads)[:, order])


@pytest.mark.parametrize("heads", [[-1], [1, -1, 1], [2, 0, -1, 2, 2, 4]])
def test_offsets_end_at_the_outermost_words(heads: list[int]) -> None:
    found = offset_hits(np.array(heads))
    for word, head in enumerate(heads):
        for place, step in enumerate(OFFSETS):
            guessed = max(0, min(word + step, len(heads) - 1))
            assert found[word, place] == (guessed == head)


@pytest.mark.parametrize("way", WAYS)
def test_a_planted_head_is_found(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Head 1 gives most to every word's head, head 2 to that of objects alone."""
    sentences = random_sentences(120, most=9, least=2)

    def maps_of(row: int, words: Any) -> torch.Tensor:
        sentence, draw = sentences[row], torch.Generator().manual_seed(row)
        maps = torch.rand(3, len(words), len(words), generator=draw) / 2
        for word, head in sentence.edges:
            maps[1, word, head] = 1 - (sentence.relations[word] == "obj")
            maps[2, word, head] = sentence.relations[word] == "obj"
        return maps if way == WAYS[0] else maps.mT

    plant(monkeypatch, 3, maps_of)
    found = best_heads(**tiny(), sentences=sentences, folder=tmp_path, least=5)
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
    plant(
        monkeypatch,
        4,
        lambda row, words: torch.rand(
            4, len(words), len(words), generator=torch.Generator().manual_seed(row)
        ),
    )
    table = best_heads(**tiny(), sentences=sentences, folder=tmp_path).table
    first = Halves.of(400, seed=0).chosen_on
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
    table = best_heads(**tiny(), sentences=sentences, folder=tmp_path, least=1).table
    assert (table["accuracy"] == 0).all()


@pytest.mark.parametrize("maps", ["attention", "scores", "propagated", "graph"])
def test_decoders_find_no_later_word(maps: str, tmp_path: Path) -> None:
    sentences = [later(length) for length in (5, 6, 7, 8) * 4]
    model, tokenizer = decoder()
    if maps != "attention":
        model = attach(model, JatConfig(PairGraph(threshold=0.1), heads="all"))
    table = best_heads(model, tokenizer, sentences, tmp_path, maps=maps, least=1).table
    assert ((table["way"] == WAYS[1]) | (table["accuracy"] == 0)).all()


def later(length: int) -> Sentence:
    """A chain: the head of each word is the next one."""
    sentence = random_sentence(length, np.random.default_rng(length))
    heads = (*range(1, length), -1)
    relations = ("obj",) * (length - 1) + ("root",)
    return Sentence(sentence.words, sentence.tags, heads, relations)


def test_the_best_heads_of_a_real_model(data_dir: Path, minilm_path: str, tmp_path: Path) -> None:
    path = data_dir / "ud_english_ewt" / "en_ewt-ud-dev.conllu.gz"
    sentences = read_treebank(path, most=120)
    model, tokenizer = (kind.from_pretrained(minilm_path) for kind in (AutoModel, AutoTokenizer))
    found = best_heads(model, tokenizer, sentences, tmp_path, least=20)
    table = found.table.set_index("relation")
    assert table.loc["det", "accuracy"] > 0.7 > table.loc["det", "offset accuracy"]
    assert table.loc["all", "gain low"] > 0
    found.save(tmp_path / "found")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sentences": []}, r"^sentences must be one or more sentences, got \[\]$"),
        ({"sentences": ["dook"]}, "^sentences must hold sentences of a treebank, got 'dook'$"),
        ({"least": 0}, "^least must be at least 1, got 0$"),
        (
            {"least": 999},
            "^sentences must have a relation of 999 words to score, got none: ",
        ),
        ({"maps": "graph"}, "^model must have jump heads"),
        ({"maps": "hidden"}, "^maps must be one of attention, scores, propagated, graph"),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    given_ = {"sentences": random_sentences(8), "folder": tmp_path} | settings
    with pytest.raises(ValueError, match=message):
        best_heads(tiny_model("bert"), tiny_tokenizer(), **given_)
