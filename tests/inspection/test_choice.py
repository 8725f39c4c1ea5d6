"""Which heads and tokens are looked at, and what is said of those that are not there."""

import pytest

from jat_graph.inspection.choice import choose_heads, choose_tokens

JUMPING = {0: (0, 1, 2, 5), 1: (0, 1, 2, 5), 2: (3,), 4: (0, 1, 2, 5)}


def test_everything_unless_told_otherwise() -> None:
    everything = tuple((layer, head) for layer, heads in JUMPING.items() for head in heads)
    assert choose_heads(JUMPING) == everything
    assert choose_tokens(None, 7) == range(7)


@pytest.mark.parametrize(
    ("layers", "heads", "found"),
    [
        (2, None, ((2, 3),)),
        (None, 3, ((2, 3),)),
        ((4, 0), (5, 1), ((0, 1), (0, 5), (4, 1), (4, 5))),
        ([1, 2], [0, 3], ((1, 0), (2, 3))),  # where a head jumps
    ],
)
def test_one_or_some_layers_and_heads(layers, heads, found) -> None:
    assert choose_heads(JUMPING, layers, heads) == found


@pytest.mark.parametrize(
    ("layers", "heads", "message"),
    [
        (3, None, "layer 3 must have jump heads, got only layers 0-1: heads 0-2, 5; layer 2: "),
        ((0, 99), None, "layer 99 must have jump heads"),
        (None, 13, "head 13 must be a jump head, got only layers 0-1: heads 0-2, 5; "),
        (2, 0, "head 0 must be a jump head, got only layer 2: head 3$"),
        ((), None, "layers must be one or more indices from 0"),
        (None, -1, "heads must be one or more indices from 0"),
        (None, (1, 1), "heads must not name an index twice"),
        ("0", None, "layers must be a sequence of indices"),
        (None, True, "heads must be one or more indices from 0"),
    ],
)
def test_heads_that_are_not_there_are_named(layers, heads, message) -> None:
    with pytest.raises(ValueError, match=message):
        choose_heads(JUMPING, layers, heads)


@pytest.mark.parametrize("span", [range(0, 1), range(3, 9), range(8, 9), range(0, 9)])
def test_tokens_of_the_text(span: range) -> None:
    assert choose_tokens(span, 9) == span


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (range(3, 10), "tokens must lie in a text of 9, 0:9, got 3:10"),
        (range(90, 40), r"tokens must be a range .*, got range\(90, 40\)"),
        (range(4, 4), r"tokens must be a range .*, got range\(4, 4\)"),
        (range(-3, 4), r"tokens must be a range .*, got range\(-3, 4\)"),
        (range(0, 8, 2), r"tokens must be a range .*, got range\(0, 8, 2\)"),
        ((3, 4), r"tokens must be a range .*, got \(3, 4\)"),
    ],
)
def test_tokens_that_are_not_there_are_named(span, message) -> None:
    with pytest.raises(ValueError, match=message):
        choose_tokens(span, 9)
