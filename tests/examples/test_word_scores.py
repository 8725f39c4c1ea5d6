"""Counts of words over seeds and sentences, and the files of them that are committed."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from examples.word_scores import WordScores
from jat_graph.lab.statistics import paired_bootstrap

ROOT = Path(__file__).resolve().parents[2]
FILES = ("trees-relation", "trees-pos", "attention-relations")
WORDS = [4, 6, 10]
RIGHT = {"plain": [[2, 3, 5], [1, 3, 6], [2, 3, 4]], "tree": [[4, 3, 5], [2, 4, 6], [4, 6, 5]]}


@pytest.fixture
def scores() -> WordScores:
    found = WordScores("plain", WORDS)
    for arm, seeds in RIGHT.items():
        for counts in seeds:
            found.add(arm, counts)
    return found


def test_long_sentences_count_by_their_words(scores: WordScores) -> None:
    assert scores.percent("plain") == [50.0, 50.0, 45.0]
    assert scores.percent("tree") == [60.0, 60.0, 75.0]


def test_the_difference_over_seeds_is_that_of_the_paired_t_test(scores: WordScores) -> None:
    truth = ttest_rel(scores.percent("tree"), scores.percent("plain"))
    low, high = truth.confidence_interval(0.95)
    found = scores.over_seeds("tree")
    assert (found.low, found.high) == pytest.approx((low, high))
    assert scores.p_value("tree") == pytest.approx(truth.pvalue)


def test_sentences_are_drawn_whole(scores: WordScores) -> None:
    one = WordScores("plain", WORDS, {arm: seeds[:1] for arm, seeds in RIGHT.items()})
    draws = paired_bootstrap(one._scorers("tree"), one._scorers("plain"), "any")
    # one seed differs in the first sentence only, which is drawn none to three times
    possible = {
        200 * first / (4 * first + 6 * second + 10 * (3 - first - second))
        for first in range(4)
        for second in range(4 - first)
    }
    assert set(np.round(draws, 9)) == set(np.round(list(possible), 9))


def test_what_is_told_of_one_seed_of_equal_seeds_and_of_others(scores: WordScores) -> None:
    assert scores.told("plain") == "plain: 48.3% ± 2.9 right, 3 seeds"
    low, high = scores.over_seeds("tree").low, scores.over_seeds("tree").high
    wanted = f"tree: 65.0% ± 8.7 right, 3 seeds, +16.7 against plain ({low:+.1f} to {high:+.1f} "
    assert scores.told("tree").startswith(f"{wanted}over seeds, ")
    assert scores.told("tree").endswith(" with sentences)")
    one = WordScores("plain", WORDS, {arm: seeds[:1] for arm, seeds in RIGHT.items()})
    assert "1 seed, +10.0 against plain (" in one.told("tree")
    assert one.told("tree").endswith(" over sentences)")
    equal = WordScores("plain", WORDS, {arm: [seeds[0]] * 2 for arm, seeds in RIGHT.items()})
    assert equal.told("tree").endswith(" over seeds and sentences)")
    assert one.p_value("tree") is None and equal.p_value("tree") is None


def test_a_file_holds_all_that_is_told(scores: WordScores, tmp_path: Path) -> None:
    scores.save(tmp_path / "scores.json", {"epochs": 2})
    content = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert content["settings"] == {"epochs": 2} and content["seeds"] == [0, 1, 2]
    assert {arm: found["right"] for arm, found in content["arms"].items()} == RIGHT
    assert list(content["differences"]) == ["tree"]
    assert read(content) == scores


@pytest.mark.parametrize("name", FILES)
def test_the_committed_scores_are_those_of_the_counts_and_of_the_docs(name: str) -> None:
    docs = ROOT / "docs"
    if not docs.is_dir():
        pytest.skip("no results are committed")
    content = json.loads((docs / "experiments" / f"{name}.json").read_text(encoding="utf-8"))
    scores = read(content)
    page = (docs / "examples.md").read_text(encoding="utf-8")
    for arm, found in content["arms"].items():
        assert found["scores"] == pytest.approx(scores.percent(arm))
        assert f"\n{scores.told(arm)}\n" in page
    for arm, found in content["differences"].items():
        wanted = scores.over_seeds(arm).to_dict() | {"p": scores.p_value(arm)}
        assert found["over_seeds"]["values"] == pytest.approx(wanted.pop("values"))
        assert {key: found["over_seeds"][key] for key in wanted} == pytest.approx(wanted)


def read(content: dict) -> WordScores:
    counts = {arm: found["right"] for arm, found in content["arms"].items()}
    return WordScores(content["base"], content["words"], counts)
