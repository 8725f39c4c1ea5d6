"""Trees and scores against their plain definitions."""

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.probes import Sentence
from jat_graph.probes.geometry.measures import (
    MEASURES,
    Scores,
    depth_scores,
    rank_correlation,
    tree_scores,
)
from jat_graph.probes.geometry.structural import chain_scores
from jat_graph.probes.geometry.training import squared_distances, squared_lengths
from jat_graph.probes.geometry.trees import Tree, spanning_tree
from tests.probes.geometry.support import (
    TAGS,
    Case,
    cases,
    mean_of,
    path_to_root,
    prim,
    pythagorean,
    random_sentence,
    slow_distance,
    slow_spearman,
)


@given(cases())
def test_distances_and_depths_are_numbers_of_edges(case: Case) -> None:
    sentence, tree, words = case.sentence, Tree(case.sentence), range(len(case.sentence))
    wanted = [[slow_distance(sentence, i, k) for k in words] for i in words]
    assert tree.distances.tolist() == wanted
    assert tree.depths.tolist() == [len(path_to_root(sentence, word)) - 1 for word in words]


@given(cases())
def test_spanning_trees_are_those_of_prim(case: Case) -> None:
    shown = Tree(case.sentence).shown
    found, wanted = spanning_tree(case.distances, shown), prim(case.distances, shown)
    lengths = [sorted(case.distances[edge] for edge in edges) for edges in (found, wanted)]
    assert lengths[0] == lengths[1]  # which are the same in all of a graph's least trees
    if len(set(case.distances[np.triu_indices(len(shown), 1)])) == math.comb(len(shown), 2):
        assert found == wanted


def test_words_in_one_place_are_joined() -> None:
    """A distance of 0 is an edge, though sparse matrices know none."""
    assert spanning_tree(np.zeros((3, 3)), [0, 1, 2]) != frozenset()
    assert len(spanning_tree(np.zeros((3, 3)), [0, 1, 2])) == 2
    assert spanning_tree(np.zeros((1, 1)), [0]) == spanning_tree(np.zeros((2, 2)), []) == set()


@given(cases())
def test_scores_are_those_of_the_definitions(case: Case) -> None:
    tree, words = Tree(case.sentence), range(len(case.sentence))
    hits, correlation = tree_scores(tree, case.distances)
    gold = {(min(edge), max(edge)) for edge in case.sentence.edges}
    assert hits == len(gold & spanning_tree(case.distances, tree.shown))
    rows = [slow_spearman(case.distances[word], tree.distances[word]) for word in words]
    assert correlation == pytest.approx(mean_of(rows))
    root, own = depth_scores(tree, case.depths)
    least = min(tree.shown, key=lambda word: case.depths[word], default=None)
    assert root == (least == case.sentence.root)
    assert own == pytest.approx(slow_spearman(case.depths, tree.depths))


@given(st.integers(1, 9), st.integers(0, 99))
def test_an_exact_embedding_has_perfect_scores(length: int, seed: int) -> None:
    tree = Tree(random_sentence(length, seed))
    points = pythagorean(tree.sentence, length)
    hits, correlation = tree_scores(tree, squared_distances(points).numpy().round(9))
    root, own = depth_scores(tree, squared_lengths(points).numpy())
    assert (hits, root) == (length - 1, 1.0)
    assert (correlation, own) == pytest.approx((1.0, 1.0) if length > 1 else (0.0, 0.0))


def test_what_is_the_same_everywhere_correlates_with_nothing() -> None:
    assert rank_correlation(np.ones(4), np.arange(4.0)) == 0.0
    assert rank_correlation(np.zeros((2, 1)), np.zeros((2, 1))).tolist() == [0.0, 0.0]


def _random_scores(number: int = 40) -> Scores:
    lengths = np.random.default_rng(1).integers(1, 9, number)
    trees = tuple(Tree(random_sentence(int(n), k, TAGS)) for k, n in enumerate(lengths))
    chance = np.random.default_rng(2)
    values = np.array(
        [
            [chance.integers(len(tree.edges) + 1), chance.random(), 1, chance.random()]
            for tree in trees
        ]
    )
    return Scores(trees, values)


def test_correlations_are_means_over_lengths_from_5() -> None:
    scores = _random_scores()
    row = scores.to_row()
    by_length = defaultdict(list)
    for tree, value in zip(scores.trees, scores.values, strict=True):
        by_length[len(tree)].append(value[1])
    wanted = mean_of([mean_of(own) for length, own in by_length.items() if length >= 5])
    assert row["DSpr"] == pytest.approx(wanted)
    edges = sum(len(tree.edges) for tree in scores.trees)
    assert row["UUAS"] == pytest.approx(scores.values[:, 0].sum() / edges) == scores.uuas
    more = sum(bool(tree.shown) for tree in scores.trees)
    assert row["root accuracy"] == pytest.approx(len(scores.trees) / more)
    assert all(row[f"{name} low"] <= row[name] <= row[f"{name} high"] for name in MEASURES)


def test_differences_are_of_the_same_sentences() -> None:
    scores = _random_scores()
    better = Scores(scores.trees, scores.values + np.array([0, 0.25, 0, 0]))
    row = (better - scores).to_row()
    assert [row["DSpr low"], row["DSpr"], row["DSpr high"]] == pytest.approx([0.25] * 3)
    assert row["UUAS"] == row["UUAS low"] == row["UUAS high"] == 0


def test_sentences_without_edges_or_lengths_give_no_number() -> None:
    only = Sentence(("!",), ("PUNCT",), (-1,), ("root",))
    row = chain_scores((Tree(only),) * 2).to_row()
    assert all(math.isnan(row[name]) for name in MEASURES)


def test_words_in_a_line_are_joined_across_punctuation() -> None:
    #  a -> , <- b -> c: the first and the third word are neighbours if the comma is left out
    sentence = Sentence(
        ("a", ",", "b", "c"), ("NOUN", "PUNCT", "VERB", "NOUN"), (2, 2, -1, 2), ("dep",) * 4
    )
    scores = chain_scores((Tree(sentence),))
    assert scores.values[0, 0] == 2
    assert scores.uuas == 1.0
