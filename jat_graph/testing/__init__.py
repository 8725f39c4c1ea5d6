"""What tests of jump attention need: inputs that join something, an error budget, a contract."""

from jat_graph.testing.budget import assert_within_budget
from jat_graph.testing.contract import OperatorContract
from jat_graph.testing.inputs import RandomHeads, random_heads, random_padding_mask

__all__ = [
    "OperatorContract",
    "RandomHeads",
    "assert_within_budget",
    "random_heads",
    "random_padding_mask",
]
