"""How often a probe was right, counted by sentence and seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from jat_graph.probes.intervals import resampled_ratio


class Tally:
    """Counts by seed and sentence."""

    def __init__(self, seeds: int, sentences: int) -> None:
        self.hits = np.zeros((seeds, sentences))
        self.totals = np.zeros((seeds, sentences))

    def add(self, seed: int, rows: Any, hits: Any) -> None:
        """Count answers to pairs of some sentences."""
        size = self.hits.shape[1]
        self.hits[seed] += np.bincount(rows, hits, minlength=size)
        self.totals[seed] += np.bincount(rows, minlength=size)

    def row(self) -> dict[str, Any]:
        """The share of all seeds with its interval, and that of the worst and the best seed."""
        share, low, high = resampled_ratio(self.hits.sum(0), self.totals.sum(0))
        with np.errstate(invalid="ignore"):
            seeds = self.hits.sum(1) / self.totals.sum(1)
        return {
            "pairs": int(self.totals.sum()),
            "accuracy": float(share),
            "low": float(low),
            "high": float(high),
            "least": float(seeds.min()),
            "most": float(seeds.max()),
        }
