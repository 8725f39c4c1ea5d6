"""Joined sentences, and the similarity ratio against its definition."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jat_graph.probes import similarity_ratio
from jat_graph.probes.meaning.centroids import SenseTable
from jat_graph.probes.meaning.pairs import draw_pairs
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_jump_model, tiny_model
from tests.probes.meaning.support import sentence, sentences
from tests.probes.meaning.test_centroids import marked
from tests.probes.meaning.test_senses import states_of

TRAINING = sentences(40, seed=2)


def test_pairs_have_two_senses_of_a_word_each_of_another_lemma() -> None:
    states = marked(TRAINING)
    drawn = draw_pairs(states, SenseTable.of(states), 9, seed=1)
    lemmas = []
    for (first, second), joined in zip(
        drawn.words.tolist(), np.array(drawn.joined, object).reshape(-1, 3), strict=True
    ):
        one, other = states.words[first], states.words[second]
        before, behind = (states.sentences[states.sentence[w]] for w in (first, second))
        assert one.lemma == other.lemma
        assert one.senses != other.senses
        lemmas.append(one.lemma)
        both, at_random, behind_random = joined
        assert both.words == (*before.words, "and", *behind.words)
        assert at_random.words[: len(before) + 1] == (*before.words, "and")
        assert behind_random.words[-len(behind) - 1 :] == ("and", *behind.words)
        for some, words in ((both, 2), (at_random, 1), (behind_random, 1)):
            assert len(some.marked) == words
            for word in some.marked:
                assert [some.words[place] for place in word.places] == [one.lemma]
        for some in (at_random, behind_random):
            assert some.words.count(one.lemma) == 1
    assert sorted(lemmas) == ["bark", "book"]


def test_pairs_are_drawn_by_their_seed() -> None:
    states = marked(TRAINING)
    table = SenseTable.of(states)
    first, same, other = (draw_pairs(states, table, 1, seed) for seed in (0, 0, 3))
    assert first.joined == same.joined != other.joined
    assert len(first.words) == 1


def test_pairs_need_two_senses_and_a_sentence_without_the_word() -> None:
    for texts, message in (
        (["bark=n0 dill=n0", "bark=n0"], "two senses, each twice"),
        (["bark=n0 bark=n1", "bark=n0 bark=n1"], "two senses|a sentence without 'bark'"),
        (["bark=n0", "bark=n0", "bark=n1", "bark=n1"], "a sentence without 'bark', got none"),
    ):
        states = marked([sentence(text) for text in texts])
        with pytest.raises(ValueError, match=message):
            draw_pairs(states, SenseTable.of(states), 3, seed=0)


def slow_rows(model: Any, layer: int, number: int) -> dict[str, tuple[float, float]]:
    """The ratio of mean cosines and the share of wrong words, of states as they are."""
    states = [states_of(model, list(one.words))[layer] for one in TRAINING]
    words = [(row, word) for row, one in enumerate(TRAINING) for word in one.marked]
    own = [states[row][list(word.places)].mean(0) for row, word in words]
    drawn_states = marked(TRAINING)
    drawn = draw_pairs(drawn_states, SenseTable.of(drawn_states), number, seed=0)

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    found: dict[str, list[tuple[float, float]]] = {}
    for number_, pair in enumerate(drawn.words.tolist()):
        three = [
            [states_of(model, list(one.words))[layer][list(w.places)].mean(0) for w in one.marked]
            for one in drawn.joined[3 * number_ : 3 * number_ + 3]
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
def test_the_table_follows_the_definition(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    found = similarity_ratio(
        model, tiny_tokenizer(), TRAINING, tmp_path, pairs=2, layers=(0, 2), rank=3
    )
    rows = found.table.set_index(["layer", "states", "sentence"])
    for layer in (0, 2):
        for where, (ratio, wrong) in slow_rows(model, layer, 2).items():
            row = rows.loc[(layer, "as they are", where)]
            assert row["ratio"] == pytest.approx(ratio, rel=1e-4)
            assert row["wrong"] == pytest.approx(wrong)
            assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert len(rows) == 2 * 2 * 3
    assert found.settings == {"pairs": 2, "rank": 3, "seed": 0}


def test_what_is_found_can_be_saved(tmp_path: Path) -> None:
    model = tiny_jump_model("bert")
    found = similarity_ratio(model, tiny_tokenizer(), TRAINING, tmp_path, layers=(1,))
    found.save(tmp_path / "out")
    assert (tmp_path / "out" / "ratio.svg").stat().st_size > 10_000
    assert "with a random sentence" in found.to_markdown()


def test_bad_numbers_of_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pairs must be at least 1"):
        similarity_ratio(tiny_model("bert"), tiny_tokenizer(), TRAINING, tmp_path, pairs=0)
