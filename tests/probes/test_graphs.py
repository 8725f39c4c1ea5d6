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

from jat_graph import JatConfig, attach
from jat_graph.probes import Sentence, graphs_and_trees, read_treebank
from jat_graph.probes.graphs import PairCounts
from tests.hf.models import tiny_model
from tests.probes.support import (
    RELATIONS,
    minilm,
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


def test_random_pairs_are_at_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, 3, random_maps(3, 0))
    options: dict[str, Any] = {"maps": "attention", "density": 0.2}
    table = graphs_and_trees(tiny(tmp_path), random_sentences(300), **options)[0].table
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
    table = graphs_and_trees(tiny(tmp_path), chains, maps="attention")[1].table
    table = table.set_index("related")
    assert table.loc["head and dependent", "ratio low"] > 2
    assert table.loc["head and dependent", "matched"] == pytest.approx(1)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_what_the_model_cannot_read_counts_for_nothing(name: str, tmp_path: Path) -> None:
    reader = tiny(tmp_path, attach(tiny_model(name), JatConfig.stones()))
    short, long = random_sentences(6), random_sentences(1, most=80, least=80)
    wanted, found = (
        graphs_and_trees(reader, some)[1].table for some in (short, short[:3] + long + short[3:])
    )
    assert len(wanted) == 3 * 4 * 3 and wanted["ratio"].max() > 0
    assert np.allclose(found["ratio"], wanted["ratio"], equal_nan=True)
    assert np.allclose(found["matched"], wanted["matched"], equal_nan=True)


@pytest.mark.slow
def test_the_graphs_of_a_real_model(data_dir: Path, minilm_path: str, tmp_path: Path) -> None:
    found = read_treebank(data_dir / "ud_english_ewt", split="dev", most=40)
    reader = minilm(tmp_path, minilm_path)
    attach(reader.model, JatConfig.stones())
    relations, heads = graphs_and_trees(reader, found)
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
    given_ = {"sentences": random_sentences(3), "maps": "attention"} | settings
    with pytest.raises(ValueError, match=said):
        graphs_and_trees(tiny(tmp_path), **given_)


def test_heads_that_join_nothing(tmp_path: Path) -> None:
    model = attach(tiny_model("bert"), JatConfig.paper(heads="all", threshold=math.inf))
    for found in graphs_and_trees(tiny(tmp_path, model), random_sentences(9)):
        assert found.table["ratio"].isna().all() and not found.table["density"].any()
        found.save(tmp_path / "found")
