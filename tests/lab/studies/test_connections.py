"""Cells that measure links: trained, resumed, untrained, and refused."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jat_graph.lab.studies import connections
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.grid import Grid, load_grid
from jat_graph.lab.studies.kinds import KINDS
from jat_graph.lab.studies.records import Store
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import experiment_rows
from jat_graph.lab.studies.running import finish_cell

KIND = KINDS["connections"]

Plans = Callable[..., Plan]

NAMED = {"book": "product", "pencil": "creative-work", "computer": "product"}
OTHERS = ["costs", "more", "less", "than", "the", "a", "is"]


def _write_sentences(path: Path, count: int, seed: int) -> None:
    draw = random.Random(seed)
    lines: list[str] = []
    for _ in range(count):
        for word in draw.choices([*NAMED, *OTHERS], k=draw.randint(4, 8)):
            lines.append(f"{word}\t{'B-' + NAMED[word] if word in NAMED else 'O'}")
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="session")
def wnut_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a small corpus under the names of WNUT-17's files."""
    folder = tmp_path_factory.mktemp("wnut17")
    _write_sentences(folder / "wnut17train.conll", 24, seed=1)
    _write_sentences(folder / "emerging.dev.conll", 12, seed=2)
    return folder


@pytest.fixture
def plan(tiny_model: str, wnut_dir: Path) -> Plans:
    """Return a plan of two arms on the tiny model, with any key of the grid replaced."""

    def build(**changes: Any) -> Plan:
        content = {
            "name": "links",
            "title": "Links",
            "kind": "connections",
            "tasks": ["wnut17"],
            "seeds": 1,
            "training": {"epochs": 1, "batch_size": 8, "max_length": 16},
            "arms": [
                {"name": "base"},
                {"name": "paper", "heads": "paper", "settings": {"threshold": 4.0, "heads": 2}},
            ],
        }
        return Plan(Grid.from_dict(content | changes), tiny_model, wnut_dir, "cpu")

    return build


def test_a_cell_is_trained_and_measured_once(
    plan: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, store = Cell("wnut17", "paper", 0), Store(plan(), tmp_path)
    assert finish_cell(cell, store, False)
    record, folder = store.finished()[cell], store.folder(cell)
    assert record.cell == cell and record.steps == 3
    assert record.examples == {"train": 24, "validation": 12}
    assert list(record.scores) == ["validation", "all layers", "layer 1", "layer 2"]
    assert set(record.scores["validation"]) == {"f1", "precision", "recall"}
    assert len(record.answers["validation"]["said"]) == 12
    layer, whole = record.scores["layer 1"], record.scores["all layers"]
    assert set(layer) == set(whole) and len(layer) == 30
    examples = [name for name in whole if "pencil" in name or "example" in name]
    assert len(examples) == 9 and layer["self, example > mean + std"] is not None
    assert all(share is not None and 0 <= share <= 1 for share in layer.values())
    assert not (folder / "model").exists()
    assert json.dumps(record.to_dict(), allow_nan=False)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(connections, "measure_links", refuse)  # and the weights are gone
    assert KIND.run_cell(cell, plan(), folder, False).scores == record.scores


def test_a_kill_before_the_measurement_loses_nothing(
    plan: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("wnut17", "base", 0)

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(connections, "measure_links", die)
        KIND.run_cell(cell, plan(), tmp_path / "killed", False)
    scores = KIND.run_cell(cell, plan(), tmp_path / "killed", False).scores
    assert scores == KIND.run_cell(cell, plan(), tmp_path / "whole", False).scores


def test_a_pretrained_model_is_measured_as_it_comes(plan: Plans, tmp_path: Path) -> None:
    untrained = plan(connections={"model": "pretrained"})
    base, jumping = (
        KIND.run_cell(Cell("wnut17", arm, 0), untrained, tmp_path / arm, False)
        for arm in ("base", "paper")
    )
    assert (base.steps, base.heads, base.examples) == (0, None, {"validation": 12})
    assert jumping.heads is not None and jumping.heads["threshold"] == 4.0
    assert list(base.scores) == ["all layers", "layer 1", "layer 2"]
    assert base.scores["layer 1"] != jumping.scores["layer 1"]
    told = Results(untrained.grid, "", "tiny", None, {}, {}, (base, jumping))
    assert "The model is measured as it comes" in " ".join(KIND.caption(told).remarks)
    assert not KIND.caption(replace(told, grid=plan().grid)).remarks
    fewer = plan(connections={"model": "pretrained"}, training={"max_eval_samples": 4})
    few = KIND.run_cell(Cell("wnut17", "base", 0), fewer, tmp_path / "few", False)
    assert few.examples == {"validation": 4}


def test_the_papers_number_is_of_all_layers(plan: Plans, tmp_path: Path) -> None:
    name = "self, example > mean + std"
    quoted = {"model": "m", "base": {"wnut17": {name: 15.0}}}
    untrained = plan(connections={"model": "pretrained"}, columns=[name], paper=quoted)
    record = KIND.run_cell(Cell("wnut17", "base", 0), untrained, tmp_path, False)
    rows = experiment_rows(Results(untrained.grid, "", "tiny", None, {}, {}, (record,)))
    assert [(row.split, row.paper) for row in rows] == [
        ("all layers", 15.0),
        ("layer 1", None),
        ("layer 2", None),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tasks": ["cola"]}, "of named entities, as wnut17, got 'cola'"),
        ({"connections": {"model": "new"}}, "model must be 'trained' or 'pretrained', got 'new'"),
        ({"connections": {"models": "x"}}, "unknown 'models', wanted one of model"),
        (
            {"arms": [{"name": "A³", "heads": "triplet"}]},
            "arm 'A³' has triplet heads, which have no links to measure",
        ),
        (
            {"arms": [{"name": "both", "heads": "paper", "triplets": {}}]},
            "arm 'both' has triplet heads, which have no links to measure",
        ),
    ],
)
def test_what_cannot_be_measured_is_no_grid(
    plan: Plans, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        plan(**changes)
    assert str(caught.value).startswith("grid 'links'") and "\n" not in str(caught.value)


def test_the_grid_asks_for_what_is_measured(plan: Plans, tmp_path: Path) -> None:
    grid = load_grid("connections")
    untrained = plan(connections={"model": "pretrained"})
    scores = KIND.run_cell(Cell("wnut17", "base", 0), untrained, tmp_path, False).scores
    known = {"f1", *(name for layer in scores.values() for name in layer)}
    assert set(grid.columns) <= known
    assert set(grid.paper.scores["base"]["wnut17"]) <= set(grid.columns)
