"""Probes of senses on tiny models, against their definitions word by word."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

from jat_graph.probes import Findings, sense_probe, similarity_ratio
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model
from tests.probes.support import AROUND, KEYS, marked_sentence, marked_sentences, plant_states, tiny


def slow_answer(word: Any, state: np.ndarray, known: dict[str, list[np.ndarray]]) -> bool:
    """Whether the nearest centroid, found one by one, is that of a right sense."""

    def cosine(key: str) -> float:
        middle = np.mean(known[key], axis=0)
        return float(state @ middle / np.linalg.norm(state) / np.linalg.norm(middle))

    keys = KEYS.get((word.lemma, word.pos), ())
    there = [key for key in keys if key in known]
    answer = max(there, key=cosine) if there else next(iter(keys), None)
    return answer in word.senses


def states_of(model: Any, words: tuple[str, ...]) -> np.ndarray:  # [layers + 1, W, D]
    encoded = tiny_tokenizer()(list(words), is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**encoded, output_hidden_states=True).hidden_states
    numbers = encoded.word_ids(0)
    rows = [[t for t, n in enumerate(numbers) if n == word] for word in range(len(words))]
    return np.stack([np.stack([layer[0, row].mean(0).numpy() for row in rows]) for layer in hidden])


def slow_f1(model: Any, layer: int, training: list[Any], tests: list[Any]) -> float:
    known: dict[str, list[np.ndarray]] = {}
    for one in training:
        states = states_of(model, one.words)[layer]
        for word in one.marked:
            for key in word.senses:
                known.setdefault(key, []).append(states[list(word.indices)].mean(0))
    right = []
    for one in tests:
        states = states_of(model, one.words)[layer]
        right += [
            slow_answer(word, states[list(word.indices)].mean(0), known) for word in one.marked
        ]
    return float(np.mean(right))


def drawn(number: int, seed: int) -> list[Any]:
    """Draw sentences of marked words, some with several senses, some of several words."""
    draw, found = np.random.default_rng(seed), []
    several = [pair for pair, keys in KEYS.items() if keys]
    for index in range(number):
        parts = ["gook"]
        for lemma, pos in draw.permutation(several)[: draw.integers(4)].tolist():
            keys = len(KEYS[lemma, pos])
            senses = draw.permutation(keys)[: draw.integers(1, keys + 1)]
            parts.append(f"{lemma}={pos}{''.join(map(str, senses))}")
        found.append(marked_sentence(" ".join(parts), f"text {index}"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [("bert", 0), ("gpt2", 1), ("bert", 2), ("gpt2", 3)])
def test_the_table_follows_the_definition(
    name: str, seed: int, small_wordnet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, tests = (
        drawn(8, seed),
        {"first": drawn(9, seed + 100), "second": drawn(5, seed + 200)},
    )
    long = marked_sentence("bark=n0 lark=r0" + " dook" * 90)  # which the model cannot read
    reader, options = tiny(tmp_path, name), {"seeds": (), "layers": (0, 2)}
    both: Any = [long, *training], tests, small_wordnet
    found = sense_probe(reader, *both, **options)
    rows, asked = found.table.set_index(["method", "layer"]), [*tests["first"], *tests["second"]]
    for layer in (0, 2):
        nearest = rows.loc[("nearest centroid", layer)]
        assert nearest["all"] == pytest.approx(slow_f1(reader.model, layer, training, asked))
        assert nearest["all_low"] <= nearest["all"] <= nearest["all_high"]
        torch.manual_seed(0)
        twin = AutoModel.from_config(reader.model.config).eval()
        control = rows.loc[("nearest centroid, random weights", layer)]
        assert control["all"] == pytest.approx(slow_f1(twin, layer, training, asked))
    words = [word for one in asked for word in one.marked]
    first = np.mean([KEYS[word.lemma, word.pos][0] in word.senses for word in words])
    assert found.table.loc[0, "all"] == pytest.approx(first)
    known = {key for one in training for word in one.marked for key in word.senses}
    candidates = [known.intersection(KEYS[word.lemma, word.pos]) for word in words]
    numbers = {own: sum(len(one.marked) for one in some) for own, some in tests.items()}
    numbers |= {"all": len(words), "ambiguous": sum(len(own) > 1 for own in candidates)}
    assert found.settings["words"] == numbers
    # States are found where they were kept.
    monkeypatch.setattr(type(reader.model), "forward", None)
    assert sense_probe(reader, *both, **options).table.equals(found.table)


# --- the semantic probe --------------------------------------------------------------------------


@pytest.mark.slow
def test_the_map_finds_what_tells_senses_apart(small_wordnet: Any, tmp_path: Path) -> None:
    """The first two numbers know the sense, the others are louder noise."""
    draw = torch.Generator()

    def states_of(words: Sequence[str]) -> torch.Tensor:
        states = 3 * torch.randn(len(words), 12, generator=draw)
        sense = int(any(own in AROUND[1] for own in words))
        states[:, :2] = 2 * torch.eye(2)[sense] + 0.1 * states[:, :2]
        return states

    reader = plant_states(tiny(tmp_path, tiny_model("bert", hidden_size=12)), states_of)
    training, tests = marked_sentences(400, texts=20), {"own": marked_sentences(200, seed=5)}
    options: dict[str, Any] = {"seeds": (0, 1), "layers": (1,), "controls": False}
    table = sense_probe(reader, training, tests, small_wordnet, **options).table
    found = table.set_index("method")
    assert found.loc["semantic probe", "all_low"] > found.loc["random map", "all_high"]
    trained = found["spread"].dropna().index  # over seeds
    assert trained.tolist() == ["semantic probe", "random map"]
    assert sense_probe(reader, training, tests, small_wordnet, **options).table.equals(table)


# --- the ratio -----------------------------------------------------------------------------------

PAIRED = marked_sentences(40, seed=2, texts=2)
SENSES = {one.words: one.marked[0] for one in PAIRED}
Words = tuple[str, ...]


def read_pairs(model: Any, folder: Path, **options: Any) -> tuple[Findings, list[Any]]:
    """Return findings, and the two sides of each joined sentence that the model read for them."""
    read: list[tuple[Words, Words]] = []

    def note(_: Any, __: Any, inputs: Any) -> None:
        for ids in inputs["input_ids"]:
            words = tiny_tokenizer().convert_ids_to_tokens(ids[1:-1])
            if "[UNK]" in words:  # "and"
                at = words.index("[UNK]")
                read.append((tuple(words[:at]), tuple(words[at + 1 :])))

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    found = similarity_ratio(tiny(folder, model), PAIRED, **options)
    handle.remove()
    return found, read


def threes(read: list[tuple[Words, Words]]) -> dict[str, list[tuple[Words, Words]]]:
    """Return by lemma: both sentences with it, the first with a random one, one with the second."""
    found = {}
    for lemma in ("bark", "book"):
        for before, behind in read:
            if lemma in before and lemma in behind:
                (first,) = (own for own in read if own[0] == before and lemma not in own[1])
                (second,) = (own for own in read if own[1] == behind and lemma not in own[0])
                assert lemma not in found
                found[lemma] = [(before, behind), first, second]
    return found


@pytest.mark.slow
def test_pairs_have_two_senses_of_a_word_each_of_another_lemma(tmp_path: Path) -> None:
    model, options = tiny_model("bert"), {"pairs": 9, "layers": (0,)}
    reads = [
        read_pairs(model, tmp_path / str(number), seed=seed, **options)[1]
        for number, seed in enumerate((0, 0, 3))
    ]
    assert sorted(reads[0]) == sorted(reads[1]) != sorted(reads[2])
    for read in reads:
        found = threes(read)
        assert set(found) == {"bark", "book"} and len(read) == 6
        assert all(side in SENSES for own in read for side in own)
        for (before, behind), *_ in found.values():
            assert SENSES[before].senses != SENSES[behind].senses
    assert len(read_pairs(model, tmp_path / "one", **options | {"pairs": 1})[1]) == 3


def slow_rows(model: Any, layer: int, read: list[Any]) -> dict[str, tuple[float, float, float]]:
    """The ratio of mean cosines, the mean ratio, and the share of wrong words, as states are."""
    own = [states_of(model, one.words)[layer][one.marked[0].indices[0]] for one in PAIRED]

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    def state(lemma: str, side: int, both: tuple[Words, Words]) -> np.ndarray:
        at = both[side].index(lemma) + side * (len(both[0]) + 1)
        return states_of(model, (*both[0], "and", *both[1]))[layer][at]

    found: dict[str, list[tuple[float, float]]] = {}
    for lemma, three in threes(read).items():
        for side, words in enumerate(three[0]):
            word = [one.words for one in PAIRED].index(words)
            near, far = (
                np.mean(
                    [
                        own[i]
                        for i, one in enumerate(PAIRED)
                        if one.marked[0].senses == SENSES[some].senses and i != word
                    ],
                    0,
                )
                for some in (words, three[0][1 - side])
            )
            for name, one in (
                ("alone", own[word]),
                ("with the other sense", state(lemma, side, three[0])),
                ("with a random sentence", state(lemma, side, three[1 + side])),
            ):
                found.setdefault(name, []).append((cosine(one, near), cosine(one, far)))
    return {
        name: (
            sum(a for a, _ in some) / sum(b for _, b in some),
            np.mean([a / b for a, b in some]),
            np.mean([a < b for a, b in some]),
        )
        for name, some in found.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_ratio_follows_its_definition(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    options: dict[str, Any] = {"pairs": 2, "layers": (0, 2)}
    found, read = read_pairs(model, tmp_path, **options)
    rows = found.table.set_index(["layer", "states", "sentence"])
    for layer in (0, 2):
        for where, (ratio, mean, wrong) in slow_rows(model, layer, read).items():
            row = rows.loc[(layer, "as they are", where)]
            assert row["ratio"] == pytest.approx(ratio, rel=1e-4)
            assert row["mean_of_ratios"] == pytest.approx(mean, rel=1e-4)
            assert row["wrong"] == pytest.approx(wrong)
            assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert len(rows) == 2 * 2 * 3
    assert found.settings == {"pairs": 2, "rank": 32, "seed": 0}
    assert len(found.save(tmp_path / "out")) == 4
