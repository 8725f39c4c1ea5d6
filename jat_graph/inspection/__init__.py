"""What heads do on real input: graphs of texts, reports on them, and thresholds from data."""

from jat_graph.inspection.reports import (
    HeadReport,
    HeadView,
    Inspection,
    Jump,
    SteppingStone,
    Token,
)
from jat_graph.inspection.text import inspect_text, view_head

__all__ = [
    "HeadReport",
    "HeadView",
    "Inspection",
    "Jump",
    "SteppingStone",
    "Token",
    "inspect_text",
    "view_head",
]
