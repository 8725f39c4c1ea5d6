"""Tasks to train and evaluate on: classes of texts, the next token, answers in a text."""

from __future__ import annotations

from jat_graph.tasks.agreement import AgreementTask
from jat_graph.tasks.base import ClassificationTask, LanguageModelTask, QuestionTask, Task
from jat_graph.tasks.chorales import ChoralesTask, chorale_to_tokens, tokens_to_chorale
from jat_graph.tasks.glue import GLUE_TASKS, GlueTask
from jat_graph.tasks.shakespeare import TinyShakespeareTask
from jat_graph.tasks.tables import plain_name

_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        *GLUE_TASKS,
        AgreementTask(),
        TinyShakespeareTask(),
        ChoralesTask(),
        ChoralesTask(name="choralesquarter", resolution="quarter"),
    )
}

TASK_NAMES: tuple[str, ...] = tuple(_TASKS)


def get_task(name: str) -> Task:
    """Return a task by name.

    Args:
        name: One of :data:`TASK_NAMES`; case, hyphens and underscores do not matter, so that
            ``"SST-2"``, ``"sts-b"`` and ``"chorales-quarter"`` are fine.

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
    "ChoralesTask",
    "ClassificationTask",
    "GlueTask",
    "LanguageModelTask",
    "QuestionTask",
    "Task",
    "TinyShakespeareTask",
    "chorale_to_tokens",
    "get_task",
    "tokens_to_chorale",
]
