"""The structural probe: losses against loops, trees that it finds again, scores."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from torch import Tensor

from jat_graph.hf import attach
from jat_graph.probes import Sentence, WordReader, structural_probe
from tests.data.support import STEMS, tiny_tokenizer
from tests.hf.models import tiny_config, tiny_model
from tests.probes.support import (
    exact_embedding,
    path_to_root,
    plant_states,
    random_sentence,
    random_sentences,
    slow_distance,
    tiny,
)

SETS = random_sentences(30, 0), random_sentences(12, 1), random_sentences(15, 2)
PARTS = dict(zip(("train", "dev", "test"), SETS, strict=True))

MEASURES = ["UUAS", "DSpr", "root accuracy", "NSpr"]


@given(st.integers(1, 9), st.integers(0, 999))
def test_distances_and_depths_are_numbers_of_edges(length: int, seed: int) -> None:
    tree, words = random_sentence(length, seed), range(length)
    assert tree.distances.tolist() == [[slow_distance(tree, i, k) for k in words] for i in words]
    assert tree.distances[tree.root].tolist() == [
        len(path_to_root(tree, word)) - 1 for word in words
    ]


def slow_spearman(one: Any, other: Any) -> float:
    if len(set(one)) == 1 or len(set(other)) == 1:
        return 0.0
    return float(spearmanr(one, other).statistic)


def test_words_in_a_line_score_as_defined(tmp_path: Path) -> None:
    """Over all edges, over sentences, and over lengths from 5 for correlations."""
    trees = [*random_sentences(60, 3), random_sentence(1, 0, ("PUNCT",))]
    options: dict[str, Any] = {"layers": (0,), "rank": 1, "epochs": 1, "controls": False}
    table = structural_probe(tiny(tmp_path), *SETS[:2], trees, **options).table
    row, near, deep = table.set_index("model").loc["words in a line"], defaultdict(list), {}
    for tree in trees:
        line = np.arange(len(tree))
        pairs = [
            (abs(line - word), [slow_distance(tree, word, other) for other in line])
            for word in line
        ]
        depths = [len(path_to_root(tree, word)) - 1 for word in line]
        near[len(tree)].append(np.mean([slow_spearman(*pair) for pair in pairs]))
        deep.setdefault(len(tree), []).append(slow_spearman(line, depths))
    for name, values in (("DSpr", near), ("NSpr", deep)):
        means = [np.mean(own) for length, own in values.items() if length >= 5]
        assert row[name] == pytest.approx(np.mean(means))
    hits = sum(len(tree.shown_edges & set(pairwise(tree.shown))) for tree in trees)
    assert row["UUAS"] == pytest.approx(hits / sum(len(tree.shown_edges) for tree in trees))
    roots = [tree.shown[0] == tree.root for tree in trees if tree.shown]
    assert len(roots) < len(trees) and row["root accuracy"] == pytest.approx(np.mean(roots))
    assert all(row[f"{name} low"] <= row[name] <= row[f"{name} high"] for name in MEASURES)


def embedded(folder: Path, states: dict[tuple[str, ...], Tensor]) -> WordReader:
    """A reader that finds these states of sentences by their words, and noise of others."""
    model = tiny_model("bert", hidden_size=12)
    noise = torch.Generator().manual_seed(0)
    return plant_states(
        tiny(folder, model),
        lambda words: states.get(tuple(words), torch.randn(len(words), 12, generator=noise)),
    )


@pytest.mark.slow
def test_training_finds_trees_behind_a_rotation_and_noise(tmp_path: Path) -> None:
    """Exact embeddings, turned at random together with as many directions of noise."""
    chance = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(12, 12, generator=chance, dtype=torch.float64)).Q
    sets, states = [], {}
    for number, seed in ((600, 0), (60, 1000), (60, 2000)):
        own = [random_sentence(2 + k % 5, seed + k, ("NOUN",)) for k in range(number)]
        sets.append(own)
        for tree in own:
            points = exact_embedding(tree, 12)
            points[:, 6:] = torch.randn(len(tree), 6, generator=chance, dtype=torch.float64)
            states[tree.words] = (points @ rotation).float()
    reader, options = embedded(tmp_path, states), {"rank": None, "epochs": 50}
    row = structural_probe(reader, *sets, layers=(1,), controls=False, **options).table.iloc[0]
    assert row["UUAS"] > 0.95 and row[["DSpr", "NSpr", "root accuracy"]].min() > 0.9


@pytest.mark.slow
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
    assert rows[MEASURES].notna().all(axis=None)
    assert rows["UUAS"].between(0, 1).all()
    assert found.settings["sentences"] == {"train": 30, "dev": 12, "test": 15}
    assert len(found.save(tmp_path / "out")) == 4
    monkeypatch.setattr(type(model), "forward", None)  # all is found in the folder
    monkeypatch.setattr(torch.optim, "Adam", None)
    again = structural_probe(reader, *SETS, **options)
    assert again.table.equals(rows)
    for other in ({"rank": 3}, {"epochs": 1}, {"seeds": (2,)}):
        with pytest.raises(TypeError):
            structural_probe(reader, *SETS, **options | other)


@pytest.mark.slow
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
    twins = [own[own["model"] == "random weights"].to_numpy().tolist() for own in (rows, plain)]
    assert twins[0] == twins[1]  # without jumps


def test_sentences_that_the_model_cannot_take_are_left_out(tmp_path: Path) -> None:
    long = random_sentence(90, 0)
    words = tuple(STEMS[n % len(STEMS)] for n in range(90))
    test = [Sentence(words, long.tags, long.heads, long.relations), *SETS[2]]
    options: dict[str, Any] = {"rank": 4, "epochs": 1, "layers": (1,)}
    found = structural_probe(tiny(tmp_path), **PARTS | {"test": test}, **options)
    assert found.settings["left_out"] == {"train": 0, "dev": 0, "test": 1}
    whole = structural_probe(tiny(tmp_path), **PARTS, **options)
    assert found.table.equals(whole.table)
