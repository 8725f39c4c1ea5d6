"""Fine-tune, evaluate and compare models with and without jump heads."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jat_graph.training.heads import BothHeads
from jat_graph.training.options import TrainingOptions
from jat_graph.training.results import Metrics, RunResult

if TYPE_CHECKING:
    from jat_graph.training.mixin import JatTrainerMixin
    from jat_graph.training.measuring import calibrate_on_task, evaluate
    from jat_graph.training.processes import leave
    from jat_graph.training.runner import train
    from jat_graph.training.strengths import parameter_groups

__all__ = [
    "Arm",
    "BothHeads",
    "Comparison",
    "Difference",
    "JatTrainerMixin",
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
    "parameter_groups",
    "summarize",
    "train",
]

# Imported at their first use. Comparing is the business of the laboratory, which is above; users
# find it here, too.
_MODULE_OF = {
    "JatTrainerMixin": "jat_graph.training.mixin",
    "Arm": "jat_graph.lab.comparison",
    "Comparison": "jat_graph.lab.comparison",
    "Difference": "jat_graph.lab.statistics",
    "Summary": "jat_graph.lab.statistics",
    "calibrate_on_task": "jat_graph.training.measuring",
    "compare": "jat_graph.lab.comparison",
    "comparison_markdown": "jat_graph.lab.comparison",
    "comparison_table": "jat_graph.lab.comparison",
    "evaluate": "jat_graph.training.measuring",
    "leave": "jat_graph.training.processes",
    "paired_difference": "jat_graph.lab.statistics",
    "parameter_groups": "jat_graph.training.strengths",
    "summarize": "jat_graph.lab.statistics",
    "train": "jat_graph.training.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
