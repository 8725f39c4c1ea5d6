"""What tests of an operator of one's own need: a contract, and an error budget."""

from jat_graph.testing.budget import assert_within_budget
from jat_graph.testing.contract import OperatorContract

__all__ = ["OperatorContract", "assert_within_budget"]
