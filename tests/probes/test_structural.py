"""The structural probe: losses against loops, trees that it finds again, scores, distances."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from torch import Tensor
from torch.testing import assert_close

from jat_graph.hf import attach
from jat_graph.probes import Sentence, read_treebank, structural_probe, tree_distances
from jat_graph.probes.distances import fit_row, relation_table
from jat_graph.probes.structural import MEASURES, score_row, tree_scores
from jat_graph.probes.tree_maps import (
    DEPTH,
    DISTANCE,
    TreeBatch,
    spanning_tree,
    squared_distances,
    train_probe,
    tree_batches,
)
from tests.data.support import STEMS, tiny_tokenizer
from tests.hf.models import tiny_config, tiny_model
from tests.probes.support import (
    exact_embedding,
    minilm,
    path_to_root,
    random_sentence,
    random_sentences,
    slow_distance,
    tiny,
)
from tests.probes.test_trees import Case, cases

SETS = random_sentences(30, 0), random_sentences(12, 1), random_sentences(15, 2)
PARTS = dict(zip(("train", "dev", "test"), SETS, strict=True))


def slow_spearman(one: np.ndarray, other: np.ndarray) -> float:
    if len(set(one)) == 1 or len(set(other)) == 1:
        return 0.0
    return float(spearmanr(one, other).statistic)


@given(cases())
def test_scores_are_those_of_the_definitions(case: Case) -> None:
    tree, words = case.sentence, range(len(case.sentence))
    hits, near, root, deep = tree_scores(tree, case.distances, case.depths)
    gold = {(min(edge), max(edge)) for edge in case.sentence.edges}
    assert hits == len(gold & spanning_tree(case.distances, tree.shown))
    rows = [slow_spearman(case.distances[word], tree.distances[word]) for word in words]
    assert near == pytest.approx(np.mean(rows))
    least = min(tree.shown, key=lambda word: case.depths[word], default=None)
    assert root == (least == case.sentence.root)
    assert deep == pytest.approx(slow_spearman(case.depths, tree.depths))


@given(st.integers(1, 9), st.integers(0, 99))
def test_an_exact_embedding_has_perfect_scores(length: int, seed: int) -> None:
    tree = random_sentence(length, seed, ("NOUN",))
    points = exact_embedding(tree, length)
    found = tree_scores(
        tree, squared_distances(points).numpy().round(9), points.square().sum(-1).numpy()
    )
    one = 1.0 if length > 1 else 0.0
    assert found == pytest.approx((length - 1, one, 1.0, one))


def test_correlations_are_means_over_lengths_from_5_and_differences_of_the_same_sentences() -> None:
    trees = random_sentences(40, 3, most=8)
    chance = np.random.default_rng(2)
    values = np.array(
        [
            [chance.integers(len(t.shown_edges) + 1), chance.random(), 1, chance.random()]
            for t in trees
        ]
    )
    row, by_length = score_row(trees, values), defaultdict(list)
    for tree, own in zip(trees, values, strict=True):
        by_length[len(tree)].append(own[1])
    wanted = np.mean([np.mean(own) for length, own in by_length.items() if length >= 5])
    assert row["DSpr"] == pytest.approx(wanted)
    edges = sum(len(tree.shown_edges) for tree in trees)
    assert row["UUAS"] == pytest.approx(values[:, 0].sum() / edges)
    more = sum(bool(tree.shown) for tree in trees)
    assert row["root accuracy"] == pytest.approx(len(trees) / more)
    assert all(row[f"{name} low"] <= row[name] <= row[f"{name} high"] for name in MEASURES)
    row = score_row(trees, np.tile([0, 0.25, 0, 0], (40, 1)))
    assert [row["DSpr low"], row["DSpr"], row["DSpr high"]] == pytest.approx([0.25] * 3)
    assert row["UUAS"] == row["UUAS low"] == row["UUAS high"] == 0


def slow_loss(kind: str, sentences: list[Sentence], states: list[Tensor], map_: Tensor) -> Tensor:
    """The source's loss: over squared length, or length, then over sentences."""
    total = torch.zeros((), dtype=states[0].dtype)
    for sentence, own in zip(sentences, states, strict=True):
        n = len(sentence)
        for i in range(n):
            if kind == DEPTH:
                depth = len(path_to_root(sentence, i)) - 1
                total = total + ((own[i] @ map_).square().sum() - depth).abs() / n
                continue
            for k in range(n):
                apart = ((own[i] - own[k]) @ map_).square().sum()
                total = total + (apart - slow_distance(sentence, i, k)).abs() / n**2
    return total / len(sentences)


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=5),
    st.integers(0, 99),
    st.integers(1, 4),
    st.sampled_from((DISTANCE, DEPTH)),
)
def test_losses_and_their_slopes_are_those_of_loops(
    lengths: list[int], seed: int, rank: int, kind: str
) -> None:
    generator = torch.Generator().manual_seed(seed)
    sentences = [random_sentence(length, seed + length) for length in lengths]
    states = [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in lengths]
    start = torch.randn(3, rank, generator=generator, dtype=torch.float64)
    projection, other = (start.clone().requires_grad_() for _ in range(2))
    (batch,) = tree_batches(states, sentences, kind)
    batch = TreeBatch(*(part.double() for part in batch))
    loss = batch.loss(projection, kind, 2.0) / len(sentences)
    wanted = slow_loss(kind, sentences, states, other)
    # Weights are 1/n in float32.
    assert_close(loss, wanted, rtol=1e-6, atol=1e-6)
    loss.backward()
    wanted.backward()
    slope = other.grad if other.grad is not None else torch.zeros_like(other)
    assert_close(projection.grad, slope, rtol=1e-5, atol=1e-5)


