"""Fine-tune and evaluate models with and without jump heads."""

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
    "BothHeads",
    "JatTrainerMixin",
    "Metrics",
    "RunResult",
    "TrainingOptions",
    "calibrate_on_task",
    "evaluate",
    "leave",
    "parameter_groups",
    "train",
]

# Imported at their first use.
_MODULE_OF = {
    "JatTrainerMixin": "jat_graph.training.mixin",
    "calibrate_on_task": "jat_graph.training.measuring",
    "evaluate": "jat_graph.training.measuring",
    "leave": "jat_graph.training.processes",
    "parameter_groups": "jat_graph.training.strengths",
    "train": "jat_graph.training.runner",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
