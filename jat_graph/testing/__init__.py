"""What tests of an operator of one's own need: a contract, and an error budget."""

from jat_graph.testing.contract import OperatorContract, assert_within_budget

__all__ = ["OperatorContract", "assert_within_budget"]
