"""Right-to-left text does not turn what stands beside it."""

import pytest

from jat_graph.looking.directions import isolated, named


@pytest.mark.parametrize("text", ["book", "été", "本", "", "12", "…"])
def test_other_text_is_as_it_was(text: str) -> None:
    assert isolated(text) == text


@pytest.mark.parametrize("text", ["ספר", "كتاب", "a ספר"])
def test_right_to_left_text_is_isolated(text: str) -> None:
    assert isolated(text) == f"\u2068{text}\u2069"


def test_a_token_that_is_a_comma_is_told_from_those_between_tokens() -> None:
    names = [named(token) for token in ("book", ",", "ספר", ";")]
    assert names == ["book", "“,”", "\u2068ספר\u2069", "“;”"]
