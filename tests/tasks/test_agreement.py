from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks import AgreementTask
from jat_graph.tasks.lexicon import HAVE, TESTING, TRAINING, Lexicon

SEEDS = st.integers(0, 10_000)
SIZES = st.integers(1, 4)  # sentences in each cell
LEXICONS = {"train": TRAINING, "validation": TESTING}


class Parse(NamedTuple):
    """What a sentence says, found again from its words; True stands for plural."""

    subject: bool
    between: list[bool]
    verb: tuple[str, str]
    nouns: list[str]


def parse(sentence: str, lexicon: Lexicon) -> Parse:
    plural = {form: i == 1 for noun in lexicon.nouns for i, form in enumerate(noun)}
    verbs = {"/".join(verb): verb for verb in (*lexicon.verbs, HAVE)}
    assert sentence.startswith("The ") and sentence.endswith(".")
    words = sentence.rstrip(".").split()
    at = next(i for i, word in enumerate(words) if word in verbs)
    nouns = [word for word in words[:at] if word in plural]
    assert words[at - 1] == nouns[-1]  # the last attractor stands right before the verb
    assert words[1] == nouns[0]
    return Parse(plural[nouns[0]], [plural[n] for n in nouns[1:]], verbs[words[at]], nouns)


@cache
def load(seed: int = 0, cells: int = 2) -> dict[str, list[dict[str, Any]]]:
    task = AgreementTask(train_size=12 * cells, validation_size=6 * cells, seed=seed)
    return {split: dataset.to_list() for split, dataset in task.load(None).items()}


@cache
def default() -> dict[str, list[dict[str, Any]]]:
    return {split: dataset.to_list() for split, dataset in AgreementTask().load(None).items()}


# --- labels and balance --------------------------------------------------------------------------


@given(SEEDS, SIZES)
def test_the_label_is_the_subjects_number(seed: int, cells: int) -> None:
    for split, lexicon in LEXICONS.items():
        for row in load(seed, cells)[split]:
            found = parse(row["sentence"], lexicon)
            assert row["label"] == int(found.subject)
            assert row["attractors"] == len(found.between) in (1, 2, 3)


@given(SEEDS, SIZES)
def test_every_combination_is_there_equally_often(seed: int, cells: int) -> None:
    rows = load(seed, cells)
    for split, conflicts in (("train", 2), ("validation", 1)):
        counts = Counter()
        for row in rows[split]:
            found = parse(row["sentence"], LEXICONS[split])
            conflict = found.between[0] != found.subject
            assert found.between == [found.subject != conflict] * row["attractors"]
            counts[row["label"], row["attractors"], conflict] += 1
        assert len(counts) == 2 * 3 * conflicts
        assert set(counts.values()) == {cells}
    assert not any(conflict is False for *_, conflict in counts)  # the validation split's


def guess(rule: str, found: Parse) -> bool:
    """Guess the right verb's number without knowing which noun is the subject."""
    nouns = [found.subject, *found.between]
    if rule == "nearest":
        return nouns[-1]
    if rule == "other than nearest":
        return not nouns[-1]
    return 2 * sum(nouns) > len(nouns)  # the majority, singular where there is none


@pytest.mark.parametrize(
    ("rule", "share"),
    [("nearest", 1 / 2), ("other than nearest", 1 / 2), ("majority", 7 / 12)],
)
def test_in_training_no_rule_pays_that_overlooks_the_subject(rule: str, share: float) -> None:
    parses = [(parse(r["sentence"], TRAINING), r["label"]) for r in default()["train"]]
    right = [guess(rule, p) == bool(label) for p, label in parses]
    assert sum(right) / len(right) == pytest.approx(share)


@pytest.mark.parametrize(("rule", "shares"), [("nearest", (0, 0, 0)), ("majority", (0.5, 0, 0))])
def test_in_validation_attractors_mislead(rule: str, shares: tuple[float, ...]) -> None:
    for attractors, share in enumerate(shares, start=1):
        rows = default()[f"validation_{attractors}"]
        parses = [(parse(row["sentence"], TESTING), row["label"]) for row in rows]
        right = [guess(rule, p) == bool(label) for p, label in parses]
        assert sum(right) / len(right) == pytest.approx(share)


# --- words and duplicates ------------------------------------------------------------------------


def test_no_sentence_is_there_twice() -> None:
    rows = default()["train"] + default()["validation"]
    assert len({row["sentence"] for row in rows}) == len(rows) == 1320


def test_nouns_of_the_validation_split_are_never_in_training() -> None:
    nouns = {
        split: {noun for row in default()[split] for noun in parse(row["sentence"], lexicon).nouns}
        for split, lexicon in LEXICONS.items()
    }
    assert not nouns["train"] & nouns["validation"]
    for split, lexicon in LEXICONS.items():  # and all of them are used
        assert nouns[split] == {form for noun in lexicon.nouns for form in noun}


def test_a_sentence_repeats_no_noun() -> None:
    for split, lexicon in LEXICONS.items():
        lemma = {form: noun[0] for noun in lexicon.nouns for form in noun}
        for row in default()[split]:
            lemmas = [lemma[noun] for noun in parse(row["sentence"], lexicon).nouns]
            assert len(set(lemmas)) == len(lemmas)


# --- the task ------------------------------------------------------------------------------------


def test_the_parts_are_the_validation_split_by_number_of_attractors() -> None:
    rows = default()
    for attractors in (1, 2, 3):
        part = [row for row in rows["validation"] if row["attractors"] == attractors]
        assert rows[f"validation_{attractors}"] == part
        assert len(part) == 200


@given(SEEDS)
def test_the_same_seed_gives_the_same_text(seed: int) -> None:
    again = AgreementTask(train_size=24, validation_size=12, seed=seed).load(None)
    other = AgreementTask(train_size=24, validation_size=12, seed=seed + 1).load(None)
    for split, rows in load(seed).items():
        assert again[split].to_list() == rows
        assert other[split].to_list() != rows


def test_the_text_of_seed_nought_stays_as_it_is() -> None:
    assert [row["sentence"] for row in default()["validation"][:2]] == FIRST


FIRST = [
    "The tailors next to the bag was/were busy.",
    "The mechanic opposite the writers close to the batteries has/have arrived late.",
]


def test_one_split_does_not_depend_on_the_others_size() -> None:
    small = AgreementTask(train_size=12).load(None, ["validation"])
    assert list(small) == ["validation"]
    assert small["validation"].to_list() == default()["validation"]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("train_size", 0),
        ("train_size", -12),
        ("train_size", 100),
        ("validation_size", 13),
        ("validation_size", 10**9),
    ],
)
def test_a_size_that_cannot_be_balanced_is_refused(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be a multiple of \d+ .*, got {size}$"):
        AgreementTask(**{name: size})


def test_the_largest_size_can_be_drawn() -> None:
    task = AgreementTask(train_size=36_000, validation_size=36_000)
    sentences = task.load(None, ["train", "validation"])
    assert {len(set(split["sentence"])) for split in sentences.values()} == {36_000}
