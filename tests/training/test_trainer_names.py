"""The names of TrainingArguments, read off their source."""

from dataclasses import fields
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from transformers import TrainingArguments

from jat_graph.training import trainer_names
from jat_graph.training.options import TrainingOptions
from jat_graph.training.trainer_names import argument_names

INHERITED = """
class Base:
    first: int = 0

class TrainingArguments(Base):
    second: int = 0
    third = 0
"""
IMPORTED = """
from elsewhere import Base

class TrainingArguments(Base):
    second: int = 0
"""


def test_they_are_those_of_the_class() -> None:
    assert argument_names() == {entry.name for entry in fields(TrainingArguments)}


@pytest.mark.parametrize(
    ("source", "names"),
    [(INHERITED, {"first", "second"}), (IMPORTED, set()), ("", set()), (None, set())],
)
def test_what_is_inherited_counts_and_what_is_elsewhere_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, names: set[str]
) -> None:
    if source is not None:
        (tmp_path / "training_args.py").write_text(source, encoding="utf-8")
    spec = ModuleSpec("transformers", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(trainer_names, "find_spec", lambda name: spec)
    assert argument_names() == names


def test_what_the_source_does_not_say_is_refused_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_names, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"trainer must name arguments of .*, got 'nosuch'"):
        TrainingOptions("m", "rte", "out", trainer={"nosuch": 1})
