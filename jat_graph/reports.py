"""What inspection returns; the code is in :mod:`jat_graph.inspection.reports`."""

from jat_graph.inspection.reports import (
    GraphView,
    HeadReport,
    HeadView,
    Inspection,
    Jump,
    Link,
    SteppingStone,
    Stone,
    StoneReport,
    Token,
)

__all__ = [
    "GraphView",
    "HeadReport",
    "HeadView",
    "Inspection",
    "Jump",
    "Link",
    "SteppingStone",
    "Stone",
    "StoneReport",
    "Token",
]
