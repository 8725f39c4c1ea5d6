"""What a file says as a dataclass, or one line that says what is wrong."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from jat_graph.lab.parsing import STRICT, parse


@dataclass(frozen=True)
class Part:
    __pydantic_config__ = STRICT

    size: float = 1.0


@dataclass(frozen=True)
class Whole:
    __pydantic_config__ = STRICT

    name: str
    kind: Literal["a", "b"] = "a"
    parts: tuple[Part, ...] = ()
    either: bool | str = False
    table: Mapping[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name == "nobody":
            raise ValueError("name must be somebody's, got 'nobody'")


def test_content_becomes_a_dataclass() -> None:
    content = {"name": "x", "parts": [{"size": 2}], "table": {"n": None}, "either": "text"}
    assert parse(Whole, content, "here") == Whole("x", "a", (Part(2.0),), "text", {"n": None})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "name must be given, got nothing"),
        ({"name": 3}, "name must be a valid string, got 3"),
        ({"nam": "x"}, "unknown 'nam', wanted one of name, kind, parts, either, table"),
        ({"name": "x", "kind": "c"}, "kind must be 'a' or 'b', got 'c'"),
        ({"name": "x", "parts": [{}, {"big": 1}]}, "unknown 'big' in parts[1], wanted one of size"),
        ({"name": "x", "parts": [{"size": "2"}]}, "parts[0].size must be a valid number, got '2'"),
        (
            {"name": "x", "parts": [{"size": True}]},
            "parts[0].size must be a valid number, got True",
        ),
        ({"name": "x", "parts": [{"size": float("nan")}]}, "must be a finite number, got nan"),
        ({"name": "x", "either": 1}, "either must be a valid boolean or a valid string, got 1"),
        ({"name": "x", "table": {"n": 0.5}}, "table.n must be a valid integer, got 0.5"),
        ({"name": "nobody"}, "name must be somebody's, got 'nobody'"),
        (3, "it must be an object, got 3"),
        ({"name": ["x" * 99]}, f"name must be a valid string, got ['{'x' * 58}…"),
    ],
)
def test_what_is_wrong_is_one_line(content: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(Whole, content, "here")
    message = str(caught.value)
    assert message.startswith("here: ") and "\n" not in message and message.endswith(words)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ImportError, match=r"need pydantic: pip install 'jat_graph\[train\]'"):
        parse(Whole, {"name": "x"}, "here")
