"""Checks of numbers, choices and indices: the value in its one form, or ValueError.

Every message names the argument, what was wanted and what came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def check_number(name: str, value: Any, *, least: float = -math.inf) -> float:
    """Return a number of at least ``least``; infinity is one, NaN is not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"{name} must be a number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least:g}, got {value}")
    return float(value)


def check_inside(name: str, value: Any, low: float, high: float) -> float:
    """Return a number between two bounds, neither of them included."""
    number = check_number(name, value)
    if number <= low:
        raise ValueError(f"{name} must be above {low:g}, got {value}")
    if number >= high:
        wanted = "finite" if high == math.inf else f"below {high:g}"
        raise ValueError(f"{name} must be {wanted}, got {value}")
    return number


def check_finite(name: str, value: Any, *, least: float) -> float:
    """Return a finite number of at least ``least``."""
    number = check_number(name, value, least=least)
    if math.isinf(number):
        raise ValueError(f"{name} must be finite, got {value}")
    return number


def check_integer(name: str, value: Any, *, least: int, below: int = 2**63) -> int:
    """Return an integer of at least ``least`` and below ``below``."""
    if not is_integer(value):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if value >= below:
        raise ValueError(f"{name} must be below {below}, got {value}")
    return int(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    return str(value)


def check_flag(name: str, value: Any) -> bool:
    """Return a bool."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


def check_indices(name: str, value: Any) -> tuple[int, ...]:
    """Return one or more different indices from 0, in rising order."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{name} must be a sequence of indices, got {value!r}")
    if not value or any(not is_integer(index) or index < 0 for index in value):
        raise ValueError(f"{name} must be one or more indices from 0, got {value!r}")
    if len(set(value)) != len(value):
        raise ValueError(f"{name} must not name an index twice, got {value!r}")
    return tuple(sorted(value))


def is_integer(value: Any) -> bool:
    """Return whether a value is an int, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


PICTURE_TOKENS = 200  # more make a picture of a head too large for its file
PATTERN_TOKENS = 4096  # more of a pattern cannot be seen
