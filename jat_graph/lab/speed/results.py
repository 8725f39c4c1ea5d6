"""Measured points as a file: written after each one, read back to go on or to report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jat_graph.files import read_object, write_text
from jat_graph.lab.speed.series import Fact, Outcome
from jat_graph.lab.speed.spread import slope
from jat_graph.lab.store import pop_version

RESULTS_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One measured point.

    Args:
        what: Our side.
        against: The other side.
        length: Tokens L.
        outcome: What came of it.
        seconds: How long all of it took, checks and warm-up included.
        memory: Bytes that its process took at the peak, above what was there before; None if they
            are not known. (default: None)
    """

    what: str
    against: str
    length: int
    outcome: Outcome
    seconds: float
    memory: int | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells the row apart."""
        return self.what, self.against, self.length

    @property
    def is_bytes(self) -> bool:
        """Tell whether both sides are bytes, in a benchmark of times; the name says so."""
        return self.what.endswith(", bytes")

    def number(self, name: str) -> float | None:
        """Return a number of the row.

        Args:
            name: ``"ours"``, ``"theirs"`` or ``"ratio"`` for the median, or the name of a fact.

        Returns:
            The number; None if the row has none of that name.
        """
        if name in ("ours", "theirs", "ratio"):
            spread = getattr(self.outcome, name)
            return None if spread is None else float(spread.median)
        fact = self.outcome.facts.get(name)
        return None if fact is None or isinstance(fact, str) else float(fact)


@dataclass(frozen=True)
class Results:
    """All measured points of one benchmark on one machine.

    Args:
        benchmark: Its name.
        settings: How it ran.
        machine: What it ran on.
        source: Digest of the library's source.
        rows: The points.
    """

    benchmark: str
    settings: Mapping[str, Fact]
    machine: Mapping[str, str | int]
    source: str
    rows: tuple[Row, ...] = ()

    def row(self, what: str, against: str, length: int) -> Row | None:
        """Return the row of a point.

        Args:
            what: Our side.
            against: The other side.
            length: Tokens L.

        Returns:
            The row, or None if the point was not measured.
        """
        return next((row for row in self.rows if row.key == (what, against, length)), None)

    def slopes(self, name: str, shortest: int = 0) -> Iterator[tuple[str, str, float]]:
        """Yield the log-log slope over the lengths of each comparison.

        Args:
            name: The number, as in :meth:`Row.number`.
            shortest: The shortest input that counts. (default: 0)

        Yields:
            Our side, the other side and the slope, for comparisons with two lengths or more.
        """
        for what, against in dict.fromkeys(row.key[:2] for row in self.rows):
            points = [
                (float(row.length), value)
                for row in self.rows
                if row.key[:2] == (what, against)
                and row.length >= shortest
                and (value := row.number(name)) is not None
            ]
            found = slope(*zip(*points, strict=True)) if points else None
            if found is not None:
                yield what, against, found

    def save(self, path: str | Path) -> None:
        """Write the results as JSON; the file appears whole or not at all.

        Args:
            path: The file.

        Raises:
            OSError: If it cannot be written.
        """
        content = {"version": RESULTS_VERSION, **asdict(self)}
        write_text(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_results(path: str | Path) -> Results:
    """Read what ``jat-graph bench`` wrote.

    Args:
        path: The file.

    Returns:
        The results.

    Raises:
        ValueError: If the file does not hold results of this version.
        OSError: If it cannot be read.
    """
    content = read_object(path, "results")
    pop_version(content, RESULTS_VERSION, f"results {path}", "bench")
    try:
        rows = tuple(_read_row(row) for row in content.pop("rows"))
        return Results(**content, rows=rows)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"results {path} must be those of jat-graph bench: {error!r}") from None


def _read_row(content: dict[str, Any]) -> Row:
    return Row(**(content | {"outcome": Outcome.from_dict(content["outcome"])}))
