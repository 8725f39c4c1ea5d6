"""What jat_graph.nn exports."""

import jat_graph.nn


def test_exports() -> None:
    assert jat_graph.nn.__all__ == ["AreaAttention", "JumpConv", "JumpSelfAttention"]
