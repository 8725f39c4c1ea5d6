"""Tasks to train and evaluate on: GLUE, and subject-verb agreement across attractors."""

from __future__ import annotations

from jat_graph.tasks.agreement import AgreementTask
from jat_graph.tasks.base import ClassificationTask, LanguageModelTask, QuestionTask, Task
from jat_graph.tasks.glue import GLUE_TASKS, GlueTask
from jat_graph.tasks.tables import plain_name

_TASKS: dict[str, Task] = {task.name: task for task in (*GLUE_TASKS, AgreementTask())}

TASK_NAMES: tuple[str, ...] = tuple(_TASKS)


def get_task(name: str) -> Task:
    """Return a task by name.

    Args:
        name: One of :data:`TASK_NAMES`; case, hyphens and underscores do not matter, so that
            ``"SST-2"`` and ``"sts-b"`` are fine.

    Returns:
        The task.

    Raises:
        ValueError: If there is no such task.
    """
    task = _TASKS.get(plain_name(name))
    if task is None:
        raise ValueError(f"task must be one of {', '.join(TASK_NAMES)}, got {name!r}")
    return task


__all__ = [
    "TASK_NAMES",
    "AgreementTask",
    "ClassificationTask",
    "GlueTask",
    "LanguageModelTask",
    "QuestionTask",
    "Task",
    "get_task",
]
