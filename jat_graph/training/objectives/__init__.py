"""How each kind of task is trained: model class, encoding, batches, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jat_graph.tasks import (
    ChoiceTask,
    ClassificationTask,
    LanguageModelTask,
    QuestionTask,
    RecallTask,
    Task,
    WordTask,
)
from jat_graph.training.objectives.base import Objective
from jat_graph.training.objectives.labelling import Classification, MultipleChoice
from jat_graph.training.objectives.language_modelling import LanguageModelling
from jat_graph.training.objectives.question_answering import QuestionAnswering
from jat_graph.training.objectives.tagging import Tagging

if TYPE_CHECKING:
    from jat_graph.training.options import TrainingOptions


def objective_for(task: Task, options: TrainingOptions) -> Objective[Any]:
    """How a task is trained."""
    if isinstance(task, ClassificationTask):
        return Classification(task, options)
    if isinstance(task, ChoiceTask):
        return MultipleChoice(task, options)
    if isinstance(task, LanguageModelTask):
        return LanguageModelling(task, options)
    if isinstance(task, QuestionTask):
        return QuestionAnswering(task, options)
    if isinstance(task, WordTask):
        return Tagging(task, options)
    if isinstance(task, RecallTask):
        raise ValueError(
            f"task {task.name} has ids that no model of texts reads: use jat-graph experiment"
        )
    raise TypeError(f"task {task.name} must be of a known kind, got {type(task).__name__}")
