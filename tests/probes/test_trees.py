"""Trees as numbers against their definitions, and pictures: every edge in its place."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Arc
from torch.testing import assert_close

from jat_graph.probes import Sentence
from jat_graph.probes.tree_maps import spanning_tree, squared_distances
from jat_graph.probes.trees import draw_tree_arcs, draw_tree_plane
from tests.probes.support import exact_embedding, path_to_root, random_sentence, slow_distance

DOGS = Sentence(
    ("Dogs", "of", "$5", "barked", ",", "supercalifragilisticexpialidocious", "."),
    ("NOUN", "ADP", "NUM", "VERB", "PUNCT", "ADV", "PUNCT"),
    (3, 2, 0, -1, 3, 3, 3),
    ("nsubj", "case", "nmod", "root", "punct", "advmod", "punct"),
)


class Case(NamedTuple):
    """A sentence, and numbers that a probe might give."""

    sentence: Sentence
    distances: np.ndarray
    depths: np.ndarray


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw trees of 1 to 9 words; numbers are often the same, and often 0."""
    length = draw(st.integers(1, 9))
    sentence = random_sentence(length, draw(st.integers(0, 999)), ("NOUN", "PUNCT", "VERB"))
    chance = np.random.default_rng(draw(st.integers(0, 999)))
    if draw(st.booleans()):
        distances = chance.integers(0, 4, (length, length)).astype(float)
        depths = chance.integers(0, 4, length).astype(float)
    else:
        distances, depths = chance.random((length, length)), chance.random(length)
    return Case(sentence, np.triu(distances, 1) + np.triu(distances, 1).T, depths)


def prim(distances: np.ndarray, among: list[int]) -> set[tuple[int, int]]:
    """Grow the tree of least distances word by word."""
    inside, edges = among[:1], set()
    while len(inside) < len(among):
        pairs = ((i, k) for i in inside for k in among if k not in inside)
        i, k = min(pairs, key=lambda pair: distances[pair])
        inside.append(k)
        edges.add((min(i, k), max(i, k)))
    return edges


@given(cases())
def test_distances_and_depths_are_numbers_of_edges(case: Case) -> None:
    tree, words = case.sentence, range(len(case.sentence))
    wanted = [[slow_distance(tree, i, k) for k in words] for i in words]
    assert tree.distances.tolist() == wanted
    assert tree.depths.tolist() == [len(path_to_root(tree, word)) - 1 for word in words]
    embedded = squared_distances(exact_embedding(tree, len(tree)))
    assert_close(embedded, torch.tensor(wanted, dtype=torch.float64))


@given(cases())
def test_spanning_trees_are_those_of_prim(case: Case) -> None:
    shown = case.sentence.shown
    found, wanted = spanning_tree(case.distances, shown), prim(case.distances, shown)
    lengths = [sorted(case.distances[edge] for edge in edges) for edges in (found, wanted)]
    assert lengths[0] == lengths[1]  # which are the same in all of a graph's least trees
    if len(set(case.distances[np.triu_indices(len(shown), 1)])) == math.comb(len(shown), 2):
        assert found == wanted


def assert_tidy(figure: Figure, sentence: Sentence) -> None:
    """Nothing is cut, and no word hides another."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    used, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert min(used.x0, used.y0) >= -0.01
    assert used.x1 <= width + 0.01 and used.y1 <= height + 0.01
    shown = {word.replace("$", r"\$") for word in sentence.words}
    for axis in figure.axes:
        words = [t for t in axis.texts if t.get_text() in shown or "…" in t.get_text()]
        boxes = [text.get_window_extent(renderer) for text in words]
        assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


@given(cases())
def test_arcs_are_the_edges_of_both_trees(case: Case) -> None:
    tree = case.sentence
    (axis,) = draw_tree_arcs(case.sentence, torch.tensor(case.distances)).axes
    arcs = [patch for patch in axis.patches if isinstance(patch, Arc)]
    above, below = ([a for a in arcs if (a.theta1 == 0) == up] for up in (True, False))
    predicted = spanning_tree(case.distances, tree.shown)
    assert (len(above), len(below)) == (len(tree.shown_edges), len(predicted))
    both = len(tree.shown_edges & predicted)
    for side in (above, below):
        assert sum(arc.get_linestyle() in ("-", "solid") for arc in side) == both


def test_pictures_are_tidy() -> None:
    points = exact_embedding(DOGS, 7) + 0.1
    assert_tidy(draw_tree_arcs(DOGS, torch.cdist(points, points)), DOGS)
    assert_tidy(draw_tree_plane(DOGS, points), DOGS)
    assert_tidy(draw_tree_plane(DOGS, torch.zeros(7, 3)), DOGS)  # all words in one place
    for length in (1, 2, 15):
        for rank in (2, 30):
            sentence = random_sentence(length, 1, ("NOUN",))
            draw = torch.Generator().manual_seed(0)
            plane = draw_tree_plane(sentence, torch.randn(length, rank, generator=draw))
            assert_tidy(plane, sentence)


def test_a_sentence_of_punctuation_has_no_plane() -> None:
    only = Sentence(("!",), ("PUNCT",), (-1,), ("root",))
    with pytest.raises(ValueError, match="sentence must have a word that is no punctuation"):
        draw_tree_plane(only, torch.zeros(1, 3))
    assert_tidy(draw_tree_arcs(only, torch.zeros(1, 1)), only)
