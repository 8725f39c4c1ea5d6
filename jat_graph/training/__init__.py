"""Training models with heads of ours: a learning rate for strengths, and a Trainer that knows them.

The scripts that train on tasks and on files of one's own are in ``examples/`` of a clone.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from jat_graph.training.strengths import JatTrainerMixin, parameter_groups

__all__ = ["JatTrainerMixin", "parameter_groups"]

# Imported at their first use: transformers' Trainer takes seconds.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__, submod_attrs={"strengths": ["JatTrainerMixin", "parameter_groups"]}
)
