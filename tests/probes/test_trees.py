"""Trees as numbers against their definitions, and pictures: every edge in its place."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from jat_graph.probes import Findings, Sentence, WordReader, structural_probe
from tests.probes.support import (
    path_to_root,
    plant_states,
    random_sentence,
    random_sentences,
    slow_distance,
    tiny,
)

DOGS = Sentence(
    ("Dogs", "of", "$5", "barked", ",", "supercalifragilisticexpialidocious", "."),
    ("NOUN", "ADP", "NUM", "VERB", "PUNCT", "ADV", "PUNCT"),
    (3, 2, 0, -1, 3, 3, 3),
    ("nsubj", "case", "nmod", "root", "punct", "advmod", "punct"),
)


@given(st.integers(1, 9), st.integers(0, 999))
def test_distances_and_depths_are_numbers_of_edges(length: int, seed: int) -> None:
    tree, words = random_sentence(length, seed), range(length)
    assert tree.distances.tolist() == [[slow_distance(tree, i, k) for k in words] for i in words]
    assert tree.depths.tolist() == [len(path_to_root(tree, word)) - 1 for word in words]


def pictured(reader: WordReader, tree: Sentence, rank: int = 4) -> Findings:
    """Findings whose pictures are of this tree."""
    sets = random_sentences(8), random_sentences(4, 1)
    options: dict[str, Any] = {"layers": (1,), "rank": rank, "epochs": 1, "controls": False}
    return structural_probe(reader, *sets, [tree], **options)


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


@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_arcs_are_the_edges_of_both_trees(length: int, tmp_path: Path) -> None:
    tree = random_sentence(length, length, ("NOUN", "VERB", "NOUN", "PUNCT"))
    found = pictured(tiny(tmp_path), tree)
    (axis,) = found.figures["tree-arcs"].axes
    arcs = [patch for patch in axis.patches if isinstance(patch, Arc)]
    above, below = ([a for a in arcs if (a.theta1 == 0) == up] for up in (True, False))
    assert (len(above), len(below)) == (len(tree.shown_edges), max(len(tree.shown) - 1, 0))
    both = round(np.nan_to_num(found.table.loc[0, "UUAS"]) * len(tree.shown_edges))
    for side in (above, below):
        assert sum(arc.get_linestyle() in ("-", "solid") for arc in side) == both


def test_pictures_are_tidy(tmp_path: Path) -> None:
    reader = tiny(tmp_path)
    nowhere = plant_states(tiny(tmp_path / "0"), lambda words: torch.zeros(len(words), 32))
    cases = [(DOGS, reader, 4), (DOGS, nowhere, 4)]  # all words in one place
    cases += [
        (random_sentence(length, 1, ("NOUN",)), reader, rank)
        for length in (1, 2, 15)
        for rank in (2, 30)
    ]
    for tree, own, rank in cases:
        found = pictured(own, tree, rank)
        assert_tidy(found.figures["tree-arcs"], tree)


def test_a_sentence_of_punctuation_has_no_picture(tmp_path: Path) -> None:
    only = Sentence(("!",), ("PUNCT",), (-1,), ("root",))
    with pytest.raises(ValueError, match="sentence must have a word that is not punctuation"):
        pictured(tiny(tmp_path), only)
