"""How many words of each sentence variants label rightly: what it says of them, and a file of it.

This is no script: ``examples.tree_heads`` and ``examples.attention_relations`` share it. The file
holds the counts of every sentence and seed, so that all that is printed can be computed again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from examples.sweeps.measures import Scorer
from examples.sweeps.statistics import Difference, over_seeds, over_seeds_and_examples
from jat_graph.core.files import write_text


@dataclass
class WordScores:
    """Words labelled rightly by each variant, on each seed, in each sentence."""

    base: str  # the variant that all others are compared with, the first to be added
    words: list[int]  # of each sentence
    # How many of them are right: of each variant for each seed one count a sentence.
    right: dict[str, list[list[int]]] = field(default_factory=dict)

    def percent(self, variant: str) -> list[float]:
        """Return the share of all words that are right, one a seed."""
        return [100 * sum(counts) / sum(self.words) for counts in self.right[variant]]

    def over_seeds(self, variant: str) -> Difference:
        """Return what a variant is above the base; its interval is Student's, of new seeds."""
        pairs = zip(self.percent(variant), self.percent(self.base), strict=True)
        return over_seeds({seed: one - other for seed, (one, other) in enumerate(pairs)})

    def over_sentences(self, variant: str) -> Difference:
        """Return the same with the interval of new seeds and new sentences at once."""
        ours, theirs = (
            [
                Scorer(np.array([counts, self.words], float).T, lambda s: 100 * s[:, 0] / s[:, 1])
                for counts in self.right[name]
            ]
            for name in (variant, self.base)
        )
        by_seed = self.over_seeds(variant).by_seed
        return over_seeds_and_examples(by_seed, ours, theirs, "sentences", "seeds")

    def told(self, variant: str) -> str:
        """Return mean and spread of a variant, and what it is above the base, with intervals."""
        scores = self.percent(variant)
        seeds = len(scores)
        spread = f" ± {stdev(scores):.1f}" if seeds > 1 else ""
        plural = "s" if seeds > 1 else ""
        text = f"{variant}: {fmean(scores):.1f}%{spread} right, {seeds} seed{plural}"
        if variant == self.base:
            return text
        change, sentences = self.over_seeds(variant), _ends(self.over_sentences(variant))
        held = f"{sentences} over {'seeds and ' if seeds > 1 else ''}sentences"
        if change.interval is not None:
            held = f"{_ends(change)} over seeds, {sentences} with sentences"
        return f"{text}, {change.mean:+.1f} against {self.base} ({held})"

    def save(self, path: Path, settings: dict[str, Any]) -> None:
        """Write counts, scores, differences and settings as JSON."""
        variants = {
            name: {"scores": self.percent(name), "right": counts}
            for name, counts in self.right.items()
        }
        differences = {
            name: {
                "over_seeds": _content(self.over_seeds(name)),
                "over_seeds_and_sentences": _content(self.over_sentences(name)),
            }
            for name in self.right
            if name != self.base
        }
        content = {"settings": settings, "base": self.base, "words": self.words}
        content |= {"variants": variants, "differences": differences}
        write_text(path, json.dumps(content) + "\n")


def settings_of(args: Any, **more: Any) -> dict[str, Any]:
    """Return the settings of a run, without its folders."""
    own = {n: value for n, value in vars(args).items() if not isinstance(value, Path)}
    return {"script": type(args).__module__, **own, "model": Path(args.model).name, **more}


def _ends(change: Difference) -> str:
    low, high = change.interval or (change.mean, change.mean)
    return f"{low:+.1f} to {high:+.1f}"


def _content(change: Difference) -> dict[str, Any]:
    low, high = change.interval or (None, None)
    values = {"values": list(change.by_seed.values()), "mean": change.mean}
    return {**values, "low": low, "high": high, "p": change.p}
