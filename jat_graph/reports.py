"""What inspection returns; the code is in :mod:`jat_graph.inspection.reports`."""

from jat_graph.inspection.reports import (
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
