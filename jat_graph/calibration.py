"""Thresholds from data; the code is in :mod:`jat_graph.inspection.calibration`."""

from jat_graph.inspection.calibration import (
    HeadStatistics as HeadStatistics,
)
from jat_graph.inspection.calibration import (
    calibrate as calibrate,
)
from jat_graph.inspection.calibration import (
    graph_statistics as graph_statistics,
)
from jat_graph.inspection.calibration import (
    layer_statistics as layer_statistics,
)
