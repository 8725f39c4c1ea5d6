"""Checks of a grid's fields: the value in its one form, or one line that says where and what."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from jat_graph.training.options import TrainingOptions

# What the command says, the grid's seeds and tuning say, or one process does not do.
NOT_A_GRIDS = (
    *("model", "task", "output_dir", "data_dir", "seed", "resume", "device", "held_out"),
    "fully_sharded",
)


def check_keys(content: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse a key that means nothing."""
    for key in content:
        if key not in (wanted := tuple(known)):
            raise ValueError(f"{where}: unknown {key!r}, wanted one of {', '.join(wanted)}")


def text(content: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    """Return a text; an empty one only where it may be left out."""
    value = content.get(key, default)
    if not isinstance(value, str) or (not value.strip() and default != ""):
        raise ValueError(f"{where}: {key} must be a text, got {_shown(content, key)}")
    return value


def texts(
    content: Mapping[str, Any], key: str, where: str, default: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return one or more texts."""
    value = content.get(key, default)
    if value is None or isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{where}: {key} must be a list of texts, got {_shown(content, key)}")
    if (not value and default is None) or any(not isinstance(v, str) or not v for v in value):
        raise ValueError(f"{where}: {key} must be one or more texts, got {value!r}")
    return tuple(value)


def table(content: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """Return a table; an empty one if there is none."""
    value = content.get(key, {})
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: {key} must be a table, got {value!r}")
    return value


def flag(content: Mapping[str, Any], key: str, where: str) -> bool | None:
    """Return true or false; None if it is not said."""
    value = content.get(key)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{where}: {key} must be true or false, got {value!r}")
    return value


def count(content: Mapping[str, Any], key: str, where: str, default: int, below: int) -> int:
    """Return a positive integer."""
    value = content.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < below:
        wanted = f"a whole number from 1 to {below - 1}"
        raise ValueError(f"{where}: {key} must be {wanted}, got {value!r}")
    return value


def number(content: Mapping[str, Any], key: str, where: str) -> float | None:
    """Return a finite number; None if there is none."""
    return None if key not in content else _number(content[key], key, where)


def numbers(content: Mapping[str, Any], key: str, where: str) -> tuple[float, ...]:
    """Return one or more finite numbers."""
    value = content.get(key)
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(f"{where}: {key} must be one or more numbers, got {_shown(content, key)}")
    return tuple(_number(entry, key, where) for entry in value)


def check_names(what: str, names: Sequence[str], where: str) -> None:
    """Refuse names that are there twice, or would share a folder."""
    folders: dict[str, str] = {}
    for name in names:
        folder = folder_name(name)
        if not folder:
            raise ValueError(f"{where}: {what} must have a letter or digit each, got {name!r}")
        if folder in folders:
            other = folders[folder]
            raise ValueError(f"{where}: {what} must differ in letters, got {other!r} and {name!r}")
        folders[folder] = name


def check_finite(content: Any, where: str, key: str = "") -> None:
    """Refuse a number that a file of results cannot hold."""
    if isinstance(content, Mapping):
        for name, entry in content.items():
            check_finite(entry, where, f"{key}.{name}" if key else name)
    elif isinstance(content, list | tuple):
        for entry in content:
            check_finite(entry, where, key)
    elif isinstance(content, float) and not math.isfinite(content):
        raise ValueError(f"{where}: {key} must be finite, got {content}")


def check_options(options: Mapping[str, Any], where: str) -> None:
    """Refuse what is not an option of a grid's runs, or has a value that cannot be."""
    known = [entry.name for entry in fields(TrainingOptions) if entry.name not in NOT_A_GRIDS]
    check_keys(options, known, where)
    plain = {k: v for k, v in options.items() if not (k == "depth" and isinstance(v, str))}
    try:
        TrainingOptions(model="model", task="task", output_dir="output", **plain)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def folder_name(name: str) -> str:
    """Return the folder of an arm or a task."""
    plain = name.lower().replace("†", "-dagger").replace("³", "3").replace("²", "2")
    return re.sub(r"[^\w.+]+", "-", plain).strip("-.")


def _number(value: Any, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{where}: {key} must be a finite number, got {value!r}")
    return float(value)


def _shown(content: Mapping[str, Any], key: str) -> str:
    return repr(content[key]) if key in content else "nothing"
