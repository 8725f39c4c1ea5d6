"""Probes of senses on tiny models, against their definitions word by word."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.probes import Findings, sense_probe, similarity_ratio
from jat_graph.probes.corpora import MarkedSentence, WordNet
from jat_graph.probes.ratio import draw_pairs
from jat_graph.probes.senses import Choices
from jat_graph.probes.states import CLAMP, MarkedStates, split_triples, train_map
from jat_graph.probes.words import Rows, random_weights
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_jump_model, tiny_model
from tests.probes.support import KEYS, marked_sentence, marked_sentences, tiny

TRAINING = marked_sentences(40)
TESTS = {
    "first": [
        *marked_sentences(9, seed=5),
        marked_sentence("lark=r0 gook"),
        marked_sentence("bill=a0 bill=a1"),
    ],
    "second": [marked_sentence("kill book_bill=n0 fill bark=n01"), *marked_sentences(6, seed=6)],
}
WIDTH = 12


class Known:
    """What WordNet says, without its files."""

    def senses(self, lemma: str, pos: str) -> tuple[str, ...]:
        return KEYS.get((lemma, pos), ())


def marked(some: list[MarkedSentence], left_out: tuple[int, ...] = (), seed: int = 0) -> Any:
    """States of two layers, drawn at random."""
    counts = [sum(len(word.indices) for word in one.marked) for one in some]
    values = np.random.default_rng(seed).normal(size=(2, sum(counts), 5)).astype(np.float32)
    starts = [0, *np.cumsum(counts).tolist()]
    for row in left_out:
        values[:, starts[row] : starts[row + 1]] = 0
    return MarkedStates(some, Rows(values, starts, left_out, ""))


def slow_states(states: MarkedStates, layer: int) -> list[tuple[Any, np.ndarray, bool]]:
    found = []
    for row, one in enumerate(states.sentences):
        at = states.rows.starts[row]
        for word in one.marked:
            own = states.rows.values[layer, at : at + len(word.indices)]
            found.append((word, own.mean(0), row not in states.rows.left_out))
            at += len(word.indices)
    return found


def slow_answer(word: Any, state: np.ndarray, known: dict[str, list[np.ndarray]]) -> bool:
    """Whether the nearest centroid, found one by one, is that of a right sense."""

    def cosine(key: str) -> float:
        middle = np.mean(known[key], axis=0)
        return float(state @ middle / np.linalg.norm(state) / np.linalg.norm(middle))

    keys = KEYS.get((word.lemma, word.pos), ())
    there = [key for key in keys if key in known]
    answer = max(there, key=cosine) if there else next(iter(keys), None)
    return answer in word.senses


@st.composite
def drawn(draw: st.DrawFn) -> list[MarkedSentence]:
    """Sentences of marked words, some with several senses, some of several words."""
    found = []
    several = [pair for pair, keys in KEYS.items() if keys]
    for number in range(draw(st.integers(1, 6))):
        parts = ["gook"]
        for lemma, pos in draw(st.lists(st.sampled_from(several), max_size=4)):
            indices = range(len(KEYS[lemma, pos]))
            senses = draw(st.lists(st.sampled_from(indices), min_size=1, unique=True))
            parts.append(f"{lemma}={pos}{''.join(map(str, senses))}")
        found.append(marked_sentence(" ".join(parts), f"text {number}"))
    return found


@given(training=drawn(), tests=drawn(), seed=st.integers(0, 9), left_out=st.booleans())
def test_nearest_centroids_follow_their_definition(
    training: list[MarkedSentence], tests: list[MarkedSentence], seed: int, left_out: bool
) -> None:
    learned = marked(training, (0,) if left_out else (), seed)
    asked = marked(tests, (), seed + 1)
    if not any(learned.is_read):
        assert not learned.number
        return
    if not asked.words:
        return
    choices = Choices(asked.words, learned, Known())  # type: ignore[arg-type]
    for layer in (0, 1):
        centroids = learned.centroids(learned.after(layer))
        known: dict[str, list[np.ndarray]] = {}
        for word, state, read in slow_states(learned, layer):
            for key in word.senses if read else ():
                known.setdefault(key, []).append(state)
        for key, number in learned.number.items():
            np.testing.assert_allclose(centroids[number], np.mean(known[key], 0), atol=1e-6)
        found = choices.nearest(asked, learned, layer)
        slow = [slow_answer(word, own, known) for word, own, _ in slow_states(asked, layer)]
        assert found.tolist() == slow


def states_of(model: Any, words: tuple[str, ...]) -> np.ndarray:  # [layers + 1, W, D]
    encoded = tiny_tokenizer()(list(words), is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**encoded, output_hidden_states=True).hidden_states
    numbers = encoded.word_ids(0)
    rows = [[t for t, n in enumerate(numbers) if n == word] for word in range(len(words))]
    return np.stack([np.stack([layer[0, row].mean(0).numpy() for row in rows]) for layer in hidden])


def slow_f1(model: Any, layer: int) -> float:
    known: dict[str, list[np.ndarray]] = {}
    for one in TRAINING:
        states = states_of(model, one.words)[layer]
        for word in one.marked:
            for key in word.senses:
                known.setdefault(key, []).append(states[list(word.indices)].mean(0))
    right = []
    for one in [s for some in TESTS.values() for s in some]:
        states = states_of(model, one.words)[layer]
        right += [
            slow_answer(word, states[list(word.indices)].mean(0), known) for word in one.marked
        ]
    return float(np.mean(right))


def probe(model: Any, wordnet: WordNet, folder: Path, **options: Any) -> Findings:
    return sense_probe(tiny(folder, model), TRAINING, TESTS, wordnet, **options)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_table_follows_the_definition(
    name: str, small_wordnet: WordNet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(name)
    found = probe(model, small_wordnet, tmp_path, seeds=(), layers=(0, 2))
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
    ambiguous = sum(word.lemma in ("bark", "book") for word in words)
    numbers = {"first": 12, "second": 8, "all": 20, "ambiguous": ambiguous}
    assert found.settings["words"] == numbers
    monkeypatch.setattr(type(model), "forward", None)  # states are found where they were kept
    assert probe(model, small_wordnet, tmp_path, seeds=(), layers=(0, 2)).table.equals(found.table)


def test_findings_of_everything_can_be_saved(small_wordnet: WordNet, tmp_path: Path) -> None:
    model = tiny_jump_model("bert")
    found = probe(model, small_wordnet, tmp_path, seeds=(0, 1), layers=(1,))
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
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


# --- the semantic probe --------------------------------------------------------------------------


def slow_loss(mapping: np.ndarray, batch: np.ndarray, start: np.ndarray) -> float:
    def cosines(own: np.ndarray) -> np.ndarray:  # [2, T]
        mapped = batch @ own.T
        mapped /= np.linalg.norm(mapped, axis=-1, keepdims=True)
        return (mapped[0] * mapped[1:]).sum(-1)

    middle = cosines(start).mean(1, keepdims=True)
    same, other = np.clip(cosines(mapping), middle - CLAMP, middle + CLAMP).mean(1)
    return float(other - same)


def test_the_map_finds_what_tells_senses_apart() -> None:
    """The first two numbers know the sense, the others are louder noise."""
    some = marked_sentences(400, texts=20)
    draws = np.random.default_rng(0)
    senses = [int("11:00" in key or "06:01" in key) for s in some for key in s.marked[0].senses]
    values = 3 * draws.normal(size=(len(some), WIDTH))
    values[:, :2] = np.eye(2)[senses] * 2 + 0.3 * draws.normal(size=(len(some), 2))
    values = values.astype(np.float32)
    parts = split_triples(marked(some), 0)
    words = [{some[word].text for word in part.word.tolist()} for part in parts]
    assert words[0].isdisjoint(words[1]) and [len(own) for own in words] == [18, 2]
    trained, start = train_map(marked(some), values, seed=0)
    assert trained.shape == start.shape == (WIDTH, WIDTH)
    assert np.array_equal(train_map(marked(some), values, seed=0)[0], trained)
    batch = parts[1].draw(values, 2000, np.random.default_rng(5)).numpy()
    assert slow_loss(trained, batch, start) < slow_loss(start, batch, start) - 0.05


# --- the ratio -----------------------------------------------------------------------------------

PAIRED = marked_sentences(40, seed=2)


def test_pairs_have_two_senses_of_a_word_each_of_another_lemma() -> None:
    states = marked(PAIRED)
    words, joined = draw_pairs(states, 9, seed=1)
    lemmas = []
    for index, (first, second) in enumerate(words.tolist()):
        one, other = states.words[first], states.words[second]
        before, behind = (states.sentences[states.sentence[w]] for w in (first, second))
        assert one.lemma == other.lemma and one.senses != other.senses
        lemmas.append(one.lemma)
        both, at_random, behind_random = joined[3 * index : 3 * index + 3]
        assert both.words == (*before.words, "and", *behind.words)
        assert at_random.words[: len(before.words) + 1] == (*before.words, "and")
        assert behind_random.words[-len(behind.words) - 1 :] == ("and", *behind.words)
        for some, number in ((both, 2), (at_random, 1), (behind_random, 1)):
            assert len(some.marked) == number
            for word in some.marked:
                assert [some.words[at] for at in word.indices] == [one.lemma]
        for some in (at_random, behind_random):
            assert some.words.count(one.lemma) == 1
    assert sorted(lemmas) == ["bark", "book"]
    first, same, other = (draw_pairs(states, 1, seed) for seed in (0, 0, 3))
    assert first[1] == same[1] != other[1] and len(first[0]) == 1


def slow_rows(model: Any, layer: int, number: int) -> dict[str, tuple[float, float]]:
    """The ratio of mean cosines and the share of wrong words, of states as they are."""
    states = [states_of(model, one.words)[layer] for one in PAIRED]
    words = [(row, word) for row, one in enumerate(PAIRED) for word in one.marked]
    own = [states[row][list(word.indices)].mean(0) for row, word in words]
    pairs, joined = draw_pairs(marked(PAIRED), number, seed=0)

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    found: dict[str, list[tuple[float, float]]] = {}
    for index, pair in enumerate(pairs.tolist()):
        three = [
            [states_of(model, one.words)[layer][list(w.indices)].mean(0) for w in one.marked]
            for one in joined[3 * index : 3 * index + 3]
        ]
        for side, word in enumerate(pair):
            senses = words[word][1].senses, words[pair[1 - side]][1].senses
            near, far = (
                np.mean(
                    [own[i] for i, (_, w) in enumerate(words) if w.senses == s and i != word], 0
                )
                for s in senses
            )
            for name, state in (
                ("alone", own[word]),
                ("with the other sense", three[0][side]),
                ("with a random sentence", three[1 + side][0]),
            ):
                found.setdefault(name, []).append((cosine(state, near), cosine(state, far)))
    return {
        name: (sum(a for a, _ in some) / sum(b for _, b in some), np.mean([a < b for a, b in some]))
        for name, some in found.items()
    }


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_ratio_follows_its_definition(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    options: dict[str, Any] = {"pairs": 2, "layers": (0, 2)}
    found = similarity_ratio(tiny(tmp_path, model), PAIRED, **options)
    rows = found.table.set_index(["layer", "states", "sentence"])
    for layer in (0, 2):
        for where, (ratio, wrong) in slow_rows(model, layer, 2).items():
            row = rows.loc[(layer, "as they are", where)]
            assert row["ratio"] == pytest.approx(ratio, rel=1e-4)
            assert row["wrong"] == pytest.approx(wrong)
            assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert len(rows) == 2 * 2 * 3
    assert found.settings == {"pairs": 2, "rank": 32, "seed": 0}
    assert len(found.save(tmp_path / "out")) == 4
    with pytest.raises(ValueError, match="pairs must be at least 1"):
        similarity_ratio(tiny(tmp_path, model), PAIRED, pairs=0)
