"""Jump graphs against trees, against the definition in loops."""

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from jat_graph import JatConfig, attach
from jat_graph.probes import Sentence, graphs_and_trees, read_treebank
from jat_graph.probes.graphs import PairCounts, join
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model
from tests.probes.support import (
    RELATIONS,
    plant,
    random_maps,
    random_sentence,
    random_sentences,
    tiny,
)

KINDS = ("head and dependent", "siblings", "one part of speech", *RELATIONS)


def related(sentence: Sentence, one: int, other: int, kind: str) -> bool:
    """Tell whether two words are of a kind."""
    edges = [edge for edge in sentence.edges if set(edge) == {one, other}]
    if kind == "head and dependent":
        return bool(edges)
    if kind == "siblings":
        return sentence.heads[one] == sentence.heads[other] != -1
    if kind == "one part of speech":
        return sentence.tags[one] == sentence.tags[other]
    return any(sentence.relations[word] == kind for word, _ in edges)


def all_pairs(sentence: Sentence) -> list[tuple[int, int]]:
    return list(combinations(range(len(sentence)), 2))


def slow_counts(
    found: Sequence[Sentence], joined: Sequence[set[tuple[int, int]]], kind: str
) -> list[list[float]]:
    """Joined pairs of a kind of each sentence, and what chance and matched chance give."""
    rows = []
    for sentence, own in zip(found, joined, strict=True):
        pairs = all_pairs(sentence)
        hits = sum(related(sentence, *pair, kind) for pair in own)
        chance = matched = 0.0
        for pair in own:
            near = [other for other in pairs if other[1] - other[0] == pair[1] - pair[0]]
            chance += np.mean([related(sentence, *other, kind) for other in pairs])
            matched += np.mean([related(sentence, *other, kind) for other in near])
        rows.append([hits, chance, matched])
    return rows


@given(st.lists(st.integers(1, 8), max_size=3), st.integers(0, 2**20), st.floats(0, 1))
def test_counts_are_those_of_loops(lengths: list[int], seed: int, density: float) -> None:
    found = [random_sentence(length, seed + length) for length in (*lengths, 5)]
    draw = np.random.default_rng(seed)
    graphs = [
        [{pair for pair in all_pairs(sentence) if draw.random() < density} for sentence in found]
        for _ in range(2)
    ]
    places = [(row, pair) for row, own in enumerate(found) for pair in all_pairs(own)]
    joined = np.array([[pair in graph[row] for graph in graphs] for row, pair in places])
    counts = PairCounts(found, joined.astype(np.float32), least=1)
    assert counts.density == pytest.approx(joined.mean(0))
    for kind in KINDS:
        slow = np.array([slow_counts(found, graph, kind) for graph in graphs])  # [C, S, 3]
        if kind in counts.kinds:
            assert counts.of(kind) == pytest.approx(slow.transpose(2, 1, 0), abs=1e-5)
        else:
            assert not slow.any()


@given(st.integers(1, 30), st.integers(0, 2**20), st.sampled_from((None, 0.01, 0.3, 0.99)))
def test_the_heaviest_pairs_are_joined(number: int, seed: int, density: float | None) -> None:
    weights = np.random.default_rng(seed).choice([0.0, 0.0, 0.1, 0.2, 0.5], (number, 2))
    joined = join(weights.astype(np.float32), density)
    for own, found in zip(weights.T, joined.T, strict=True):
        rank = number if density is None else max(1, round(density * number))
        least = sorted(own, reverse=True)[rank - 1]
        assert found.tolist() == [float(weight > 0 and weight >= least) for weight in own]


def test_a_graph_of_siblings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = random_sentences(60)

    def maps_of(row: int, words: Any) -> torch.Tensor:
        maps = torch.zeros(1, len(words), len(words))
        for one, other in all_pairs(found[row]):
            maps[0, one, other] = related(found[row], one, other, "siblings")
        return maps

    plant(monkeypatch, 1, maps_of)
    given_ = {**tiny(), "sentences": found, "folder": tmp_path, "maps": "attention"}
    table = graphs_and_trees(**given_, density=None, least=1)[0].table.set_index("related")
    joined = [{pair for pair in all_pairs(own) if related(own, *pair, "siblings")} for own in found]
    for kind in KINDS:
        hits, chance, matched = np.sum(slow_counts(found, joined, kind), 0)
        assert table.loc[kind, "ratio"] == pytest.approx(hits / chance)
        assert table.loc[kind, "matched"] == pytest.approx(hits / matched)
    assert table.loc["siblings", "ratio low"] > 1.5
    assert table.loc["head and dependent", "ratio"] == 0
    share = sum(map(len, joined)) / sum(len(all_pairs(own)) for own in found)
    assert table["density"].tolist() == pytest.approx([share] * len(table))


