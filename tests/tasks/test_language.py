import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jat_graph.tasks import LanguageModelTask


@dataclass(frozen=True, kw_only=True)
class Verse(LanguageModelTask):
    def load(self, data_dir: Path | None, splits: Sequence[str] | None = None) -> dict[str, Any]:
        raise NotImplementedError


# Probabilities 1/2, 1/4, 1/8, 1: the mean of their logarithms to base 2 is -6/4.
LOSSES = np.array([1, 2, 3, 0]) * math.log(2)


def test_a_language_model_is_scored_by_its_losses() -> None:
    verse = Verse(
        name="verse", splits=("train", "validation"), other_metrics=("bits_per_character",)
    )
    assert not verse.greater_is_better
    scores = verse.compute_metrics(LOSSES)
    assert list(scores) == ["perplexity", "bits_per_character"]
    assert scores == pytest.approx({"perplexity": 2**1.5, "bits_per_character": 1.5})
    scores = verse.compute_metrics(LOSSES, units=12)  # tokens of three characters
    assert scores == pytest.approx({"perplexity": 2**1.5, "bits_per_character": 0.5})


def test_a_model_of_ready_made_tokens_is_scored_by_bits_for_each() -> None:
    tune = Verse(
        name="tune",
        splits=("train", "validation"),
        primary_metric="bits_per_token",
        other_metrics=("perplexity",),
        vocabulary_size=8,
    )
    assert tune.compute_metrics(LOSSES) == pytest.approx(
        {"bits_per_token": 1.5, "perplexity": 2**1.5}
    )
