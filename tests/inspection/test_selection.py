"""Which heads, tokens and edges are looked at, and what is said of those that are not there."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.inspection.selection import (
    choose_heads,
    strongest_edges,
    strongest_tokens,
)

JUMPING = {0: (0, 1, 2, 5), 1: (0, 1, 2, 5), 2: (3,), 4: (0, 1, 2, 5)}


@pytest.mark.parametrize(
    ("layers", "heads", "found"),
    [
        (None, None, tuple((layer, head) for layer, heads in JUMPING.items() for head in heads)),
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
        (3, None, "layer 3 must"),
        ((0, 99), None, "layer 99 must"),
        (None, 13, "head 13 must"),
        (2, 0, "head 0 must"),
        ((), None, "layers must"),
        (None, -1, "heads must"),
        (None, (1, 1), "heads must"),
        ("0", None, "layers must"),
        (None, True, "heads must"),
    ],
)
def test_heads_that_are_not_there_are_named(layers, heads, message) -> None:
    with pytest.raises(ValueError, match=message):
        choose_heads(JUMPING, layers, heads)


def made_up(seed: int, length: int, levels: int):
    """Return gains and weights with many that are equal."""
    generator = torch.Generator().manual_seed(seed)
    gains = torch.randint(levels, (length, length), generator=generator) / 4 - 0.5
    weights = torch.randint(3, (length, length), generator=generator) / 2
    return gains, weights.fill_diagonal_(0)


def sorted_edges(gains, weights):
    """Return all edges in order, as a list."""
    edges = [tuple(pair) for pair in weights.nonzero().tolist()]
    return sorted(edges, key=lambda pair: (-float(gains[pair]), -float(weights[pair])))


SIZES = {
    "seed": st.integers(0, 999),
    "length": st.integers(1, 9),
    "levels": st.integers(1, 9),
    "most": st.integers(0, 90),
}


@given(**SIZES)
def test_the_first_edges_are_those_of_all_in_order(seed, length, levels, most) -> None:
    gains, weights = made_up(seed, length, levels)
    edges = sorted_edges(gains, weights)
    for number, wanted in ((most, edges[:most]), (None, edges)):
        assert [tuple(pair) for pair in strongest_edges(gains, weights, number).tolist()] == wanted


@given(**SIZES)
def test_the_first_tokens_are_those_that_the_first_edges_join(seed, length, levels, most) -> None:
    gains, weights = made_up(seed, length, levels)
    edges = sorted_edges(gains, weights)
    ends = [token for edge in edges for token in edge]
    wanted = list(dict.fromkeys([*ends, *range(length)]))[:most]
    found = strongest_tokens(gains, weights, most)
    assert found == sorted(wanted)
    for number, (query, key) in enumerate(edges):
        if 2 * (number + 1) <= most:
            assert {query, key} <= set(found)
