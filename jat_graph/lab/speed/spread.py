"""Repeated measurements as a median with quartiles, and how fast numbers grow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Spread:
    """A number that was measured several times.

    Args:
        median: The middle one.
        low: The lower quartile.
        high: The upper quartile.
        samples: How often it was measured.
    """

    median: float
    low: float
    high: float
    samples: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return median and quartiles of some values.

        Args:
            values: At least one finite number.

        Returns:
            The spread.

        Raises:
            ValueError: If there is none, or one is not finite.
        """
        if not values or not all(map(math.isfinite, values)):
            raise ValueError(f"values must be finite numbers, at least one, got {list(values)}")
        low, median, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        return cls(median, low, high, len(values))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any] | None) -> Spread | None:
        """Return the spread that ``dataclasses.asdict`` described.

        Args:
            content: The fields by name, or None.

        Returns:
            The spread, or None.

        Raises:
            TypeError: If the fields are not a spread's.
        """
        return None if content is None else cls(**content)


def slope(lengths: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the exponent with which values grow over lengths: the log-log slope.

    Reference:
        ``numpy.polyfit`` on logarithms.
    """
    if len(set(lengths)) < 2 or min(values) <= 0:
        return None
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])
