"""The best head of each relation, against its definition in loops."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jat_graph.probes import best_heads
from tests.probes.support import (
    planted,
    random_maps,
    random_sentence,
    random_sentences,
)

INF = math.inf


def slow_hit(row: list[float], word: int, head: int) -> float:
    """What a word gets for the one that a row names."""
    others = [(value, index) for index, value in enumerate(row) if index != word]
    best = max([value for value, _ in others], default=-INF)
    named = [index for value, index in others if value == best > -INF]
    return (head in named) / len(named) if named else 0.0


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.25, 0.5), range(99)])
@pytest.mark.parametrize("seed", range(5))
def test_a_head_names_the_word_given_most(seed: int, values: Any, tmp_path: Path) -> None:
    """One sentence again and again: what is chosen on it scores there what loops say."""
    sentence = random_sentence(9 - seed, seed)
    maps = np.random.default_rng(seed).choice(values, (3, len(sentence), len(sentence)))
    reader = planted(tmp_path, 3, lambda _: torch.tensor(maps, dtype=torch.float32))
    table = best_heads(reader, [sentence] * 4, least=1).table.set_index("relation")
    given = np.where(maps > 0, maps, -INF)  # what is given nothing is not named
    ways = {"dependent looks": given, "head looks": given.swapaxes(1, 2)}
    for relation, row in table.iterrows():
        kinds = sentence.relations if relation != "all" else ["all"] * len(sentence)
        edges = [edge for edge in sentence.edges if kinds[edge[0]] == relation]
        hits = {
            (way, head): np.mean([slow_hit(own[w].tolist(), w, to) for w, to in edges])
            for way, some in ways.items()
            for head, own in enumerate(some)
        }
        assert row["accuracy"] == pytest.approx(max(hits.values()))
        assert hits[row["way"], row["head"]] == pytest.approx(row["accuracy"])
    assert len(table) == len({sentence.relations[word] for word, _ in sentence.edges}) + 1


@pytest.mark.parametrize("way", ["dependent looks", "head looks"])
def test_a_planted_head_is_found(way: str, tmp_path: Path) -> None:
    """Head 1 gives most to every word's head, head 2 to that of objects alone."""
    sentences = random_sentences(120, most=9, least=5)
    noise = random_maps(3, 0)

    def maps_of(words: Any) -> torch.Tensor:
        own = next(sentence for sentence in sentences if list(sentence.words) == words)
        maps = noise(words) / 2
        for word, head in own.edges:
            maps[1, word, head] = 1 - (own.relations[word] == "obj")
            maps[2, word, head] = own.relations[word] == "obj"
        return maps if way == "dependent looks" else maps.mT

    found = best_heads(planted(tmp_path, 3, maps_of), sentences, least=5)
    table = found.table.set_index("relation")
    assert set(table["way"]) == {way}
    assert table.loc["obj", ["head", "accuracy", "low", "high"]].tolist() == [2, 1, 1, 1]
    for relation in ("nsubj", "det", "nmod:poss"):
        assert table.loc[relation, ["head", "accuracy", "low"]].tolist() == [1, 1, 1]
    assert table.loc["all", "head"] == 1 and 0.5 < table.loc["all", "accuracy"] < 1
    gains = table["accuracy"] - table["offset accuracy"]
    assert table["gain"].tolist() == pytest.approx(gains.tolist())
    assert (table["gain low"] > 0).all()


def test_random_attention_is_at_chance(tmp_path: Path) -> None:
    sentences = random_sentences(400, most=9)
    table = best_heads(planted(tmp_path, 4, random_maps(4, 0)), sentences).table
    chances = [1 / (len(sentence) - 1) for sentence in sentences for _ in sentence.edges]
    whole = table.set_index("relation").loc["all"]
    assert whole["low"] < float(np.mean(chances)) < whole["high"]


def test_chosen_on_one_half_and_scored_on_the_other(tmp_path: Path) -> None:
    """Each head of the model is right in one sentence alone: none keeps what it was chosen for."""
    sentences = random_sentences(40, most=9, least=5)

    def maps_of(words: Any) -> torch.Tensor:
        row = [list(sentence.words) for sentence in sentences].index(words)
        maps = torch.zeros(40, len(words), len(words))
        for word, head in sentences[row].edges:
            maps[row, word, head] = 1.0
        return maps

    table = best_heads(planted(tmp_path, 40, maps_of), sentences, least=1).table
    assert (table["accuracy"] == 0).all()
