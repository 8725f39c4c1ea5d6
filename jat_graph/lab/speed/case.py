"""One point of a benchmark of kernels: its heads, its rule, and what its graphs have to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.lab.speed.checks import count_rows
from jat_graph.lab.speed.inputs import (
    NUM_HEADS,
    THRESHOLD,
    Heads,
    Work,
    draw_heads,
    measure_work,
    number_of_keys,
)
from jat_graph.lab.speed.series import Fact, Outcome, Settings
from jat_graph.lab.speed.timing import Step, Timing
from jat_graph.voting.rule import VoteRule

SDPA = "SDPA of the same heads"


@dataclass(frozen=True)
class Case:
    """The heads of one point.

    Args:
        name: Names the point in messages.
        heads: The heads, in the dtype of the settings.
        work: What their graphs have to do, enough of it.
        settings: How the benchmark runs.
    """

    name: str
    heads: Heads
    work: Work
    settings: Settings

    @property
    def rule(self) -> VoteRule:
        """The paper's vote."""
        return VoteRule(torch.full((1, 1), THRESHOLD, device=self.settings.torch_device))

    def few_scores(self) -> Tensor:
        """The scores with U = ⌈5 ln L⌉ keys, ``[1, H, L, U]``."""
        return self.heads.key_scores(number_of_keys(self.heads.length))

    def counts(self, scores: Tensor) -> Tensor:
        """The votes for every pair by the definition, ``[1, H, L, L]``."""
        return count_rows(self.rule, scores, torch.arange(scores.size(2), device=scores.device))

    def attend(self) -> Tensor:
        """The heads' exact attention, ``[1, H, L, D]``."""
        heads = self.heads
        return F.scaled_dot_product_attention(heads.query, heads.key, heads.value)

    def time(self, ours: Sequence[Step], theirs: Callable[[], object]) -> Timing:
        """Print what the graphs have to do, then time two sides whose results were checked."""
        self.work.announce(self.name)
        return self.settings.time(ours, [theirs])

    def outcome(self, timing: Timing, facts: dict[str, Fact] | None = None) -> Outcome:
        """What came of the point, with what its graphs had to do."""
        return Outcome.of(timing, {**self.work.facts, **(facts or {})})


def open_case(what: str, length: int, settings: Settings) -> Case:
    """Make the heads of a point, and refuse them if their graphs have too little to do."""
    heads = draw_heads(length, NUM_HEADS, device=settings.torch_device, dtype=settings.dtype)
    name = f"{what}, L={length}"
    work = measure_work(heads.key_scores(number_of_keys(length)), THRESHOLD)
    work.require(name)
    return Case(name, heads, work, settings)
