"""Jump graphs against trees, against the definition in loops."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from jat_graph import JatConfig, PairGraph, attach
from jat_graph.probes import Sentence, graphs_and_trees, read_treebank
from jat_graph.probes.syntax.graphs import Counts, join, pair_weights
from jat_graph.probes.syntax.kinds import PairKinds
from jat_graph.probes.words import WordReader
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model
from tests.probes.syntax.support import (
    RELATIONS,
    decoder,
    plant,
    random_sentences,
    sentences,
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
    size = len(sentence)
    return [(one, other) for one in range(size) for other in range(one + 1, size)]


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


@given(sentences(), st.integers(0, 2**20), st.floats(0, 1))
def test_counts_are_those_of_loops(found: list[Sentence], seed: int, density: float) -> None:
    draw = np.random.default_rng(seed)
    graphs = [
        [{pair for pair in all_pairs(sentence) if draw.random() < density} for sentence in found]
        for _ in range(2)
    ]
    places = [(row, pair) for row, own in enumerate(found) for pair in all_pairs(own)]
    joined = np.array([[pair in graph[row] for graph in graphs] for row, pair in places])
    kinds = PairKinds.of(found, least=1)
    counts = Counts(kinds, joined.astype(np.float32))
    assert counts.density == pytest.approx(joined.mean(0))
    for kind in KINDS:
        slow = np.array([slow_counts(found, graph, kind) for graph in graphs])  # [C, S, 3]
        if kind in kinds.pairs:
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


def joining(found: Sequence[Sentence], kind: str) -> Any:
    """Maps that join the pairs of a kind, one way each."""

    def maps_of(row: int, words: Any) -> torch.Tensor:
        maps = torch.zeros(1, len(words), len(words))
        for one, other in all_pairs(found[row]):
            maps[0, one, other] = related(found[row], one, other, kind)
        return maps

    return maps_of


def test_a_graph_of_siblings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = random_sentences(60)
    plant(monkeypatch, 1, joining(found, "siblings"))
    given_ = {**tiny(), "sentences": found, "folder": tmp_path, "maps": "attention"}
    table = graphs_and_trees(**given_, density=None, least=1).table.set_index("related")
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
    found = random_sentences(300)
    plant(
        monkeypatch,
        3,
        lambda row, words: torch.rand(
            3, len(words), len(words), generator=torch.Generator().manual_seed(row)
        ),
    )
    given_ = {**tiny(), "sentences": found, "folder": tmp_path, "maps": "attention"}
    table = graphs_and_trees(**given_, density=0.2).table
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

    def maps_of(row: int, words: Any) -> torch.Tensor:
        return torch.diag(torch.ones(len(words) - 1), 1)[None]

    plant(monkeypatch, 1, maps_of)
    given_ = {**tiny(), "sentences": chains, "folder": tmp_path, "maps": "attention"}
    table = graphs_and_trees(**given_, each="heads").table.set_index("related")
    assert table.loc["head and dependent", "ratio low"] > 2
    assert table.loc["head and dependent", "matched"] == pytest.approx(1)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("stones", [True, False])
def test_weights_are_the_means_of_both_ways(name: str, stones: bool, tmp_path: Path) -> None:
    settings = JatConfig.stones() if stones else JatConfig(PairGraph(threshold=1.0), heads="all")
    reader = WordReader(attach(tiny_model(name), settings), tiny_tokenizer(), "graph", 4)
    found = random_sentences(9)
    weights, read = pair_weights(tmp_path, reader, found)
    assert read == list(range(9)) and (weights > 0).any()
    start, plan = 0, reader.plan([list(own.words) for own in found])
    maps = {own.row: own.maps for batch in reader.read(plan) for own in batch}
    for row, sentence in enumerate(found):
        for place, (one, other) in enumerate(all_pairs(sentence)):
            both = maps[row][:, one, other] + maps[row][:, other, one]
            assert weights[start + place] == pytest.approx(both.numpy() / 2, abs=1e-6)
            if name == "gpt2":
                assert not maps[row][:, one, other].any()
        start += len(all_pairs(sentence))


def test_what_the_model_cannot_read_counts_for_nothing(tmp_path: Path) -> None:
    model, tokenizer = decoder()
    short, long = random_sentences(6), random_sentences(1, most=80, least=80)
    wanted = graphs_and_trees(
        model, tokenizer, short, tmp_path, maps="attention", each="heads"
    ).table
    found = graphs_and_trees(
        model, tokenizer, short[:3] + long + short[3:], tmp_path, maps="attention", each="heads"
    ).table
    assert np.allclose(found["ratio"], wanted["ratio"], equal_nan=True)
    assert np.allclose(found["matched"], wanted["matched"], equal_nan=True)


def test_the_graphs_of_a_real_model(data_dir: Path, minilm_path: str, tmp_path: Path) -> None:
    path = data_dir / "ud_english_ewt" / "en_ewt-ud-dev.conllu.gz"
    found = read_treebank(path, most=40)
    model = attach(AutoModel.from_pretrained(minilm_path), JatConfig.stones())
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    findings = graphs_and_trees(model, tokenizer, found, tmp_path)
    table = findings.table.set_index("related")
    assert table.loc["head and dependent", "ratio low"] > 1.3
    assert table["density"].iloc[0] == pytest.approx(0.05, abs=0.005)
    heads = graphs_and_trees(model, tokenizer, found, tmp_path, each="heads")
    assert len(heads.table) == 6 * 12 * 3
    findings.save(tmp_path / "found")
    heads.save(tmp_path / "found")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"maps": "scores"}, "^maps must be one of graph, attention, got 'scores'$"),
        ({"each": "layers"}, "^each must be one of relations, heads, got 'layers'$"),
        ({"density": 1.0}, "^density must be below 1, got 1.0$"),
        ({"density": math.nan}, "^density must be a number, got nan$"),
        ({"maps": "graph"}, "^model must have jump heads"),
        ({"sentences": random_sentences(3, most=1)}, "^sentences must have two words, got none"),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    given_ = {"sentences": random_sentences(3), "folder": tmp_path, "maps": "attention"} | settings
    with pytest.raises(ValueError, match=message):
        graphs_and_trees(tiny_model("bert"), tiny_tokenizer(), **given_)


@pytest.mark.parametrize("each", ["relations", "heads"])
def test_heads_that_join_nothing(each: str, tmp_path: Path) -> None:
    model = attach(tiny_model("bert"), JatConfig(PairGraph(threshold=math.inf), heads="all"))
    found = graphs_and_trees(model, tiny_tokenizer(), random_sentences(9), tmp_path, each=each)
    assert found.table["ratio"].isna().all() and not found.table["density"].any()
    found.save(tmp_path / "found")
