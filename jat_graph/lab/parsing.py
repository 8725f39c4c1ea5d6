"""What a file of settings or results says, as a dataclass; pydantic checks it, strictly.

A dataclass whose fields are checked has ``__pydantic_config__ = STRICT``: no text becomes a number,
no key is unknown, and no number is NaN.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, TypedDict, TypeVar, cast, get_args, get_type_hints

T = TypeVar("T")


class _Strict(TypedDict):
    strict: bool
    extra: Literal["forbid"]
    allow_inf_nan: bool


STRICT: _Strict = {"strict": True, "extra": "forbid", "allow_inf_nan": False}

# What pydantic adds to the place of an error: the type that was tried, where there are several.
_TRIED = re.compile(r"bool|str|int|float|(dict|list)\[.*")
_UNKNOWN = "unexpected_keyword_argument"  # what it calls a key that is no field
_LONGEST = 60


def parse(kind: type[T], content: Any, where: str) -> T:
    """Content of JSON or TOML as a dataclass, or one line that names the place in ``where``."""
    try:
        from pydantic import ValidationError
    except ImportError as error:
        raise ImportError("grids need pydantic: pip install 'jat_graph[train]'") from error
    try:  # as text: of Python's values a strict tuple takes no list
        adapter = _adapter(cast("Any", kind))
        found: T = adapter.validate_json(json.dumps(content, default=str))
        return found
    except ValidationError as error:
        raise ValueError(f"{where}: {_explain(error.errors(include_url=False), kind)}") from None


def check_keys(content: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse a key that means nothing."""
    wanted = tuple(known)
    for key in content:
        if key not in wanted:
            raise ValueError(f"{where}: unknown {key!r}, wanted one of {', '.join(wanted)}")


def check_table(content: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """A table of some content, an empty one if there is none; refuse what is none."""
    value = content.get(key, {})
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: {key} must be a table, got {value!r}")
    return value


def check_finite(content: Any, where: str, key: str = "") -> None:
    """Refuse a number that a file of results cannot hold, in fields of any form."""
    if isinstance(content, Mapping):
        for name, entry in content.items():
            check_finite(entry, where, f"{key}.{name}" if key else name)
    elif isinstance(content, list | tuple):
        for entry in content:
            check_finite(entry, where, key)
    elif isinstance(content, float) and not math.isfinite(content):
        raise ValueError(f"{where}: {key} must be finite, got {content}")


@lru_cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _explain(errors: list[Any], kind: type) -> str:
    """The first of pydantic's errors in one line: what, what was wanted, what came."""
    first = next((one for one in errors if one["type"] == _UNKNOWN), errors[0])
    place = first["loc"]
    if first["type"] == _UNKNOWN:
        wanted = f"wanted one of {', '.join(_field_names(kind, place[:-1]))}"
        inside = f" in {_dotted(place[:-1])}" if place[:-1] else ""
        return f"unknown {place[-1]!r}{inside}, {wanted}"
    if first["type"] == "missing":
        return f"{_dotted(place)} must be given, got nothing"
    if first["type"] == "value_error":  # of the dataclass, which says what came
        return str(first["ctx"]["error"])
    tried = [first]
    if place and _TRIED.fullmatch(str(place[-1])):
        tried = [one for one in errors if one["loc"][:-1] == place[:-1]]
        place = place[:-1]
    wanted = " or ".join(re.sub(r"^\w+ should ", "", one["msg"]) for one in tried)
    got = repr(first["input"])
    got = got if len(got) <= _LONGEST else f"{got[:_LONGEST]}…"
    return f"{_dotted(place) or 'it'} must {wanted.replace(' or be ', ' or ')}, got {got}"


def _dotted(place: tuple[str | int, ...]) -> str:
    """A place as it is written: ``arms[0].name``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def _field_names(kind: Any, place: tuple[str | int, ...]) -> list[str]:
    """The fields of the dataclass at a place of another one."""
    for part in place:
        if isinstance(part, str):
            hint = get_type_hints(kind)[part]
            kind = next(one for one in (hint, *get_args(hint)) if is_dataclass(one))
    return [entry.name for entry in fields(kind)]
