"""The sense probe on a tiny model, against the plain definition."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jat_graph.probes import Findings, WordNet, sense_probe
from jat_graph.probes.controls import random_weights
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_jump_model, tiny_model
from tests.probes.meaning.support import KEYS, sentence, sentences

TESTS = {
    "first": [*sentences(9, seed=5), sentence("lark=r0 gook"), sentence("bill=a0 bill=a1")],
    "second": [sentence("kill book_bill=n0 fill bark=n01"), *sentences(6, seed=6)],
}


def probe(model: Any, wordnet: WordNet, folder: Path, **options: Any) -> Findings:
    return sense_probe(model, tiny_tokenizer(), sentences(40), TESTS, wordnet, folder, **options)


def states_of(model: Any, words: list[str]) -> np.ndarray:  # [layers + 1, W, D]
    encoded = tiny_tokenizer()(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**encoded, output_hidden_states=True).hidden_states
    numbers = encoded.word_ids(0)
    rows = [[t for t, n in enumerate(numbers) if n == word] for word in range(len(words))]
    return np.stack([np.stack([layer[0, row].mean(0).numpy() for row in rows]) for layer in hidden])


def slow_f1(model: Any, layer: int) -> float:
    known: dict[str, list[np.ndarray]] = {}
    for one in sentences(40):
        states = states_of(model, list(one.words))[layer]
        for word in one.marked:
            for key in word.senses:
                known.setdefault(key, []).append(states[list(word.places)].mean(0))
    right = total = 0
    for one in [s for some in TESTS.values() for s in some]:
        states = states_of(model, list(one.words))[layer]
        for word in one.marked:
            keys = [key for key in KEYS[word.lemma, word.pos] if key in known]
            state = states[list(word.places)].mean(0)

            def cosine(key: str, state: np.ndarray = state) -> float:
                middle = np.mean(known[key], axis=0)
                return float(state @ middle / np.linalg.norm(state) / np.linalg.norm(middle))

            answer = max(keys, key=cosine) if keys else KEYS[word.lemma, word.pos][0]
            right, total = right + (answer in word.senses), total + 1
    return right / total


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_table_follows_the_definition(
    name: str, small_wordnet: WordNet, tmp_path: Path
) -> None:
    model = tiny_model(name)
    found = probe(model, small_wordnet, tmp_path, seeds=(), layers=(0, 2))
    assert " to " in found.cells()["all"][0]  # the interval stands beside what it is of
    rows = found.table.set_index(["method", "layer"])
    for layer in (0, 2):
        nearest = rows.loc[("nearest centroid", layer)]
        assert nearest["all"] == pytest.approx(slow_f1(model, layer))
        assert nearest["all_low"] <= nearest["all"] <= nearest["all_high"]
        control = rows.loc[("nearest centroid, random weights", layer)]
        assert control["all"] == pytest.approx(slow_f1(random_weights(model), layer))
    words = [word for some in TESTS.values() for one in some for word in one.marked]
    first = np.mean([KEYS[word.lemma, word.pos][0] in word.senses for word in words])
    assert found.table.loc[0, "all"] == pytest.approx(first)
    assert found.settings["words"] == {
        "first": 12,
        "second": 8,
        "all": 20,
        "ambiguous": sum(word.lemma in ("bark", "book") for word in words),
    }


def test_findings_of_everything_can_be_saved(small_wordnet: WordNet, tmp_path: Path) -> None:
    model = tiny_jump_model("bert")
    found = probe(model, small_wordnet, tmp_path, seeds=(0, 1), rank=3, layers=(1,))
    assert found.table["method"].tolist() == [
        "WordNet's first sense",
        "most frequent in SemCor",
        "nearest centroid",
        "nearest centroid, random weights",
        "semantic probe",
        "random map",
    ]
    assert found.table["spread"].notna().tolist() == [False] * 4 + [True] * 2
    found.save(tmp_path / "out")
    assert (tmp_path / "out" / "senses.png").stat().st_size > 10_000
    assert found.settings["rank"] == 3


def test_states_are_read_once(
    small_wordnet: WordNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("bert")
    first = probe(model, small_wordnet, tmp_path, seeds=(), controls=False)
    monkeypatch.setattr(type(model), "forward", None)
    second = probe(model, small_wordnet, tmp_path, seeds=(), controls=False)
    assert first.table.equals(second.table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank must be at least 1"),
        ({"rank": 10_000}, "rank must be below"),
        ({"layers": (99,)}, r"^layers must be at most \d, got 99$"),
        ({"layers": ()}, "layers must be one or more indices"),
        ({"seeds": (1, 1)}, "seeds must not name an index twice"),
        ({"controls": 1}, "controls must be True or False"),
    ],
)
def test_bad_options_are_refused(
    small_wordnet: WordNet, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        probe(tiny_model("bert"), small_wordnet, tmp_path, **options)


def test_a_training_without_two_senses_of_a_word_trains_no_map(
    small_wordnet: WordNet, tmp_path: Path
) -> None:
    model, tokenizer = tiny_model("bert"), tiny_tokenizer()
    training = [sentence("bark=n0 gook", "one"), sentence("book=n1", "two")]
    with pytest.raises(ValueError, match="two senses, each twice"):
        sense_probe(model, tokenizer, training, TESTS, small_wordnet, tmp_path, controls=False)