def test_random_pairs_are_at_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, 3, random_maps(3, 0))
    given_ = {**tiny(), "sentences": random_sentences(300), "folder": tmp_path}
    table = graphs_and_trees(**given_, maps="attention", density=0.2)[0].table
    for name in ("ratio", "matched", "best ratio", "best matched"):
        inside = (table[f"{name} low"] < 1) & (table[f"{name} high"] > 1)
        assert inside.mean() >= 0.8, name  # of seven rows, one may be out
    assert table["density"].iloc[0] == pytest.approx(0.2, abs=0.001)


def test_near_words_are_at_matched_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains: neighbours are head and dependent. A head that joins neighbours knows no more."""
    chains = [
        Sentence(own.words, own.tags, tuple(range(-1, len(own) - 1)), own.relations)
        for own in random_sentences(30, least=3)
    ]
    plant(monkeypatch, 1, lambda _, words: torch.diag(torch.ones(len(words) - 1), 1)[None])
    given_ = {**tiny(), "sentences": chains, "folder": tmp_path, "maps": "attention"}
    table = graphs_and_trees(**given_)[1].table.set_index("related")
    assert table.loc["head and dependent", "ratio low"] > 2
    assert table.loc["head and dependent", "matched"] == pytest.approx(1)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_what_the_model_cannot_read_counts_for_nothing(name: str, tmp_path: Path) -> None:
    model, tokenizer = attach(tiny_model(name), JatConfig.stones()), tiny_tokenizer()
    short, long = random_sentences(6), random_sentences(1, most=80, least=80)
    wanted, found = (
        graphs_and_trees(model, tokenizer, some, tmp_path)[1].table
        for some in (short, short[:3] + long + short[3:])
    )
    assert len(wanted) == 3 * 4 * 3 and wanted["ratio"].max() > 0
    assert np.allclose(found["ratio"], wanted["ratio"], equal_nan=True)
    assert np.allclose(found["matched"], wanted["matched"], equal_nan=True)


@pytest.mark.slow
def test_the_graphs_of_a_real_model(data_dir: Path, minilm_path: str, tmp_path: Path) -> None:
    found = read_treebank(data_dir / "ud_english_ewt", split="dev", most=40)
    model = attach(AutoModel.from_pretrained(minilm_path), JatConfig.stones())
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    relations, heads = graphs_and_trees(model, tokenizer, found, tmp_path)
    table = relations.table.set_index("related")
    assert table.loc["head and dependent", "ratio low"] > 1.3
    assert table["density"].iloc[0] == pytest.approx(0.05, abs=0.005)
    assert len(heads.table) == 6 * 12 * 3
    assert len(relations.save(tmp_path / "found")) == len(heads.save(tmp_path / "found")) == 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"maps": "scores"}, "maps must be one of graph, attention, got 'scores'"),
        ({"density": 1.0}, "density must be below 1, got 1.0"),
        ({"density": math.nan}, "density must be a number, got nan"),
        ({"maps": "graph"}, "model must have jump heads"),
        ({"sentences": random_sentences(3, most=1)}, "sentences must have two words, got none"),
    ],
)
def test_bad_input(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    given_ = {"sentences": random_sentences(3), "folder": tmp_path, "maps": "attention"} | settings
    with pytest.raises(ValueError, match=said):
        graphs_and_trees(**tiny(), **given_)


def test_heads_that_join_nothing(tmp_path: Path) -> None:
    model = attach(tiny_model("bert"), JatConfig.paper(heads="all", threshold=math.inf))
    for found in graphs_and_trees(model, tiny_tokenizer(), random_sentences(9), tmp_path):
        assert found.table["ratio"].isna().all() and not found.table["density"].any()
        found.save(tmp_path / "found")
