from .collator import GraphCollator
from .strengths import JatTrainerMixin, parameter_groups

__all__ = ["GraphCollator", "JatTrainerMixin", "parameter_groups"]
