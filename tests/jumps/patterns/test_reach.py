"""How many steps connect all tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jat_graph.patterns import Fixed, Pattern, Strided, parse_pattern, reaches_all
from tests.jumps.patterns.support import all_pairs, patterns


@settings(deadline=None, max_examples=40)
@given(patterns(), st.integers(1, 16), st.integers(1, 4))
def test_it_follows_every_path(pattern: Pattern, length: int, steps: int) -> None:
    rows = all_pairs(pattern, length, pattern.period).any(0).any(0).tolist()
    looks_ahead = any(row[k] for q, row in enumerate(rows) for k in range(q + 1, length))
    complete = True
    for start in range(length):
        seen = {start}
        for _ in range(steps):
            seen |= {k for q in seen for k in range(length) if rows[q][k]}
        complete &= seen >= set(range(length if looks_ahead else start + 1))
    assert reaches_all(pattern, length, steps) == complete


@settings(deadline=None)
@given(st.integers(1, 150), st.integers(2, 6), st.integers(1, 3), st.booleans())
def test_a_step_along_each_factor_connects_everything(
    length: int, factors: int, summary: int, merged: bool
) -> None:
    stride = next(size for size in range(1, length + 1) if size**factors >= length)
    summary, part = min(summary, stride), "merged" if merged else "turns"
    for pattern, most in (
        (Strided(stride, part, factors), stride),
        (Fixed(stride, summary, part, factors), stride * summary),
    ):
        assert reaches_all(pattern, length, factors)
        way = torch.eye(length)
        for rule in pattern.rules:  # the first layer reads near keys, and the last one far ones
            pairs = all_pairs(rule, length)[0, 0]
            assert int(pairs.sum(-1).max()) <= most
            way = (pairs | torch.eye(length, dtype=torch.bool)).float() @ way
        assert torch.equal(way > 0, torch.ones(length, length).tril() > 0)


def test_a_window_needs_as_many_steps_as_it_fits_in() -> None:
    window = parse_pattern("window:5")  # four tokens a step
    assert not reaches_all(window, 42, 10)
    assert reaches_all(window, 41, 10)


@pytest.mark.parametrize(("length", "steps"), [(0, 1), (5, 0), (5, -1)])
def test_numbers_must_be_positive(length: int, steps: int) -> None:
    with pytest.raises(ValueError, match="must be an integer of at least 1"):
        reaches_all(parse_pattern("causal"), length, steps)


def test_a_default_device_changes_nothing() -> None:
    with torch.device("meta"):
        assert reaches_all(parse_pattern("window:5"), 41, 10)
