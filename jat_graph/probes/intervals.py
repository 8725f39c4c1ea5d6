"""How sure a share is: the bootstrap over sentences, which are what a treebank draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]

CONFIDENCE = 0.95
DRAWS = 2000
ENOUGH = 0.9  # of the drawings: a statistic that is undefined on more says nothing


def resampled_ratio(
    hits: ArrayLike,  # [S, …], of each sentence
    totals: ArrayLike,  # the same
    seed: int = 0,
) -> tuple[Floats, Floats, Floats]:  # […] each
    """Return Σ hits / Σ totals over sentences, and the ends of its 95 % interval.

    NaN where there is nothing in total.
    """
    return resampled(np.stack([hits, totals], -1), lambda sums: sums[..., 0] / sums[..., 1], seed)


def resampled(
    rows: ArrayLike,  # [S, …], of each sentence
    statistic: Callable[[Floats], Floats],  # of sums over sentences: [n, …] -> [n, …]
    seed: int = 0,
) -> tuple[Floats, Floats, Floats]:  # […] each
    """Return a statistic of Σ rows over sentences, and the ends of its 95 % interval.

    Sentences are drawn with replacement, all of a sentence together: its words are not independent.
    The ends are NaN where the statistic is undefined on more than a tenth of the drawings.

    Reference:
        Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 13.
    """
    values = np.asarray(rows, np.float64)
    counts = _draws(len(values), seed)
    tail = (1 - CONFIDENCE) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        found = statistic(values.sum(0)[None])[0]
        drawn = statistic(np.tensordot(counts, values, 1))
    enough = np.mean(~np.isnan(drawn), axis=0) >= ENOUGH
    drawn = np.where(enough, drawn, 0.0)
    low, high = np.where(enough, np.nanquantile(drawn, [tail, 1 - tail], axis=0), np.nan)
    return found, low, high


@lru_cache(maxsize=1)  # tables ask for the same ones again and again
def _draws(number: int, seed: int) -> Floats:  # [DRAWS, S]
    """How often each sentence is drawn."""
    chance = np.random.default_rng(seed)
    return chance.multinomial(number, np.full(number, 1 / number), DRAWS).astype(np.float64)
