"""What tests of an operator of one's own need: a contract."""

from jat_graph.testing.contract import OperatorContract

__all__ = ["OperatorContract"]
