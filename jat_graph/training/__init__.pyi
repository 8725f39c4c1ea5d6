from .strengths import JatTrainerMixin, parameter_groups

__all__ = ["JatTrainerMixin", "parameter_groups"]
