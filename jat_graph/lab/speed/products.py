"""The threshold product, against attention and against products with explicit edges."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from jat_graph.kernels import Ranking, rank_tokens, sum_joined
from jat_graph.lab.speed.case import SDPA, open_case
from jat_graph.lab.speed.checks import (
    count_rows,
    require_close,
    require_product,
    sampled_tokens,
)
from jat_graph.lab.speed.counting import count_by_definition
from jat_graph.lab.speed.formulas import sum_by_csr, sum_by_scatter, sum_by_torch_sparse
from jat_graph.lab.speed.series import Fact, Outcome, Series, Settings
from jat_graph.lab.speed.timing import Step, Timing
from jat_graph.voting.rule import VoteRule

PRODUCT = "threshold product"

Multiply = Callable[[Tensor, Tensor], Callable[[], Tensor]]


def product_series() -> tuple[Series, ...]:
    """Return the comparisons."""
    explicit: dict[str, Multiply] = {
        "torch CSR, matrix ready": sum_by_csr,
        "torch_sparse, matrix ready": sum_by_torch_sparse,
        "PyG scatter, edges ready": sum_by_scatter,
    }
    return (
        Series(PRODUCT, SDPA, (2048, 8192, 32768), 131072, _against_sdpa),
        *(
            Series(PRODUCT, name, (2048,), 4096, partial(_against_edges, multiply=multiply))
            for name, multiply in explicit.items()
        ),
    )


class ThresholdProduct:
    """The product in its two steps, from ready scores.

    Args:
        rule: When a product of scores is a vote.
        scores: Key scores ``[B, H, L, U]``.
        features: ``[B, H, L, D]``, float32.
    """

    def __init__(self, rule: VoteRule, scores: Tensor, features: Tensor) -> None:
        self.rule, self.scores, self.features = rule, scores, features
        self._ranking: Ranking | None = None

    def rank(self) -> Ranking:
        """Rank the tokens for every key, and remember the ranking."""
        self._ranking = None  # so that its memory can be used again
        self._ranking = rank_tokens(*self.rule.settle(self.scores))
        return self._ranking

    def multiply(self) -> Tensor:
        """Return the sums over joined tokens, by the last ranking."""
        return sum_joined(self.features, self._ranking or self.rank())

    def check(self, what: str) -> None:
        """Refuse to go on unless the sums are right for some sampled tokens."""
        rows = sampled_tokens(self.features.size(2), self.features.device)
        counts = count_rows(self.rule, self.scores, rows)
        require_product(what, self.multiply(), rows, counts, self.features)

    @property
    def steps(self) -> tuple[Step, Step]:
        """Both steps, in order."""
        return self.rank, self.multiply


def step_facts(timing: Timing) -> dict[str, Fact]:
    """Return the seconds of the two steps of a product."""
    rank, product = timing.steps
    return {"rank_seconds": rank.median, "product_seconds": product.median}


def _against_sdpa(length: int, settings: Settings) -> Outcome:
    case = open_case(PRODUCT, length, settings)
    product = ThresholdProduct(case.rule, case.few_scores(), case.heads.value.float())
    product.check(case.name)
    timing = case.time(product.steps, case.attend)
    return case.outcome(timing, step_facts(timing))


def _against_edges(length: int, settings: Settings, multiply: Multiply) -> Outcome:
    case = open_case(PRODUCT, length, settings)
    product = ThresholdProduct(case.rule, case.few_scores(), case.heads.value.float())
    counts = count_by_definition(case.rule, product.scores)
    try:
        explicit = multiply(counts, product.features)
    except ImportError as error:
        return Outcome(note=f"not measured: {error}")
    truth = counts.double() @ product.features.double()
    require_close(case.name, product.multiply(), explicit(), truth)
    edges = int(counts.count_nonzero())
    del counts, truth
    timing = case.time(product.steps, explicit)
    return case.outcome(timing, {**step_facts(timing), "edges": edges})
