import pytest

from jat_graph.tasks import (
    TASK_NAMES,
    ChoiceTask,
    ClassificationTask,
    LanguageModelTask,
    QuestionTask,
    RecallTask,
    TaggingTask,
    WordTaggingTask,
    WordTask,
    get_task,
)

METRICS = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("accuracy", "f1"),
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
    "cb": ("accuracy", "macro_f1"),
    "boolq": ("accuracy",),
    "copa": ("accuracy",),
    "multirc": ("f1", "exact_match"),
    "wic": ("accuracy",),
    "wsc": ("accuracy",),
    "superrte": ("accuracy",),
    "agreement": ("accuracy",),
    "listops": ("accuracy",),
    "steppingstones": ("accuracy",),
    "steppingstonesone": ("accuracy",),
    "steppingstonesfirst": ("f1", "precision", "recall"),
    "steppingstonesboth": ("f1", "precision", "recall"),
    "partners": ("accuracy",),
    "farrecall": ("accuracy",),
    "brown": ("accuracy", "macro_f1"),
    "imdb": ("accuracy",),
    "hyperpartisan": ("f1", "accuracy"),
    "covidqa": ("f1", "exact_match"),
    "covidqafar": ("f1", "exact_match"),
    "covidqafarhalf": ("f1", "exact_match"),
    "qmsum": ("accuracy",),
    "qmsumthird": ("accuracy",),
    "squad": ("f1", "exact_match"),
    "squad2": ("f1", "exact_match", "best_f1", "best_exact_match"),
    "wnut17": ("f1", "precision", "recall"),
    "conll2003": ("f1", "precision", "recall"),
    "ewtpos": ("accuracy",),
    "ewtrelations": ("accuracy",),
    "wikitext2": ("perplexity", "bits_per_character"),
    "tinyshakespeare": ("bits_per_character", "perplexity"),
    "chorales": ("perplexity", "bits_per_token"),
    "choralesquarter": ("perplexity", "bits_per_token"),
}
LANGUAGE_MODELS = ("wikitext2", "tinyshakespeare", "chorales", "choralesquarter")
QUESTIONS = ("covidqa", "covidqafar", "covidqafarhalf", "squad", "squad2")
TAGS = ("wnut17", "conll2003", "steppingstonesfirst", "steppingstonesboth")
WORDS = ("ewtpos", "ewtrelations")
CHOICES = ("copa", "qmsum", "qmsumthird")
RECALL = ("partners", "farrecall")


@pytest.mark.parametrize("name", TASK_NAMES)
def test_each_name_gives_its_task(name: str) -> None:
    task = get_task(name)
    assert task.name == name
    assert task.splits[0] == "train"
    assert task.splits[1].startswith("validation")
    assert isinstance(task, LanguageModelTask) == (name in LANGUAGE_MODELS)
    assert isinstance(task, QuestionTask) == (name in QUESTIONS)
    assert isinstance(task, TaggingTask) == (name in TAGS)
    assert isinstance(task, WordTaggingTask) == (name in WORDS)
    assert isinstance(task, WordTask) == (name in TAGS + WORDS)
    assert isinstance(task, ChoiceTask) == (name in CHOICES)
    assert isinstance(task, RecallTask) == (name in RECALL)
    if name not in LANGUAGE_MODELS + QUESTIONS + TAGS + WORDS + CHOICES + RECALL:
        assert isinstance(task, ClassificationTask)
        assert len(task.text_columns) in (1, 2)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("sst-2", "sst2"),
        ("SST-2", "sst2"),
        ("sts-b", "stsb"),
        ("STS_B", "stsb"),
        ("CoLA", "cola"),
        ("MultiRC", "multirc"),
        ("super-rte", "superrte"),
        ("CoNLL-2003", "conll2003"),
        ("wikitext-2", "wikitext2"),
        ("ListOps", "listops"),
        ("COVID-QA", "covidqa"),
        ("COVID-QA-far", "covidqafar"),
        ("tiny-shakespeare", "tinyshakespeare"),
        ("chorales-quarter", "choralesquarter"),
        ("ewt-relations", "ewtrelations"),
    ],
)
def test_names_as_users_type_them(typed: str, name: str) -> None:
    assert get_task(typed) is get_task(name)


@pytest.mark.parametrize("name", ["colour", "", "glue", "mnli-mm"])
def test_an_unknown_name_is_answered_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError) as caught:
        get_task(name)
    assert str(caught.value) == f"task must be one of {', '.join(TASK_NAMES)}, got {name!r}"


def test_each_task_has_the_metrics_of_the_papers() -> None:
    tasks = [get_task(name) for name in TASK_NAMES]
    assert {task.name: (task.primary_metric, *task.other_metrics) for task in tasks} == METRICS
