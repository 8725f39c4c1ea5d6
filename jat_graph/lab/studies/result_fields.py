"""Checks of what a file of results says: each field of its one type, or one line that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]


def check_record(content: Any) -> dict[str, Any]:
    """Refuse what is not the fields of a finished cell."""
    if not isinstance(content, dict) or not content.keys() <= _RECORD.keys():
        unknown = sorted(content.keys() - _RECORD.keys()) if isinstance(content, dict) else []
        raise ValueError(f"it must be one finished cell, got {', '.join(unknown) or content!r}")
    for name in ("task", "arm", "seed", "scores"):
        if name not in content:
            raise ValueError(f"it must be one finished cell, but has no {name}")
    for name, value in content.items():
        if not _RECORD[name](value):
            raise ValueError(f"it must be one finished cell, but has {name}={_short(value)}")
    return content


def check_header(content: Mapping[str, Any], where: str) -> None:
    """Refuse what is not the first line of a file of results."""
    for name in sorted({*content, *_HEADER}):
        if name not in content:
            raise ValueError(f"{where} must be the header of results, but has no {name}")
        if name not in _HEADER or not _HEADER[name](content[name]):
            got = f"{name}={_short(content[name])}"
            raise ValueError(f"{where} must be the header of results, but has {got}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, float) or _count(value)


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _table(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _anything(value: Any) -> bool:
    return True


def _answers(value: Any) -> bool:
    """Tell whether these are the answers of one split."""
    if not isinstance(value, dict) or value.keys() != {"said", "right"}:
        return False
    said, right = value["said"], value["right"]
    return isinstance(said, list) and isinstance(right, list) and len(said) == len(right)


_RECORD: Mapping[str, Check] = {
    "task": _text,
    "arm": _text,
    "seed": _count,
    "scores": _table(_table(_optional(_number))),
    "answers": _table(_answers),
    "seconds": _number,
    "steps": _count,
    "device": _text,
    "heads": _optional(_table(_anything)),
    "examples": _table(_count),
    "threshold": _optional(_number),
    "tuning": _optional(_table(_optional(_number))),
    "all_examples": _table(_count),
    "machine": _table(lambda value: _text(value) or _count(value)),
}
_HEADER: Mapping[str, Check] = {
    "grid": _table(_anything),
    "fingerprint": _text,
    "model": _text,
    "data": _optional(_text),
    "versions": _table(_text),
    "machine": _table(lambda value: _text(value) or _count(value)),
}
