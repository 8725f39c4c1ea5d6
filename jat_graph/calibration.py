"""Thresholds from data; the code is in :mod:`jat_graph.inspection.calibration`."""

from jat_graph.inspection.calibration import (
    HeadStatistics,
    calibrate,
    graph_statistics,
    layer_statistics,
)
from jat_graph.inspection.structure import GraphStructure

__all__ = [
    "GraphStructure",
    "HeadStatistics",
    "calibrate",
    "graph_statistics",
    "layer_statistics",
]
