"""Tasks to train and evaluate on: classes of texts, the next token, answers in a text."""

from __future__ import annotations

from jat_graph.tasks.agreement import AgreementTask
from jat_graph.tasks.base import ChoiceTask, ClassificationTask, LabelledTask, QuestionTask, Task
from jat_graph.tasks.brown import BrownTask
from jat_graph.tasks.chorales import ChoralesTask, chorale_to_tokens, tokens_to_chorale
from jat_graph.tasks.conll import CONLL2003, WNUT17, ConllTask
from jat_graph.tasks.covidqa import CovidQATask, FarCovidQATask
from jat_graph.tasks.ewt import EWT_POS, EWT_RELATIONS, EwtTask
from jat_graph.tasks.glue import GLUE_TASKS, GlueTask
from jat_graph.tasks.hyperpartisan import HyperpartisanTask
from jat_graph.tasks.imdb import ImdbTask
from jat_graph.tasks.language import LanguageModelTask, TinyShakespeareTask, WikiText2Task
from jat_graph.tasks.listops import ListOpsTask, evaluate_listops
from jat_graph.tasks.qmsum import QmsumTask
from jat_graph.tasks.recall import FarRecallTask, IdSequences, PartnersTask, RecallTask
from jat_graph.tasks.squad import SQUAD, SQUAD2, SquadTask
from jat_graph.tasks.stepping_stones import SteppingStonesLesson, SteppingStonesTask
from jat_graph.tasks.superglue import (
    SUPERGLUE_TASKS,
    CopaTask,
    SuperGlueClassification,
    SuperGlueTask,
)
from jat_graph.tasks.tables import plain_name
from jat_graph.tasks.tagging import TaggingTask, WordTaggingTask, WordTask

_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        *GLUE_TASKS,
        *SUPERGLUE_TASKS,
        AgreementTask(),
        ListOpsTask(),
        SteppingStonesTask(),
        SteppingStonesTask(name="steppingstonesone", steps=(1,)),
        SteppingStonesLesson(name="steppingstonesfirst"),
        SteppingStonesLesson(name="steppingstonesboth", both=True),
        PartnersTask(),
        FarRecallTask(),
        BrownTask(),
        ImdbTask(),
        HyperpartisanTask(),
        CovidQATask(),
        FarCovidQATask(),
        FarCovidQATask(name="covidqafarhalf", characters=3000, distance=1100),
        QmsumTask(),
        QmsumTask(name="qmsumthird", characters=2000),
        WikiText2Task(),
        TinyShakespeareTask(),
        ChoralesTask(),
        ChoralesTask(name="choralesquarter", resolution="quarter"),
        WNUT17,
        CONLL2003,
        EWT_POS,
        EWT_RELATIONS,
        SQUAD,
        SQUAD2,
    )
}

TASK_NAMES: tuple[str, ...] = tuple(_TASKS)


def get_task(name: str) -> Task:
    """Return a task by name.

    Args:
        name: One of :data:`TASK_NAMES`; case, hyphens and underscores do not matter, so that
            ``"SST-2"``, ``"wikitext-2"`` and ``"chorales-quarter"`` are fine.

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
    "BrownTask",
    "ChoiceTask",
    "ChoralesTask",
    "ClassificationTask",
    "ConllTask",
    "CopaTask",
    "CovidQATask",
    "EwtTask",
    "FarCovidQATask",
    "FarRecallTask",
    "GlueTask",
    "HyperpartisanTask",
    "IdSequences",
    "ImdbTask",
    "LabelledTask",
    "LanguageModelTask",
    "ListOpsTask",
    "PartnersTask",
    "QmsumTask",
    "QuestionTask",
    "RecallTask",
    "SquadTask",
    "SteppingStonesLesson",
    "SteppingStonesTask",
    "SuperGlueClassification",
    "SuperGlueTask",
    "TaggingTask",
    "Task",
    "TinyShakespeareTask",
    "WikiText2Task",
    "WordTaggingTask",
    "WordTask",
    "chorale_to_tokens",
    "evaluate_listops",
    "get_task",
    "tokens_to_chorale",
]
