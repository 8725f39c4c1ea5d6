"""Data sets by name: readers of their original files, and how each is measured.

``get_task(name).load(data_dir)`` gives the splits. Columns are ``text``, ``text_pair`` and
``label`` to classify, ``choices`` beside them to choose; ``id``, ``question``, ``context`` and
``answers``; ``tokens`` and ``tags``, one of each word; ``text`` or ``tokens`` of language.
"""

from __future__ import annotations

from examples.tasks.agreement import agreement_task
from examples.tasks.base import Splits, Task
from examples.tasks.documents import DOCUMENTS
from examples.tasks.glue import GLUE
from examples.tasks.language import LANGUAGE
from examples.tasks.listops import listops_task
from examples.tasks.recall import FarRecallTask, PartnersTask, RecallTask
from examples.tasks.squad import QUESTIONS
from examples.tasks.superglue import SUPERGLUE
from examples.tasks.tagging import TAGGING

TASKS: dict[str, Task | RecallTask] = {
    task.name: task
    for task in (
        *GLUE,
        *SUPERGLUE,
        *DOCUMENTS,
        *QUESTIONS,
        *TAGGING,
        *LANGUAGE,
        agreement_task(),
        listops_task(),
        PartnersTask(),
        FarRecallTask(),
    )
}


def get_task(name: str) -> Task | RecallTask:
    """Return a task; letters' case, hyphens and underscores do not matter, as in ``SST-2``."""
    task = TASKS.get(name.strip().lower().replace("-", "").replace("_", ""))
    if task is None:
        raise ValueError(f"task_name must be one of {', '.join(TASKS)}, got {name!r}")
    return task


__all__ = ["TASKS", "RecallTask", "Splits", "Task", "get_task"]
