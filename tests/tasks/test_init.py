import pytest

from jat_graph.tasks import TASK_NAMES, AgreementTask, GlueTask, get_task

GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")


def test_the_names() -> None:
    assert TASK_NAMES == (*GLUE, "agreement")


@pytest.mark.parametrize("name", TASK_NAMES)
def test_each_name_gives_its_task(name: str) -> None:
    task = get_task(name)
    assert task.name == name
    assert isinstance(task, AgreementTask if name == "agreement" else GlueTask)
    assert task.splits[0] == "train"
    assert len(task.splits) >= 2
    assert len(task.text_columns) in (1, 2)


@pytest.mark.parametrize(
    ("typed", "name"),
    [("sst-2", "sst2"), ("SST-2", "sst2"), ("sts-b", "stsb"), ("STS_B", "stsb"), ("CoLA", "cola")],
)
def test_names_as_users_type_them(typed: str, name: str) -> None:
    assert get_task(typed) is get_task(name)


@pytest.mark.parametrize("name", ["colour", "", "glue", "mnli-mm"])
def test_an_unknown_name_is_answered_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError) as caught:
        get_task(name)
    assert str(caught.value) == f"task must be one of {', '.join(TASK_NAMES)}, got {name!r}"


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("cola", ("matthews",)),
        ("sst2", ("accuracy",)),
        ("mrpc", ("accuracy", "f1")),
        ("stsb", ("pearson", "spearman")),
        ("qqp", ("accuracy", "f1")),
        ("mnli", ("accuracy",)),
        ("qnli", ("accuracy",)),
        ("rte", ("accuracy",)),
        ("wnli", ("accuracy",)),
        ("agreement", ("accuracy",)),
    ],
)
def test_each_task_has_the_metrics_of_the_papers(name: str, metrics: tuple[str, ...]) -> None:
    task = get_task(name)
    assert (task.primary_metric, *task.other_metrics) == metrics
