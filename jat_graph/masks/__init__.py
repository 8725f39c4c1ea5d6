"""Which query may attend to which key, and which tokens of a sequence are of this process."""

from jat_graph.masks.tokens import TokenMask

__all__ = ["TokenMask"]
