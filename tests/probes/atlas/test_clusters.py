"""Clusters, the words that tell them apart, and how far they are of one kind."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from jat_graph.probes.atlas.clusters import (
    PRIOR,
    SURELY,
    TELLING,
    find_clusters,
    purities,
    renamed,
    telling_words,
)
from jat_graph.probes.atlas.contexts import Context
from jat_graph.probes.atlas.layouts import directions
from jat_graph.probes.atlas.search import Uses


def uses(*sentences: str) -> Uses:
    contexts = tuple(Context(tuple(own.split())) for own in sentences)
    places = tuple(own.words.index("bank") for own in contexts)
    return Uses("bank", contexts, places, len(contexts), len(contexts))


@pytest.mark.parametrize("number", [2, 3, 5])
def test_planted_groups_are_found_the_largest_first(number: int) -> None:
    generator = np.random.default_rng(number)
    sizes = range(6, 6 + number)
    planted = np.repeat(np.arange(number), sizes)
    points = directions(np.eye(8)[planted] + generator.normal(0, 0.05, (len(planted), 8)))
    labels, silhouette = find_clusters(points, 0)
    assert silhouette > 0.7 and np.array_equal(labels, number - 1 - planted)
    assert np.array_equal(find_clusters(points, 0)[0], labels)


@pytest.mark.parametrize("points", [np.zeros((7, 3)), np.eye(2)[[0, 0, 0, 1, 1]], np.zeros((1, 1))])
def test_what_has_no_parts_is_one_cluster_or_its_points(points: np.ndarray) -> None:
    labels, silhouette = find_clusters(points, 0)
    different = len(np.unique(points, axis=0))
    assert set(labels) == {0} and math.isnan(silhouette) and different <= 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_new_names_part_points_as_before(pairs: list[tuple[int, int]]) -> None:
    labels, below = np.array(pairs).T
    found = renamed(labels, below)
    assert len(set(zip(labels, found, strict=True))) == len(set(labels)) == len(set(found))
    assert (found == below).sum() >= (labels == below).sum()
    assert found.max() <= max(labels.max(), below.max())


def test_clusters_keep_their_numbers_under_any_renaming() -> None:
    below = np.array([4, 4, 4, 1, 1, 0])
    assert np.array_equal(renamed(np.array([0, 0, 0, 2, 2, 1]), below), below)


# --- words ---------------------------------------------------------------------------------------


def test_words_that_stand_on_one_side_tell_and_others_do_not() -> None:
    money, river = "the bank gave money , {}", "the bank of a River , {}"
    sentences = [own.format(end) for own in (money, river) for end in range(10)]
    labels = np.repeat([3, 0], 10)
    found = telling_words(uses(*sentences), labels)
    assert {3: set(found[3]), 0: set(found[0])} == {3: {"gave", "money"}, 0: {"of", "river", "a"}}


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcdef")), st.integers(0, 2)), min_size=1))
def test_words_are_those_of_the_definition(pairs: list[tuple[set[str], int]]) -> None:
    sentences = [" ".join(["bank", *sorted(some)]) for some, _ in pairs]
    labels = np.array([label for _, label in pairs])
    found = telling_words(uses(*sentences), labels)
    assert set(found) == set(labels.tolist())
    often = {w: sum(w in some for some, _ in pairs) for w in "abcdef"}
    often = {word: number for word, number in often.items() if number >= 2}
    total = sum(often.values())
    for label in found:
        scores = {}
        inside = {w: sum(w in some for some, own in pairs if own == label) for w in often}
        n, m = sum(inside.values()), total - sum(inside.values())
        for word, number in often.items():
            prior = PRIOR * number / total
            y, z = inside[word] + prior, number - inside[word] + prior
            if len(often) > 1 and len(found) > 1:
                odds = math.log(y / (n + PRIOR - y)) - math.log(z / (m + PRIOR - z))
                scores[word] = odds / math.sqrt(1 / y + 1 / z)
        wanted = sorted((w for w in scores if scores[w] > SURELY), key=lambda w: -scores[w])
        assert len(found[label]) == len(wanted[:TELLING])
        assert all(scores[a] >= scores[b] - 1e-9 for a, b in pairwise(found[label]))


# --- kinds ---------------------------------------------------------------------------------------


def test_shares_are_of_the_known_with_wilsons_interval() -> None:
    labels = np.array([0, 0, 0, 0, 2, 2, 5])
    kinds = ["n", "n", "v", None, "v", "v", None]
    found = purities(labels, kinds)
    assert list(found) == [0, 2, 5, None] and found[5] is None
    first, second, whole = found[0], found[2], found[None]
    assert first is not None and second is not None and whole is not None
    assert (first.kind, first.known, first.share) == ("n", 3, 2 / 3)
    assert (second.kind, second.known, second.share) == ("v", 2, 1.0)
    assert (whole.known, whole.share) == (5, 4 / 5)
    z = norm.ppf(0.975)
    for own in (first, second, whole):
        n, p = own.known, own.share
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        assert np.allclose((own.low, own.high), (middle - half, middle + half))


def test_where_nothing_is_known_there_is_no_share() -> None:
    assert purities(np.array([0, 1]), [None, None]) == {0: None, 1: None, None: None}
