"""Fits of powers and distances of relations against their definitions."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.probes import relation_distances, tree_distances
from jat_graph.probes.geometry.distances import fit_row, fit_sums, relation_rows
from jat_graph.probes.geometry.training import squared_distances
from jat_graph.probes.geometry.trees import Tree
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model
from tests.probes.geometry.support import pythagorean, random_sentence, slow_distance
from tests.probes.geometry.test_structural import SETS


@given(st.integers(0, 99), st.sampled_from([0.5, 1.0, 2.0, 3.0]))
def test_a_fit_is_that_of_least_squares_over_all_pairs(seed: int, power: float) -> None:
    trees = [Tree(random_sentence(n, seed + n)) for n in (1, 2, 5, 7)]
    generator = torch.Generator().manual_seed(seed)
    points = [torch.randn(len(t), 3, generator=generator, dtype=torch.float64) for t in trees]
    squares = [squared_distances(own).numpy() for own in points]
    d, y = [], []
    for tree, own in zip(trees, points, strict=True):
        for i in range(len(tree)):
            for k in range(i):
                d.append(slow_distance(tree.sentence, i, k))
                y.append(float((own[i] - own[k]).norm() ** power))
    (slope,), (left,), *_ = np.linalg.lstsq(np.array(y)[:, None], np.array(d), rcond=None)
    row = fit_row(fit_sums(trees, squares, power))
    assert row["a"] == pytest.approx(1 / slope)
    assert row["error in edges"] == pytest.approx((left / len(d)) ** 0.5)
    assert row["R²"] == pytest.approx(1 - left / (np.var(d) * len(d)))


def test_an_exact_embedding_fits_as_squares_and_in_no_other_power() -> None:
    trees = [Tree(random_sentence(n, n)) for n in range(2, 12)]
    squares = [3 * squared_distances(pythagorean(t.sentence, 12)).numpy() for t in trees]
    rows = {power: fit_row(fit_sums(trees, squares, power)) for power in (1.0, 2.0, 3.0)}
    assert (rows[2.0]["a"], rows[2.0]["R²"], rows[2.0]["R² low"]) == pytest.approx((3, 1, 1))
    assert rows[2.0]["error in edges"] == pytest.approx(0, abs=1e-6)
    assert max(rows[1.0]["R²"], rows[3.0]["R²"]) < 0.99


def test_relations_are_counted_with_their_subtypes() -> None:
    trees = [Tree(random_sentence(n, n)) for n in range(1, 25)]
    chance = np.random.default_rng(0)
    squares = [chance.random((len(tree), len(tree))) for tree in trees]
    wanted = defaultdict(list)
    for tree, own in zip(trees, squares, strict=True):
        for word, head in enumerate(tree.sentence.heads):
            if head != -1:
                wanted[tree.sentence.relations[word]].append(own[word, head])
    rows = relation_rows(trees, squares, least=1)
    assert {row["relation"]: row["count"] for row in rows} == {k: len(v) for k, v in wanted.items()}
    for row in rows:
        own = wanted[row["relation"]]
        assert row["mean"] == pytest.approx(np.mean(own))
        assert row["deviation"] == pytest.approx(np.std(own))
        assert row["upper quartile"] == pytest.approx(np.quantile(own, 0.75))
        assert row["mean low"] <= row["mean"] <= row["mean high"]
    assert [row["mean"] for row in rows] == sorted(row["mean"] for row in rows)
    assert relation_rows(trees, squares, least=999) == []


def test_both_have_tables_and_pictures(tmp_path: Path) -> None:
    given = tiny_model("bert"), tiny_tokenizer(), *SETS, tmp_path
    options = {"rank": 4, "epochs": 1}
    powers = tree_distances(*given, powers=(1, 2), **options)
    assert powers.table["map"].tolist() == ["none", "for squares", "for this power"] * 2
    own = powers.table[powers.table["map"] == "for this power"]
    unsure = own["R² low"].max() <= own["R² high"].min()
    assert ("its interval overlaps with that of" in powers.caption) == unsure
    squares = powers.table[powers.table["power"] == 2].set_index("map").drop(columns="power")
    assert squares.loc["for squares"].equals(squares.loc["for this power"])
    relations = relation_distances(*given, least=3, **options)
    assert set(relations.table["relation"]) == {"dep0", "dep1"}
    for found in (powers, relations):
        assert len(found.save(tmp_path / "out")) == 4
        assert "after layer 1" in found.caption  # the middle one


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    own = tiny_model("bert"), tiny_tokenizer(), *SETS, tmp_path
    with pytest.raises(ValueError, match="layers must be at most 3, got 9"):
        tree_distances(*own, layer=9)
    with pytest.raises(ValueError, match=r"powers must be at least 0\.001, got 0"):
        tree_distances(*own, powers=(0,))
    with pytest.raises(ValueError, match="test must hold a relation 999 times, got none"):
        relation_distances(*own, least=999, rank=2, epochs=1)
