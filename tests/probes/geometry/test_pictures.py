"""Pictures of trees: every edge in its place, nothing cut or hidden."""

import pytest
import torch
from hypothesis import given
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from jat_graph.probes import Sentence, draw_tree_arcs, draw_tree_plane
from jat_graph.probes.geometry.trees import Tree, spanning_tree
from tests.probes.geometry.support import Case, cases, pythagorean, random_sentence

DOGS = Sentence(
    ("Dogs", "of", "$5", "barked", ",", "supercalifragilisticexpialidocious", "."),
    ("NOUN", "ADP", "NUM", "VERB", "PUNCT", "ADV", "PUNCT"),
    (3, 2, 0, -1, 3, 3, 3),
    ("nsubj", "case", "nmod", "root", "punct", "advmod", "punct"),
)


def drawn(figure: Figure) -> FigureCanvasAgg:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas


def words_of(figure: Figure, sentence: Sentence) -> list[list]:
    shown = {word.replace("$", r"\$") for word in sentence.words}
    return [
        [text for text in axis.texts if text.get_text() in shown or "…" in text.get_text()]
        for axis in figure.axes
    ]


def assert_tidy(figure: Figure, sentence: Sentence) -> None:
    canvas = drawn(figure)
    renderer = canvas.get_renderer()
    used, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert min(used.x0, used.y0) >= -0.01
    assert used.x1 <= width + 0.01 and used.y1 <= height + 0.01
    for texts in words_of(figure, sentence):
        boxes = [text.get_window_extent(renderer) for text in texts]
        assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


@given(cases())
def test_arcs_are_the_edges_of_both_trees(case: Case) -> None:
    tree = Tree(case.sentence)
    figure = draw_tree_arcs(case.sentence, torch.tensor(case.distances))
    (axis,) = figure.axes
    arcs = [patch for patch in axis.patches if isinstance(patch, Arc)]
    above, below = ([a for a in arcs if (a.theta1 == 0) == up] for up in (True, False))
    predicted = spanning_tree(case.distances, tree.shown)
    assert (len(above), len(below)) == (len(tree.edges), len(predicted))
    both = len(tree.edges & predicted)
    for side in (above, below):
        assert sum(arc.get_linestyle() in ("-", "solid") for arc in side) == both
    assert f"{both} of {len(tree.edges)} edges found" in figure._suptitle.get_text()


def test_pictures_are_tidy() -> None:
    points = pythagorean(DOGS, 7) + 0.1
    assert_tidy(draw_tree_arcs(DOGS, torch.cdist(points, points)), DOGS)
    assert_tidy(draw_tree_plane(DOGS, points), DOGS)
    same = torch.zeros(7, 3)  # all words in one place
    assert_tidy(draw_tree_plane(DOGS, same), DOGS)


@pytest.mark.parametrize("length", [1, 2, 3, 25])
@pytest.mark.parametrize("rank", [1, 2, 30])
def test_planes_hold_any_tree(length: int, rank: int) -> None:
    sentence = random_sentence(length, 1)
    points = torch.randn(length, rank, generator=torch.Generator().manual_seed(0))
    assert_tidy(draw_tree_plane(sentence, points), sentence)


def test_numbers_are_squared_distances_and_what_fits_is_whole() -> None:
    points = pythagorean(DOGS, 7)
    left, right, *_ = draw_tree_plane(DOGS, points).axes
    numbers = [text.get_text() for text in left.texts if text.get_text() not in DOGS.words]
    assert numbers.count("1.0") == 4
    assert all(line.get_linestyle() == "-" for line in right.lines if line.get_marker() != "o")
    swapped = points[[2, 1, 0, 3, 4, 5, 6]]
    _, right, *_ = draw_tree_plane(DOGS, swapped).axes
    assert any(line.get_linestyle() == "--" for line in right.lines)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"distances must be \[7, 7\], got \[7, 6\]"):
        draw_tree_arcs(DOGS, torch.zeros(7, 6))
    with pytest.raises(ValueError, match=r"points must be \[7, R\], got \[6, 3\]"):
        draw_tree_plane(DOGS, torch.zeros(6, 3))
    only = Sentence(("!",), ("PUNCT",), (-1,), ("root",))
    with pytest.raises(ValueError, match="sentence must have a word that is no punctuation"):
        draw_tree_plane(only, torch.zeros(1, 3))
    drawn(draw_tree_arcs(only, torch.zeros(1, 1)))
