"""Patterns and their text are the same thing."""

import pytest
import torch
from hypothesis import given, settings

from jat_graph.patterns import (
    Causal,
    Documents,
    GlobalTokens,
    Intersection,
    Pattern,
    Union,
    Window,
    parse_pattern,
)
from tests.jumps.patterns.support import patterns


@settings(deadline=None)
@given(patterns(), patterns())
def test_what_is_written_is_read_again(one: Pattern, other: Pattern) -> None:
    for pattern in (one, one | other, one & other):
        again = parse_pattern(pattern.spec)
        assert again == pattern
        assert hash(again) == hash(pattern)
        assert again.spec == pattern.spec


def test_intersections_bind_tighter() -> None:
    window, first, before = Window(3), GlobalTokens(1), Causal()
    assert parse_pattern("window:3+global:1&causal") == window | (first & before)
    assert parse_pattern("(window:3+global:1)&causal") == (window | first) & before
    assert (window | first) | before == Union(window, first, before)
    assert (window & first) & before == Intersection(window, first, before)


def test_what_is_the_default_is_left_out() -> None:
    assert parse_pattern("local:8:own").spec == "local:8"
    assert parse_pattern("strided:8:turns").spec == "strided:8"
    assert parse_pattern("fixed:8:1:merged").spec == "fixed:8:1:merged"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "pattern must be names joined by"),
        ("window:3+", "pattern must be names joined by"),
        ("+window:3", "pattern must be names joined by"),
        ("(window:3", "pattern must close its brackets"),
        ("window:3)", "pattern must end after 'window:3'"),
        ("window:3 global:1", "pattern must end after 'window:3'"),
        ("windows:3", "pattern must be one of causal, dilated, fixed, global, local, random,"),
        ("documents", "pattern must be one of"),
        ("(window:3|global:1)&causal", r"pattern must join patterns with \+, not '\|', got"),
        ("window:256,global:1", r"pattern must join patterns with \+, not ',', got 'window"),
        ("window", "pattern must be window:WIDTH, got 'window'"),
        ("local:4:own:7", r"pattern must be local:BLOCK\[:NEIGHBOURS\], got 'local:4:own:7'"),
        ("window:0", "width of a window must be an integer of at least 1, got 0"),
        ("window:-2", "width of a window must be an integer of at least 1, got -2"),
        ("window:wide", "width of a window must be an integer of at least 1, got 'wide'"),
        ("window:", "width of a window must be an integer of at least 1, got ''"),
        (3, "pattern must be text such as 'window:256', got 3"),
    ],
)
def test_text_that_is_no_pattern_is_one_line(spec, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}") as error:
        parse_pattern(spec)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["window", "global", "local", "strided", "dilated:2", "random:2"])
def test_numbers_beyond_all_lengths_are_one_line(kind: str) -> None:
    assert parse_pattern(f"{kind}:2147483647")
    with pytest.raises(ValueError, match=r"must be at most 2147483647, got 9223372036854775807$"):
        parse_pattern(f"{kind}:9223372036854775807")


def test_documents_have_no_text() -> None:
    ids = torch.tensor([[0, 0, 1]])
    with pytest.raises(ValueError, match=r"^documents hold a tensor and have no spec"):
        _ = (Documents(ids) & Window(2)).spec
    assert Documents(ids) == Documents(ids.clone())
    assert Documents(ids) != Documents(ids + 1)
    assert hash(Documents(ids)) == hash(Documents(ids.clone()))


def test_members_must_be_patterns() -> None:
    with pytest.raises(ValueError, match=r"^members must be patterns, got str$"):
        Union(Window(2), "global:1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^members must be two patterns or more, got 1$"):
        Intersection(Window(2))
