import pytest

from jat_graph.tasks.lexicon import HAVE, TESTING, TRAINING, Lexicon

BOTH = pytest.mark.parametrize("lexicon", [TRAINING, TESTING], ids=["training", "testing"])


def forms(lexicon: Lexicon) -> list[str]:
    return [form for noun in lexicon.nouns for form in noun]


@BOTH
def test_no_noun_is_there_twice_or_has_one_form(lexicon: Lexicon) -> None:
    assert len(set(forms(lexicon))) == len(forms(lexicon)) > 60


@BOTH
def test_prepositions_suffice_for_three_attractors(lexicon: Lexicon) -> None:
    assert len(set(lexicon.prepositions)) >= 3


def test_nothing_but_the_closed_class_is_shared() -> None:
    assert not set(forms(TRAINING)) & set(forms(TESTING))
    assert not set(TRAINING.prepositions) & set(TESTING.prepositions)
    assert set(TRAINING.verbs) & set(TESTING.verbs) == {("is", "are"), ("was", "were")}
    for kind in ("things", "people"):
        train, test = getattr(TRAINING, kind), getattr(TESTING, kind)
        assert not set(train.adjectives) & set(test.adjectives)
        assert not set(train.participles) & set(test.participles)


def test_plurals_are_english() -> None:
    nouns = dict(TRAINING.nouns + TESTING.nouns)
    wanted = {
        "bench": "benches",
        "box": "boxes",
        "brush": "brushes",
        "diary": "diaries",
        "toy": "toys",
        "boy": "boys",
        "piano": "pianos",
        "witness": "witnesses",
        "knife": "knives",
        "child": "children",
        "battery": "batteries",
        "key": "keys",
        "watch": "watches",
        "lady": "ladies",
        "loaf": "loaves",
        "woman": "women",
        "thief": "thieves",
    }
    assert {noun: nouns[noun] for noun in wanted} == wanted


@BOTH
def test_verbs_differ_in_number(lexicon: Lexicon) -> None:
    assert all(singular != plural for singular, plural in (*lexicon.verbs, HAVE))