def _hidden_trees(number: int, seed: int) -> tuple[list[Tensor], list[Sentence]]:
    """Exact embeddings, turned at random together with as many directions of noise."""
    chance = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(12, 12, generator=chance, dtype=torch.float64)).Q
    trees, states = [], []
    for k in range(number):
        sentence = random_sentence(2 + k % 5, seed + k, ("NOUN",))
        noise = torch.Generator().manual_seed(seed + k)
        points = exact_embedding(sentence, 12)
        points[:, 6:] = torch.randn(len(sentence), 6, generator=noise, dtype=torch.float64)
        trees.append(sentence)
        states.append((points @ rotation).float())
    return states, trees


@pytest.mark.slow
def test_training_finds_trees_behind_a_rotation_and_noise() -> None:
    train, dev, test = (_hidden_trees(*own) for own in ((600, 0), (60, 1000), (60, 2000)))
    batches = tree_batches(*train, DISTANCE), tree_batches(*dev, DISTANCE)
    projection = train_probe(*batches, DISTANCE, 2.0, rank=8, epochs=50, seed=0)
    values = []
    for own, tree in zip(*test, strict=True):
        points = own @ projection
        distances = squared_distances(points).double().numpy()
        values.append(tree_scores(tree, distances, points.square().sum(-1).double().numpy()))
    assert score_row(test[1], np.array(values))["UUAS"] > 0.95
    assert np.mean(values, 0)[1] > 0.9


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_each_layer_has_a_row_and_controls(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(name)
    before = torch.random.get_rng_state()
    options: dict[str, Any] = {"rank": 4, "epochs": 2, "seeds": (0, 1)}
    reader = tiny(tmp_path, model)
    found = structural_probe(reader, *SETS, **options)
    assert torch.equal(before, torch.random.get_rng_state())
    rows = found.table
    models = ["model"] * 4 + ["random weights"] * 4 + ["words in a line"]
    assert rows["model"].tolist() == models
    assert rows["layer"].dropna().tolist() == [0, 1, 2, 3] * 2
    assert rows[list(MEASURES)].notna().all(axis=None)
    assert rows["UUAS"].between(0, 1).all()
    assert found.settings["sentences"] == {"train": 30, "dev": 12, "test": 15}
    assert len(found.save(tmp_path / "out")) == 8
    monkeypatch.setattr(type(model), "forward", None)  # all is found in the folder
    monkeypatch.setattr(torch.optim, "Adam", None)
    again = structural_probe(reader, *SETS, **options)
    assert again.table.equals(rows)
    for other in ({"rank": 3}, {"epochs": 1}, {"seeds": (2,)}):
        with pytest.raises(TypeError):
            structural_probe(reader, *SETS, **options | other)


def test_jump_heads_stand_beside_their_base(tmp_path: Path) -> None:
    reader = tiny(tmp_path, attach(tiny_model("bert"), tiny_config(), tiny_tokenizer()))
    options: dict[str, Any] = {"rank": 4, "epochs": 1, "layers": (1, 3)}
    rows = structural_probe(reader, *SETS, **options).table
    names = ["model", "jumps off", "random weights", "words in a line", "model − jumps off"]
    assert rows["model"].drop_duplicates().tolist() == names
    values = rows.set_index(["model", "layer"])["DSpr"]
    for layer in (1, 3):
        change = values["model", layer] - values["jumps off", layer]
        assert values["model − jumps off", layer] == pytest.approx(change)
    plain = structural_probe(tiny(tmp_path), *SETS, **options).table
    alone = structural_probe(reader, *SETS, **options, controls=False).table
    assert alone["model"].tolist() == ["model", "model", "words in a line"]
    assert alone[:2].equals(rows[:2])
    base = rows[rows["model"] == "jumps off"].drop(columns="model").reset_index(drop=True)
    assert plain[:2].drop(columns="model").equals(base)


def test_sentences_that_the_model_cannot_take_are_left_out(tmp_path: Path) -> None:
    long = random_sentence(90, 0)
    words = tuple(STEMS[n % len(STEMS)] for n in range(90))
    test = [Sentence(words, long.tags, long.heads, long.relations), *SETS[2]]
    options: dict[str, Any] = {"rank": 4, "epochs": 1, "layers": (1,)}
    found = structural_probe(tiny(tmp_path), **PARTS | {"test": test}, **options)
    assert found.settings["left_out"] == {"train": 0, "dev": 0, "test": 1}
    whole = structural_probe(tiny(tmp_path), **PARTS, **options)
    assert found.table.equals(whole.table)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layers": (4,)}, "layers must be at most 3, got 4"),
        ({"rank": 0}, "rank must be at least 1, got 0"),
        ({"test": []}, "test must be one or more sentences"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        structural_probe(tiny(tmp_path), **PARTS | options)


@pytest.mark.slow
def test_the_real_model_holds_more_than_one_without_training(
    minilm_path: str, data_dir: Path, tmp_path: Path
) -> None:
    home = data_dir / "ud_english_ewt"
    sets = [
        read_treebank(home, split=split, most=most, lengths=range(4, 16))
        for split, most in (("dev", 200), ("test", 60), ("test", 120))
    ]
    sets[2] = sets[2][60:]
    reader = minilm(tmp_path, minilm_path)
    found = structural_probe(reader, *sets, layers=(3,), rank=32, epochs=10)
    own, random, line = found.table["UUAS"]
    assert own > random + 0.05
    assert own > line


@given(st.integers(0, 99), st.sampled_from([0.5, 1.0, 2.0, 3.0]))
def test_a_fit_is_that_of_least_squares_over_all_pairs(seed: int, power: float) -> None:
    trees = [random_sentence(n, seed + n) for n in (1, 2, 5, 7)]
    generator = torch.Generator().manual_seed(seed)
    points = [torch.randn(len(t), 3, generator=generator, dtype=torch.float64) for t in trees]
    squares = [squared_distances(own).numpy() for own in points]
    d, y = [], []
    for tree, own in zip(trees, points, strict=True):
        for i in range(len(tree)):
            for k in range(i):
                d.append(slow_distance(tree, i, k))
                y.append(float((own[i] - own[k]).norm() ** power))
    (slope,), (left,), *_ = np.linalg.lstsq(np.array(y)[:, None], np.array(d), rcond=None)
    row = fit_row(trees, squares, power)
    assert row["a"] == pytest.approx(1 / slope)
    assert row["error in edges"] == pytest.approx((left / len(d)) ** 0.5)
    assert row["R²"] == pytest.approx(1 - left / (np.var(d) * len(d)))


def test_an_exact_embedding_fits_as_squares_and_in_no_other_power() -> None:
    trees = [random_sentence(n, n) for n in range(2, 12)]
    squares = [3 * squared_distances(exact_embedding(t, 12)).numpy() for t in trees]
    rows = {power: fit_row(trees, squares, power) for power in (1.0, 2.0, 3.0)}
    assert (rows[2.0]["a"], rows[2.0]["R²"], rows[2.0]["R² low"]) == pytest.approx((3, 1, 1))
    assert rows[2.0]["error in edges"] == pytest.approx(0, abs=1e-6)
    assert max(rows[1.0]["R²"], rows[3.0]["R²"]) < 0.99


def test_relations_are_counted_with_their_subtypes() -> None:
    trees = [random_sentence(n, n) for n in range(1, 25)]
    chance = np.random.default_rng(0)
    squares = [chance.random((len(tree), len(tree))) for tree in trees]
    wanted = defaultdict(list)
    for tree, own in zip(trees, squares, strict=True):
        for word, head in tree.edges:
            wanted[tree.relations[word].partition(":")[0]].append(own[word, head])
    rows = relation_table(trees, squares, least=1).set_index("relation")
    assert rows["count"].to_dict() == {name: len(own) for name, own in wanted.items()}
    for relation, row in rows.iterrows():
        own = wanted[str(relation)]
        assert row["mean"] == pytest.approx(np.mean(own))
        assert row["deviation"] == pytest.approx(np.std(own))
        assert row["upper quartile"] == pytest.approx(np.quantile(own, 0.75))
        assert row["mean low"] <= row["mean"] <= row["mean high"]
    assert rows["mean"].is_monotonic_increasing


def test_distances_have_tables_and_pictures(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rank": 4, "epochs": 1, "powers": (1, 2), "least": 3}
    powers, relations = tree_distances(tiny(tmp_path), **PARTS, **options)
    assert powers.table["map"].tolist() == ["none", "for squares", "for this power"] * 2
    squares = powers.table[powers.table["power"] == 2].set_index("map").drop(columns="power")
    assert squares.loc["for squares"].equals(squares.loc["for this power"])
    assert set(relations.table["relation"]) == {"nsubj", "obj", "det", "nmod"}
    for found in (powers, relations):
        assert len(found.save(tmp_path / "out")) == 4
        assert found.settings["layer"] == 1  # the middle one


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer": 9}, "layers must be at most 3, got 9"),
        ({"powers": (0,)}, r"powers must be at least 0\.001, got 0"),
        ({"least": 999, "rank": 2, "epochs": 1}, "test must hold a relation 999 times, got none"),
    ],
)
def test_wrong_distances_are_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        tree_distances(tiny(tmp_path), **PARTS, **options)
