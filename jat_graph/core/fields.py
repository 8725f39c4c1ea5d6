"""Settings as frozen dataclasses whose fields are checked once, and the checks of single fields.

Every message names the field, what was wanted and what came.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

from jat_graph.core.numbers import (
    check_choice,
    check_flag,
    check_indices,
    check_inside,
    check_integer,
    check_number,
)

Table: TypeAlias = tuple[tuple[float, ...], ...]  # [jump layer][jump head]
Check: TypeAlias = Callable[[str, Any], Any]


class Settings:
    """A frozen dataclass whose fields come in one form; each has its check in its metadata."""

    def __new__(cls, /, *args: Any, **fields: Any) -> Any:
        """Refuse fields that there are not, which Python would call a TypeError."""
        for name in fields:
            # Compiled code makes settings, too, and cannot ask dataclasses for the fields of one.
            if name not in cls.__dataclass_fields__ or name == "kind":  # type: ignore[attr-defined]
                near = get_close_matches(name, cls.names())
                every = f"wanted one of {', '.join(cls.names())}"
                wanted = f"did you mean {near[0]!r}?" if near else every
                raise ValueError(f"unknown field {name!r} of {cls.__name__}, {wanted}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, entry.name)
            if value is not None or entry.default is not None:
                object.__setattr__(self, entry.name, entry.metadata["check"](entry.name, value))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(entry.name for entry in dataclasses.fields(cls))  # type: ignore[arg-type]


def table_row(name: str, table: Table, row: int, num_heads: int) -> tuple[float, ...]:
    """Return a row of a table ``[jump layer][jump head]``, which must fit."""
    if row >= len(table):
        raise ValueError(f"{name} needs a row for jump layer {row}, got {len(table)} rows")
    if len(table[row]) != num_heads:
        wanted = f"{num_heads} entries, one for each jump head"
        raise ValueError(f"{name} row {row} must have {wanted}, got {len(table[row])}")
    return table[row]


class GraphSettings(Settings):
    """The settings of a graph, some of which may be tables ``[jump layer][jump head]``."""

    def tables(self) -> dict[str, Table]:
        return {name: value for name, value in vars(self).items() if isinstance(value, tuple)}

    def rows(self, num_heads: int) -> dict[str, tuple[float, ...]]:
        """Return the row of each table, which must have one only: that of one layer."""
        for name, table in self.tables().items():
            if len(table) != 1:
                raise ValueError(f"{name} table must have one row for one layer, got {len(table)}")
        return {name: table_row(name, t, 0, num_heads) for name, t in self.tables().items()}

    def for_layer(self, row: int, num_heads: int) -> Any:
        """Return the settings of one layer, by its place among those that have some."""
        tables = self.tables().items()
        rows: Any = {name: (table_row(name, table, row, num_heads),) for name, table in tables}
        return dataclasses.replace(self, **rows)  # type: ignore[type-var]


def check_fields(name: str, value: Any) -> dict[str, Any]:
    """Return fields by name, as an object of JSON holds them."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{name} must be a dict of fields by name, got {value!r}")
    return dict(value)


def checked(default: Any, check: Check) -> Any:
    """Return a field with its check; one whose default is None may be None."""
    return dataclasses.field(default=default, metadata={"check": check})


def flag() -> Any:
    """Return a field that is True or False, and False by default."""
    return checked(False, check_flag)


def one_of(default: str, *others: str) -> Any:
    """Return a field that is one of some words."""
    return checked(default, lambda name, value: check_choice(name, value, (default, *others)))


def integer(default: int | None, least: int) -> Any:
    """Return a field that is an integer of at least ``least``."""
    return checked(default, lambda name, value: check_integer(name, value, least=least))


def inside(default: float | None, high: float = math.inf) -> Any:
    """Return a field that is a number between 0 and a bound, neither of them included."""
    return checked(default, lambda name, value: check_inside(name, value, 0.0, high))


def check_threshold(name: str, value: Any) -> float | Table:
    """Return ρ, or a table ``[jump layer][jump head]`` of it; JSON writes infinity as "inf"."""

    def check(name: str, value: Any) -> float:
        return check_number(name, math.inf if value == "inf" else value, least=0.0)

    return check_table(name, value, check)


def check_table(name: str, value: Any, check: Check) -> float | Table:
    """Return a number, or a table ``[jump layer][jump head]`` of them, each of them checked."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return check(name, value)  # type: ignore[no-any-return]
    rows = [row for row in value if row and isinstance(row, Sequence) and not isinstance(row, str)]
    if not rows or len(rows) != len(value):
        wanted = "a number or a table [jump layer][jump head]"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return tuple(tuple(check(name, entry) for entry in row) for row in value)


def check_tokens(name: str, value: Any) -> tuple[int, ...]:
    """Return token ids, which may be none."""
    return () if value in ((), []) else check_indices(name, value)


def check_layers(layers: tuple[int, ...] | None, num_layers: int) -> tuple[int, ...]:
    """Return layers, None meaning all, that a model of so many must have."""
    if layers and layers[-1] >= num_layers:
        got = f"the model has {num_layers} layers (0 to {num_layers - 1})"
        raise ValueError(f"layers={layers!r} needs layer {layers[-1]}, but {got}")
    return tuple(range(num_layers)) if layers is None else layers


def to_plain(value: Any) -> Any:
    """Return a value in JSON's types: tuples become lists, infinities the string "inf"."""
    if isinstance(value, dict):
        return {key: to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    return "inf" if value == math.inf else value
