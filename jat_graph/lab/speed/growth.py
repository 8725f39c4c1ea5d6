"""``growth``: how the time of the threshold product grows with the length."""

from __future__ import annotations

from jat_graph.lab.speed.case import open_case
from jat_graph.lab.speed.products import PRODUCT, ThresholdProduct, step_facts
from jat_graph.lab.speed.series import Benchmark, Outcome, Series, Settings

FIXED_KEYS = 50
AGAINST = f"the same with U = {FIXED_KEYS}"
LENGTHS = (4096, 8192, 16384, 32768, 65536)


def _measure(length: int, settings: Settings) -> Outcome:
    case = open_case(PRODUCT, length, settings)
    features = case.heads.value.float()
    scores = case.few_scores(), case.heads.key_scores(min(FIXED_KEYS, length))
    ours, theirs = (ThresholdProduct(case.rule, entry, features) for entry in scores)
    for product in (ours, theirs):
        product.check(case.name)
    timing = case.time(ours.steps, lambda: [step() for step in theirs.steps])
    return case.outcome(timing, {**step_facts(timing), "keys": ours.scores.size(-1)})


GROWTH = Benchmark(
    name="growth",
    claim=(
        "The threshold product, ranking included, forward, B = 1, 4 heads, D = 64, over the "
        f"length: with U = ⌈5 ln L⌉ keys, and with U = {FIXED_KEYS}. The slope is that of the "
        "least-squares line through the logarithms of length and time."
    ),
    series=lambda settings: (Series(PRODUCT, AGAINST, LENGTHS, 2**20, _measure),),
    growing=("ours", "theirs"),
)
