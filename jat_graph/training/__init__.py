"""Training models with heads of ours: a learning rate for strengths, and a Trainer that knows them.

The scripts that train on tasks and on files of one's own are in ``examples/`` of a clone.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jat_graph.training.mixin import JatTrainerMixin
    from jat_graph.training.strengths import parameter_groups

__all__ = ["JatTrainerMixin", "parameter_groups"]


def __getattr__(name: str) -> Any:
    # Imported at their first use: transformers' Trainer takes seconds.
    if name == "JatTrainerMixin":
        from jat_graph.training.mixin import JatTrainerMixin

        return JatTrainerMixin
    if name == "parameter_groups":
        from jat_graph.training.strengths import parameter_groups

        return parameter_groups
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
