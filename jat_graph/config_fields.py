"""Checks of the config's fields, one kind of value each: the value in its one form, or ValueError.

Every message names the field, what was wanted and what came.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

HopWeights: TypeAlias = tuple[float, ...]


def check_number(
    name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf
) -> float:
    """Return a number above ``above`` and at least ``least``; infinity is one, NaN is not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least:g}, got {value}")
    if value <= above:
        raise ValueError(f"{name} must be above {above:g}, got {value}")
    return float(value)


def check_finite(name: str, value: Any, *, above: float = -math.inf) -> float:
    """Return a finite number above ``above``."""
    number = check_number(name, value, above=above)
    if math.isinf(number):
        raise ValueError(f"{name} must be finite, got {value}")
    return number


def check_integer(name: str, value: Any, *, least: int) -> int:
    """Return an integer of at least ``least``."""
    if not is_integer(value):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
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


def check_heads(value: Any) -> int | str | tuple[int, ...]:
    """Return a number of heads, ``"even:n"``, or indices."""
    if is_integer(value):
        return check_integer("heads", value, least=1)
    if isinstance(value, str):
        number = value.removeprefix("even:")
        if number == value or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"heads must be a number, 'even:n' or indices, got {value!r}")
        return value
    return check_indices("heads", value)


def check_threshold(value: Any) -> float | tuple[tuple[float, ...], ...]:
    """Return ρ, or a table ``[jump layer][jump head]`` of it; JSON writes infinity as "inf"."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return check_number("threshold", math.inf if value == "inf" else value, least=0.0)
    if not value or any(isinstance(row, str) or not isinstance(row, Sequence) for row in value):
        raise ValueError(
            f"threshold must be a number or a table [jump layer][jump head], got {value!r}"
        )
    return tuple(
        tuple(
            check_number("threshold", math.inf if entry == "inf" else entry, least=0.0)
            for entry in row
        )
        for row in value
    )


def check_hops(value: Any) -> HopWeights | dict[tuple[int, ...], HopWeights]:
    """Return hop weights, or a mapping from heads to them; JSON writes a mapping as pairs."""
    if isinstance(value, list) and value and all(isinstance(pair, list) for pair in value):
        if any(len(pair) != 2 or not isinstance(pair[0], list) for pair in value):
            raise ValueError(
                f"hop_weights must be numbers or pairs [heads, weights], got {value!r}"
            )
        value = {tuple(heads): weights for heads, weights in value}
    if not isinstance(value, Mapping):
        return _check_hop_tuple(value)
    if not value:
        raise ValueError("hop_weights must name at least one group of heads, got {}")
    groups = {}
    for heads, weights in value.items():
        heads = (heads,) if is_integer(heads) else heads
        groups[check_indices("hop_weights heads", heads)] = _check_hop_tuple(weights)
    named = [head for heads in groups for head in heads]
    if len(set(named)) != len(named):
        raise ValueError(f"hop_weights must name each head once, got {sorted(named)}")
    return groups


def is_integer(value: Any) -> bool:
    """Return whether a value is an int, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def to_plain(value: Any) -> Any:
    """Return a value in JSON's types: tuples become lists, infinities the string "inf"."""
    if isinstance(value, dict):
        return {key: to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    return "inf" if value == math.inf else value


def _check_hop_tuple(value: Any) -> HopWeights:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ValueError(f"hop_weights must be one or more numbers, got {value!r}")
    weights = tuple(check_finite("hop_weights", weight) for weight in value)
    if not any(weights):
        raise ValueError(f"hop_weights must not be all zero, got {value!r}")
    return weights
