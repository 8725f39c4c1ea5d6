"""What a grid's file may say, and what is refused in one line."""

import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.lab.studies import Grid, GridArm, Tuning, grid_names, load_grid
from jat_graph.lab.studies.grid import folder_name
from tests.lab.studies.support import CONTENT, small_grid

TUNED = {
    "tuning": {"thresholds": [4, 6.5], "held_out": 0.2},
    "arms": [
        {"name": "base"},
        {"name": "tuned", "heads": "paper", "tune": True},
        {"name": "borrowed", "heads": "efficient", "tune": "tuned", "line": "JAT†", "x": 2},
    ],
}


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        name = "mine"
        title = "Mine"
        tasks = ["cola", "rte"]
        columns = ["accuracy"]
        [training]
        epochs = 2
        batch_size = 8
        [training.rte]
        epochs = 3
        [[arms]]
        name = "base"
        [[arms]]
        name = "JAT"
        heads = "paper"
        settings = { layers = "1-4/12" }
        options = { batch_size = 4 }
        [paper]
        model = "RoBERTa-base"
        [paper.JAT]
        cola = 65.9
        rte = { accuracy = 80.2 }
        """,
        encoding="utf-8",
    )
    grid = load_grid(str(path))
    assert (grid.kind, grid.seeds, grid.columns) == ("train", 3, ("accuracy",))
    assert grid.base == GridArm("base")
    assert grid.options("cola", grid.base) == {"epochs": 2, "batch_size": 8, "select_best": False}
    assert grid.options("rte", grid.arm("JAT"))["epochs"] == 3
    assert grid.options("rte", grid.arm("JAT"))["batch_size"] == 4
    assert grid.paper.model == "RoBERTa-base"
    assert grid.paper.scores == {"JAT": {"cola": 65.9, "rte": {"accuracy": 80.2}}}


def test_a_grid_is_what_its_content_says() -> None:
    grid = small_grid(**TUNED)
    assert grid.tuning == Tuning((4.0, 6.5), 0.2)
    assert grid.arm("borrowed").tune == "tuned"
    assert (grid.arm("borrowed").line, grid.arm("borrowed").x) == ("JAT†", 2.0)
    assert Grid.from_dict(grid.to_dict()) == grid
    assert grid.with_seeds(5).seeds == 5
    with pytest.raises(ValueError, match=r"arm of grid 'small' must be one of base, .*, got 'x'"):
        grid.arm("x")


@pytest.mark.parametrize("name", grid_names())
def test_every_grid_of_the_library_is_one(name: str) -> None:
    grid = load_grid(name)
    assert grid.name == name
    assert grid.budget
    if grid.question is None:  # those that ask something are not of the paper
        assert grid.base.heads == "none"
        assert grid.source


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tusks": 1}, "grid 'small': unknown 'tusks', wanted one of name, title"),
        (
            {"kind": "guess"},
            "kind must be one of train, connections, .*stepping-stones, .*got 'guess'",
        ),
        ({"name": "../up"}, "name must be usable as a file name, got '../up'"),
        ({"title": ""}, "title must be a text, got ''"),
        ({"title": 3}, "title must be a valid string, got 3"),
        ({"tasks": []}, "tasks must be one or more, got none"),
        ({"tasks": "cola"}, "tasks must be a valid array, got 'cola'"),
        ({"tasks": ["kola"]}, "task must be one of cola, .* got 'kola'"),
        ({"tasks": ["SST-2"]}, "task must be written 'sst2', got 'SST-2'"),
        ({"tasks": ["cola", "cola"]}, "tasks must differ in letters, got 'cola' and 'cola'"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seeds": True}, "seeds must be a valid integer or a valid array, got True"),
        ({"arms": []}, "arms must be one or more, got none"),
        ({"arms": [{"heads": "none"}]}, r"arms\[0\].name must be given, got nothing"),
        ({"arms": [{"name": "a b"}, {"name": "A-b"}]}, "arms must differ in letters"),
        ({"arms": [{"name": "–"}]}, "arms must have a letter or digit each, got '–'"),
        (
            {"arms": [{"name": "a", "head": 2}]},
            r"unknown 'head' in arms\[0\], wanted one of name, heads",
        ),
        ({"arms": [{"name": "a", "heads": "many"}]}, "heads must be 'none', .* got 'many'"),
        (
            {"arms": [{"name": "a", "tune": 4}]},
            "tune must be a valid boolean or a valid string, got 4",
        ),
        ({"arms": [{"name": "a", "options": 4}]}, r"arms\[0\].options must be an object, got 4"),
        ({"training": {"epoch": 2}}, r"\[training\]: unknown 'epoch', wanted one of"),
        ({"training": {"seed": 2}}, r"\[training\]: unknown 'seed', wanted one of"),
        ({"training": {"epochs": 0}}, r"\[training\]: epochs must be a positive integer, got 0"),
        ({"training": {"rte": {}}}, r"\[training\]: unknown 'rte', wanted one of cola"),
        ({"training": {"cola": {"warmup": 2}}}, r"\[training.cola\]: warmup must be a share"),
        ({"tuning": {}}, "tuning.thresholds must be given, got nothing"),
        (
            {"tuning": {"thresholds": [-1]}},
            "thresholds must be .* different numbers of at least 0",
        ),
        (
            {"tuning": {"thresholds": [4, 4]}},
            "thresholds must be .* different numbers of at least 0",
        ),
        ({"tuning": {"thresholds": [4], "held_out": 1}}, "held_out must be between 0 and 1, got"),
        ({"paper": {"base": {"rta": 1}}}, "task must be one of cola, .* got 'rta'"),
        (
            {"paper": {"base": {"cola": "1"}}},
            "paper.scores.base.cola must be a valid number or an object, got '1'",
        ),
        ({"columns": ["seconds", "matthews"]}, "columns must be seconds alone where times are"),
        (
            {"kind": "connections", "tasks": ["wnut17"], "columns": ["all words > mean + sd"]},
            "columns must be among f1, .*all words > mean . std.* got 'all words > mean . sd'",
        ),
        (
            {"kind": "connections", "tasks": ["wnut17"], "columns": ["seconds"]},
            "columns must be among f1, .* got 'seconds'",
        ),
        (
            {"kind": "stepping-stones", "tasks": ["1 layer"], "columns": ["accuracy_5"]},
            "columns must be among accuracy, accuracy_1, .* got 'accuracy_5'",
        ),
        ({"columns": ["matthew"]}, "columns must be among seconds, matthews, .* got 'matthew'"),
        ({"mean": "yes"}, "mean must be a valid boolean, got 'yes'"),
        (
            {"arms": [{"name": "a", "heads": "paper", "settings": {"threshold": math.inf}}]},
            "arm 'a': settings.graph.threshold must be finite, got inf",
        ),
        (
            {"arms": [{"name": "a", "heads": "paper", "settings": {"hop_weights": [math.nan]}}]},
            "arm 'a': settings.hop_weights must be finite, got nan",
        ),
        (
            {"arms": [{"name": "a", "options": {"max_eval_samples": 3}}]},
            r"arm 'a': max_eval_samples belongs to \[training\]",
        ),
        ({"columns": "f1"}, "columns must be a valid array, got 'f1'"),
        ({"train": {"a": 1}}, "unknown 'train'"),
        ({"content": {}}, "unknown 'content', wanted one of name"),
        ({"seeds": 10**4}, "seeds must be below 9999, got 10000"),
        ({"seeds": "3"}, "seeds must be a valid integer or a valid array, got '3'"),
        ({"seeds": [1, 1]}, r"seeds must be one or more different numbers, got \[1, 1\]"),
        ({"seeds": []}, r"seeds must be one or more different numbers, got \[\]"),
        ({"seeds": [-1]}, "seeds must be at least 0, got -1"),
        ({"seeds": [1, 9999]}, "seeds must be below 9999, got 9999"),
        ({"training": 4}, "training must be a table, got 4"),
        ({"tuning": {"thresholds": []}}, r"thresholds must be one or more .* got \[\]"),
        ({"tuning": {"thresholds": [math.nan]}}, "thresholds.0. must be a finite number, got nan"),
        ({"tuning": {"thresholds": [4], "held": 1}}, "unknown 'held' in tuning, wanted one of"),
        ({"arms": [{"name": "a", "line": ""}]}, "arm 'a': line must be a text, got ''"),
    ],
)
def test_wrong_content_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        small_grid(**changes)
    assert "\n" not in str(caught.value)


def test_a_kind_has_a_table_of_its_own() -> None:
    content = {
        "kind": "stepping-stones",
        "tasks": ["1 layer"],
        "stepping-stones": {"attempts": 2},
    }
    assert small_grid(**content).own == {"attempts": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = "half', "must be TOML: "),
        ("[training", "must be TOML: "),
        (b"\xff", "must be TOML: "),
        ("", "name must be given, got nothing"),
        ('name = "half"', "title must be given, got nothing"),
        ('name = "half"\ntitle = "Half"', "tasks must be given, got nothing"),
    ],
)
def test_half_a_file_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    path = tmp_path / "half.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=words) as caught:
        load_grid(str(path))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_grids_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"experiment must be one of .*layers.*got 'tables'"):
        load_grid("tables")
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        load_grid(str(tmp_path / "none.toml"))


def test_the_content_given_is_not_changed() -> None:
    content = deepcopy(CONTENT)
    grid = Grid.from_dict(content)
    grid.to_dict()["arms"].clear()
    assert content == CONTENT and len(grid.to_dict()["arms"]) == 2


def test_the_paper_may_have_more_than_a_grid() -> None:
    paper = {"model": "R", "gone": {"cola": 60.0}, "base": {"rte": 78.7}}
    assert small_grid(paper=paper).paper.scores["base"] == {"rte": 78.7}


@given(st.text())
def test_folder_names_are_safe(name: str) -> None:
    folder = folder_name(name)
    assert "/" not in folder and "\\" not in folder and not folder.startswith(".")
    assert folder_name(folder) == folder


def test_folder_names_tell_the_papers_arms_apart() -> None:
    names = ["base", "A³", "JAT", "JAT†", "layers 1–4", "base −4", "base +4", "JAT, ρ = 6"]
    assert len({folder_name(name) for name in names}) == len(names)
    assert folder_name("layers 1–4") == "layers-1-4"
