"""Which query may attend to which key."""

from jat_graph.masks.tokens import TokenMask

__all__ = ["TokenMask"]
