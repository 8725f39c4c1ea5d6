"""What heads do on real input: graphs of texts, reports on them, and thresholds from data."""

from jat_graph.looking.inspection.calibration import calibrate
from jat_graph.looking.inspection.clusters import (
    ClusterInspection,
    ClusterReport,
    ReadKey,
    TokenReading,
    inspect_clusters,
    view_descent,
)
from jat_graph.looking.inspection.fidelity import Fidelity, HeadFidelity, NextTokens, fidelity
from jat_graph.looking.inspection.reports import (
    HeadReport,
    HeadView,
    Inspection,
    Jump,
    Link,
    SteppingStone,
    Stone,
    StoneReport,
)
from jat_graph.looking.inspection.selection import Token
from jat_graph.looking.inspection.statistics import HeadStatistics, graph_statistics
from jat_graph.looking.inspection.text import inspect_text, view_head

__all__ = [
    "ClusterInspection",
    "ClusterReport",
    "Fidelity",
    "HeadFidelity",
    "HeadReport",
    "HeadStatistics",
    "HeadView",
    "Inspection",
    "Jump",
    "Link",
    "NextTokens",
    "ReadKey",
    "SteppingStone",
    "Stone",
    "StoneReport",
    "Token",
    "TokenReading",
    "calibrate",
    "fidelity",
    "graph_statistics",
    "inspect_clusters",
    "inspect_text",
    "view_descent",
    "view_head",
]
