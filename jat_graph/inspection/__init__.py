"""What heads do on real input: graphs of texts, reports on them, and thresholds from data."""

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
from jat_graph.inspection.text import inspect_text, view_head

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
    "inspect_text",
    "view_head",
]
