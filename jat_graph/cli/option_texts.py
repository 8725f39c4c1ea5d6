"""What users write after an option, as the value that the settings take."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def numbers(name: str, text: str, kind: type[int] | type[float]) -> tuple[Any, ...]:
    """Read comma-separated numbers."""
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        word = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"--{name} must be {word} with commas between, got {text!r}") from None


def span(name: str, text: str) -> range:
    """Read ``40:90``, the positions from 40 to 89."""
    first, colon, end = text.partition(":")
    if not colon or not first.isdecimal() or not end.isdecimal() or int(first) >= int(end):
        raise ValueError(f"--{name} must be FIRST:END, as 40:90 for 40 to 89, got {text!r}")
    return range(int(first), int(end))


def _hop_weights(text: str) -> tuple[float, ...]:
    return numbers("hop-weights", text, float)


def _heads(text: str) -> int | str | tuple[int, ...]:
    """Read ``4`` (the first four), ``all``, ``even:2``, or indices: ``0,3`` (``3,`` is one)."""
    if text == "all" or text.startswith("even:"):
        return text
    indices = numbers("heads", text, int)
    return indices[0] if len(indices) == 1 and "," not in text else indices


def _layers(text: str) -> tuple[int, ...] | None:
    return None if text == "all" else numbers("layers", text, int)


def _pattern(text: str) -> str | None:
    return None if text == "none" else text


def _strength(text: str) -> Any:
    """Read ``learned`` or a number, three of them with commas, or three for each hop."""
    from jat_graph.config_fields import LEARNED

    parts = [part.strip() for part in text.split(",")]
    try:
        read = [part if part == LEARNED else float(part) for part in parts]
    except ValueError:
        raise ValueError(
            f"--strength must be {LEARNED} or numbers with commas between, got {text!r}"
        ) from None
    triples = tuple(tuple(read[start : start + 3]) for start in range(0, len(read), 3))
    return read[0] if len(read) == 1 else triples[0] if len(triples) == 1 else triples


def _conv(text: str) -> Any:
    try:
        return json.loads(text) if text.startswith("{") else text
    except json.JSONDecodeError as error:
        raise ValueError(f"--conv must be a name or a JSON object, got {text!r}") from error


def _silent_tokens(text: str) -> tuple[int, ...]:
    return numbers("silent-tokens", text, int)


_READERS: dict[str, Callable[[str], Any]] = {
    "hop_weights": _hop_weights,
    "heads": _heads,
    "layers": _layers,
    "pattern": _pattern,
    "strength": _strength,
    "excluded_token_ids": _silent_tokens,
    "conv": _conv,
}


def read_option(name: str, value: Any) -> Any:
    """Return what the settings take as a field, of the value of its option."""
    return _READERS[name](value) if name in _READERS else value
