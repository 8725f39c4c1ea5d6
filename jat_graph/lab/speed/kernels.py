"""``kernels``: the two inner loops against attention, a compiler, the released code and SpMM."""

from __future__ import annotations

from jat_graph.lab.speed.counting import counting_series
from jat_graph.lab.speed.products import product_series
from jat_graph.lab.speed.series import Benchmark

KERNELS = Benchmark(
    name="kernels",
    claim=(
        "The two inner loops, forward, B = 1, 4 heads, D = 64: counting votes into a dense A, and "
        "the product of A with one block of features for U = ⌈5 ln L⌉ keys, nothing of size L×L "
        "stored. Scores are ready; the product's time is that of ranking the tokens and of "
        "multiplying."
    ),
    series=lambda settings: (*counting_series(), *product_series()),
)
