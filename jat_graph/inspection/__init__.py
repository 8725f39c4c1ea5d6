"""What heads do on real input: graphs of texts, reports on them, and thresholds from data."""

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
from jat_graph.inspection.text import inspect_text, view_graphs, view_head

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
    "inspect_text",
    "view_graphs",
    "view_head",
]
