"""Fine-tune, evaluate and compare models with and without jump heads."""

from jat_graph.training.calibrated import calibrate_on_task
from jat_graph.training.comparison import Arm, Comparison, compare
from jat_graph.training.evaluation import evaluate
from jat_graph.training.options import TrainingOptions
from jat_graph.training.processes import leave
from jat_graph.training.report import comparison_markdown, comparison_table
from jat_graph.training.results import Metrics, RunResult
from jat_graph.training.runner import train
from jat_graph.training.statistics import Difference, Summary, paired_difference, summarize

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
