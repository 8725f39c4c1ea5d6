"""A word is found wherever it stands, and sentences count once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.probes.atlas.contexts import Context
from jat_graph.probes.atlas.search import find_uses, plain

WORDS = st.sampled_from(
    ["bank", "Bank", "banks", "BANK", "ban", "straße", "STRASSE", "é", "e\u0301", "."]
)
SENTENCES = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(tuple), min_size=1)


def contexts(*sentences: str) -> list[Context]:
    return [Context(tuple(own.split())) for own in sentences]


def test_the_first_whole_word_counts_in_any_case() -> None:
    some = contexts("the banks", "A BANK or a bank", "river-bank", "bank", "the Bank .")
    found = find_uses("Bank", some, 10, 0)
    assert found.contexts == (some[1], some[3], some[4])
    assert (found.places, found.found, found.read) == ((1, 0, 1), 3, 5)


@pytest.mark.parametrize(
    ("asked", "written"),
    [("straße", "STRASSE"), ("caf\u00e9", "CAFE\u0301"), ("ΣΑΣ", "σας"), (" bank ", "bank")],
)
def test_case_and_accents_are_read_as_unicode_says(asked: str, written: str) -> None:
    assert find_uses(asked, contexts(f"a {written} b"), 10, 0).places == (1,)


@given(WORDS, SENTENCES)
def test_it_is_the_slow_search(word: str, sentences: list[tuple[str, ...]]) -> None:
    wanted: dict[str, tuple[tuple[str, ...], int]] = {}
    for words in sentences:
        for place, own in enumerate(words):
            letters = "".join(letter for letter in plain("".join(words)) if letter.isalnum())
            if plain(own) == plain(word) and letters not in wanted:
                wanted[letters] = (words, place)
    some = [Context(words) for words in sentences]
    if not wanted:
        with pytest.raises(ValueError, match=rf"none of {len(sentences)}$"):
            find_uses(word, some, 99, 0)
        return
    found = find_uses(word, iter(some), 99, 0)
    pairs = zip(found.contexts, found.places, strict=True)
    assert [(own.words, place) for own, place in pairs] == list(wanted.values())
    assert (found.found, found.read) == (len(wanted), len(sentences))


def test_of_two_copies_the_first_counts_whatever_its_spaces_and_marks() -> None:
    marked = Context(("New_York", "bank", "."), senses=(None, "bank.n.01", None))
    found = find_uses("bank", [marked, *contexts("New York bank ; ; .", "a bank")], 10, 0)
    assert found.contexts[0] is marked and found.found == 2


def test_a_sample_is_even_and_the_same_for_the_same_seed() -> None:
    some = contexts(*(f"bank {number}" for number in range(1000)))
    found = [find_uses("bank", some, 100, seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    rows = [int(own.words[1]) for own in found[0].contexts]
    assert rows == sorted(set(rows)) and len(rows) == 100 and found[0].found == 1000
    quarters = [sum(250 * part <= row < 250 * (part + 1) for row in rows) for part in range(4)]
    assert min(quarters) > 10


@pytest.mark.parametrize("word", ["", " ", "New York", "a\tb"])
def test_what_is_no_word_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"^word must be one word without spaces, got "):
        find_uses(word, contexts("a bank"), 10, 0)


def test_a_word_that_no_text_has_is_one_line() -> None:
    wanted = "^word must stand in a sentence, got 'light' in none of 2$"
    with pytest.raises(ValueError, match=wanted):
        find_uses("light", contexts("a bank", "lights"), 10, 0)
    with pytest.raises(ValueError, match=r"in none of 0$"):
        find_uses("light", [], 10, 0)
