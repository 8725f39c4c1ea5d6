"""Counts of words over seeds and sentences, and the files of them that are committed."""

import json
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from examples.word_scores import WordScores

DOCS = Path(__file__).resolve().parents[2] / "docs"
WORDS = [4, 6, 10]
RIGHT = {"plain": [[2, 3, 5], [1, 3, 6], [2, 3, 4]], "tree": [[4, 3, 5], [2, 4, 6], [4, 6, 5]]}


def test_long_sentences_count_by_their_words_and_seeds_in_pairs(tmp_path: Path) -> None:
    scores = WordScores("plain", WORDS, RIGHT)
    assert scores.percent("plain") == [50.0, 50.0, 45.0]
    truth = ttest_rel(scores.percent("tree"), scores.percent("plain"))
    found = scores.over_seeds("tree")
    assert found.interval == pytest.approx(tuple(truth.confidence_interval(0.95)))
    assert found.p == pytest.approx(truth.pvalue)
    scores.save(tmp_path / "scores.json", {"epochs": 2})
    content = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    again = {name: one["right"] for name, one in content["variants"].items()}
    assert WordScores(content["base"], content["words"], again) == scores


@pytest.mark.parametrize("name", ["trees-relation", "trees-pos", "attention-relations"])
def test_the_committed_counts_give_what_the_page_says(name: str) -> None:
    content = json.loads((DOCS / "experiments" / f"{name}.json").read_text(encoding="utf-8"))
    right = {variant: found["right"] for variant, found in content["arms"].items()}
    scores = WordScores(content["base"], content["words"], right)
    page = (DOCS / "given_graphs.md").read_text(encoding="utf-8")
    for variant in right:
        assert f"\n{scores.told(variant)}\n" in page
