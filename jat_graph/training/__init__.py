"""Fine-tune, evaluate and compare models with and without jump heads."""

from importlib import import_module
from typing import Any

from jat_graph.training.calibrated import calibrate_on_task
from jat_graph.training.evaluation import evaluate
from jat_graph.training.options import TrainingOptions
from jat_graph.training.processes import leave
from jat_graph.training.results import Metrics, RunResult
from jat_graph.training.runner import train

__all__ = [
    "Arm",
    "Comparison",
    "Difference",
    "Metrics",
    "RunResult",
    "Summary",
    "TrainingOptions",
    "calibrate_on_task",
    "compare",
    "comparison_markdown",
    "comparison_table",
    "evaluate",
    "leave",
    "paired_difference",
    "summarize",
    "train",
]

# Comparing is the business of the laboratory, which is above; users find it here, too.
_IN_THE_LABORATORY = {
    "Arm": "jat_graph.lab.comparison",
    "Comparison": "jat_graph.lab.comparison",
    "Difference": "jat_graph.lab.statistics",
    "Summary": "jat_graph.lab.statistics",
    "compare": "jat_graph.lab.comparison",
    "comparison_markdown": "jat_graph.lab.report",
    "comparison_table": "jat_graph.lab.report",
    "paired_difference": "jat_graph.lab.statistics",
    "summarize": "jat_graph.lab.statistics",
}


def __getattr__(name: str) -> Any:
    if name not in _IN_THE_LABORATORY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_IN_THE_LABORATORY[name]), name)
