"""Jump graphs against trees, against the definition in loops."""

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import bootstrap

from jat_graph import JatConfig, attach
from jat_graph.probes import Sentence, WordReader, graphs_and_trees
from tests.hf.models import tiny_model
from tests.probes.support import (
    RELATIONS,
    planted,
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


def random_graphs(
    found: Sequence[Sentence], density: float, seed: int, folder: Path
) -> tuple[WordReader, list[list[set[tuple[int, int]]]]]:
    """Return a reader of two heads, and the pairs that each joins in each sentence."""
    draw = np.random.default_rng(seed)
    maps = {own.words: draw.random((2, len(own), len(own))) < density for own in found}
    both = {words: own | own.swapaxes(1, 2) for words, own in maps.items()}
    joined = [
        [{pair for pair in all_pairs(own) if both[own.words][head][pair]} for own in found]
        for head in range(2)
    ]
    reader = planted(folder, 2, lambda words: torch.tensor(maps[tuple(words)]).float())
    return reader, joined


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_ratios_are_those_of_loops(seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    lengths = (5, *draw.integers(1, 9, 4).tolist())
    found = [random_sentence(length, 9 * seed + row) for row, length in enumerate(lengths)]
    reader, graphs = random_graphs(found, 0.6 * draw.random(), seed, tmp_path)
    options: dict[str, Any] = {"maps": "attention", "density": None, "least": 1}
    together, alone = (own.table for own in graphs_and_trees(reader, found, **options))
    together, number = together.set_index("related"), sum(len(all_pairs(own)) for own in found)
    assert set(together.index) <= set(KINDS)
    for kind in KINDS:
        pairs = sum(related(own, *pair, kind) for own in found for pair in all_pairs(own))
        assert pairs == (together.loc[kind, "pairs"] if kind in together.index else 0)
        slow = np.array([slow_counts(found, graph, kind) for graph in graphs]).sum(1)  # [C, 3]
        rows = alone[alone["related"] == kind].set_index("head")
        for row, counts, joined in (
            *((together.loc[kind], slow.sum(0), graphs) for _ in range(kind in together.index)),
            *((rows.loc[head], slow[head], graphs[head : head + 1]) for head in rows.index),
        ):
            hits, chance, matched = counts
            wanted = [hits / own if own else math.nan for own in (chance, matched)]
            assert row[["ratio", "matched"]].tolist() == pytest.approx(wanted, nan_ok=True)
            share = sum(len(own) for graph in joined for own in graph) / number / len(joined)
            assert row["density"] == pytest.approx(share)
    assert len(alone) == 2 * sum(kind in together.index for kind in KINDS[:3])


def test_intervals_are_those_of_scipy_over_whole_sentences(tmp_path: Path) -> None:
    found = random_sentences(80, 1, least=5, most=9)
    reader, graphs = random_graphs(found, 0.2, 0, tmp_path)
    table = graphs_and_trees(reader, found, maps="attention", density=None)[1].table
    hits, chance, _ = np.array(slow_counts(found, graphs[1], KINDS[0])).T
    whole = bootstrap(
        (hits, chance),
        lambda above, below, axis: above.sum(axis) / below.sum(axis),
        paired=True,
        method="percentile",
        n_resamples=9999,
        rng=np.random.default_rng(0),
    ).confidence_interval
    row = table[(table["head"] == 1) & (table["related"] == KINDS[0])].iloc[0]
    ends = row[["ratio low", "ratio high"]].tolist()
    assert ends == pytest.approx([whole.low, whole.high], rel=0.02)


def test_random_pairs_are_at_chance(tmp_path: Path) -> None:
    reader = planted(tmp_path, 3, random_maps(3, 0))
    options: dict[str, Any] = {"maps": "attention", "density": 0.2}
    table = graphs_and_trees(reader, random_sentences(300), **options)[0].table
    for name in ("ratio", "matched", "best ratio", "best matched"):
        inside = (table[f"{name} low"] < 1) & (table[f"{name} high"] > 1)
        assert inside.mean() >= 0.8, name  # of seven rows, one may be out
    assert table["density"].iloc[0] == pytest.approx(0.2, abs=0.001)


def test_near_words_are_at_matched_chance(tmp_path: Path) -> None:
    """Chains: neighbours are head and dependent. A head that joins neighbours knows no more."""
    chains = [
        Sentence(own.words, own.tags, tuple(range(-1, len(own) - 1)), own.relations)
        for own in random_sentences(30, least=3)
    ]
    reader = planted(tmp_path, 1, lambda words: torch.diag(torch.ones(len(words) - 1), 1)[None])
    table = graphs_and_trees(reader, chains, maps="attention")[1].table
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


def test_heads_that_join_nothing(tmp_path: Path) -> None:
    model = attach(tiny_model("bert"), JatConfig.paper(heads="all", threshold=math.inf))
    for found in graphs_and_trees(tiny(tmp_path, model), random_sentences(9)):
        assert found.table["ratio"].isna().all() and not found.table["density"].any()
        found.save(tmp_path / "found")
