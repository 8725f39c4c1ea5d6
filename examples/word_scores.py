"""How many words of each sentence arms label rightly: what it says of them, and a file of it.

This is no script: ``examples.tree_heads`` and ``examples.attention_relations`` share it. The file
holds the counts of every sentence and seed, so that all that is printed can be computed again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import ttest_rel

from jat_graph.files import write_text
from jat_graph.lab.machine import describe_machine
from jat_graph.lab.measures import Floats, Sums
from jat_graph.lab.statistics import Difference, over_seeds_and_examples
from jat_graph.training import paired_difference, summarize


@dataclass
class WordScores:
    """Words labelled rightly by each arm, on each seed, in each sentence.

    Args:
        base: Name of the arm that all others are compared with; it is the first to be added.
        words: Number of words of each sentence.
        right: How many of them are right: of each arm for each seed one count a sentence.
    """

    base: str
    words: list[int]
    right: dict[str, list[list[int]]] = field(default_factory=dict)

    def add(self, arm: str, counts: list[int]) -> None:
        """Add what the next seed of an arm has right."""
        self.right.setdefault(arm, []).append(counts)

    def percent(self, arm: str) -> list[float]:
        """Return the share of all words that are right, one a seed."""
        return [100 * sum(counts) / sum(self.words) for counts in self.right[arm]]

    def over_seeds(self, arm: str) -> Difference:
        """Return what an arm is above the base; its interval is Student's, of new seeds."""
        return paired_difference(self.percent(arm), self.percent(self.base))

    def over_sentences(self, arm: str) -> Difference:
        """Return the same with the interval of new seeds and new sentences at once."""
        by_seed = self.over_seeds(arm).by_seed
        scorers = self._scorers(arm), self._scorers(self.base)
        return over_seeds_and_examples(by_seed, *scorers, "sentences", "seeds")

    def p_value(self, arm: str) -> float | None:
        """Return p of the paired t test over seeds, not corrected; None where it has none."""
        if self.over_seeds(arm).interval is None:
            return None
        return float(ttest_rel(self.percent(arm), self.percent(self.base)).pvalue)

    def told(self, arm: str) -> str:
        """Return mean and spread of an arm, and what it is above the base, with intervals."""
        scores = summarize(self.percent(arm))
        seeds = len(scores.values)
        spread = "" if scores.std is None else f" ± {scores.std:.1f}"
        text = f"{arm}: {scores.mean:.1f}%{spread} right, {seeds} seed{'s' if seeds > 1 else ''}"
        if arm == self.base:
            return text
        change, sentences = self.over_seeds(arm), ends_of(self.over_sentences(arm))
        if seeds == 1:
            held = f"{sentences} over sentences"
        elif change.interval is None:
            held = f"{sentences} over seeds and sentences"
        else:
            held = f"{ends_of(change)} over seeds, {sentences} with sentences"
        return f"{text}, {change.mean:+.1f} against {self.base} ({held})"

    def save(self, path: Path, settings: dict[str, Any]) -> None:
        """Write counts, scores, differences and settings as JSON."""
        content = {
            "settings": settings,
            "machine": describe_machine(torch.device("cpu")),
            "base": self.base,
            "seeds": list(range(len(self.right[self.base]))),
            "words": self.words,
            "arms": {
                arm: {"scores": self.percent(arm), "right": counts}
                for arm, counts in self.right.items()
            },
            "differences": {
                arm: {
                    "over_seeds": self.over_seeds(arm).to_dict() | {"p": self.p_value(arm)},
                    "over_seeds_and_sentences": self.over_sentences(arm).to_dict(),
                }
                for arm in self.right
                if arm != self.base
            },
        }
        write_text(path, json.dumps(content) + "\n")

    def _scorers(self, arm: str) -> list[Sums]:
        """Return what scores resampled sentences, one a seed."""
        return [
            Sums(np.array([counts, self.words], float).T, _percent) for counts in self.right[arm]
        ]


def _percent(sums: Floats) -> Floats:  # [R, 2] -> [R]
    share: Floats = 100 * sums[:, 0] / sums[:, 1]
    return share


def ends_of(change: Difference) -> str:
    """Return the ends of an interval."""
    return f"{change.low:+.1f} to {change.high:+.1f}"
