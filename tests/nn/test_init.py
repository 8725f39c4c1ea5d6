"""What jat_graph.nn exports."""

from torch.nn import Module

import jat_graph.nn


def test_every_export_is_a_layer() -> None:
    names = jat_graph.nn.__all__
    assert {"JumpConv", "JumpSelfAttention"} <= set(names)
    assert all(issubclass(getattr(jat_graph.nn, name), Module) for name in names)
