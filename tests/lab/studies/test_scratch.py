"""Cells of small models that learn a task from nothing: run, resumed, timed, shown, refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoTokenizer

from jat_graph import JatConfig
from jat_graph.lab.studies import estimate_cells, load_grid, run_experiment, scratch
from jat_graph.lab.studies.arms import build_heads
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.kinds import KINDS
from jat_graph.lab.studies.rows import experiment_rows
from jat_graph.lab.studies.small_models import HEADS
from jat_graph.tasks import get_task
from tests.lab.studies.conftest import one_thread

__all__ = ["one_thread"]

KIND = KINDS["scratch"]
STEP = "1\t{}\tw\t{}\tX\t_\t2\tnsubj:pass\t_\t_\n2\t{}\tw\tVERB\tX\t_\t0\troot\t_\t_\n\n"
CONTENT: dict[str, Any] = {
    "name": "mine",
    "title": "From scratch",
    "kind": "scratch",
    "tasks": ["ewtrelations", "choralesquarter", "tinyshakespeare"],
    "seeds": 1,
    "columns": ["accuracy", "bits_per_token", "bits_per_character"],
    "scratch": {"layers": 1},
    "training": {"epochs": 1, "batch_size": 8, "max_length": 16, "learning_rate": 1e-3},
    "arms": [{"name": "plain"}, {"name": "stones", "heads": "stones"}],
}


def grid(**changes: Any) -> Grid:
    """Return a grid of cells that take a second, with any key replaced."""
    return Grid.from_dict(CONTENT | changes)


@pytest.fixture(scope="module")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a few trees, chorales and lines."""
    folder = tmp_path_factory.mktemp("data")
    for split, names in (("train", "cat cat dog dog once"), ("dev", "dog bird"), ("test", "cat")):
        trees = [STEP.format(name, "NOUN", "runs") for name in names.split()]
        (folder / f"en_ewt-ud-{split}.conllu").write_text("".join(trees))
    chorale = [[60 + step % 5, 67, 64, 48] for step in range(12)]
    chorales = {"train": [chorale] * 4, "valid": [chorale], "test": [chorale]}
    (folder / "jsb-chorales-quarter.json").write_text(json.dumps(chorales))
    (folder / "input.txt").write_text("Speak, speak.\n\nWe know't.\n" * 20)
    return folder


def plan(data: Path, **changes: Any) -> Plan:
    """Return a plan of the small grid."""
    return Plan(grid(**changes), data_dir=data, device="cpu")


def test_an_experiment_is_run_once_and_shown(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = plan(tiny_data)
    results = run_experiment(mine, tmp_path, progress=False)
    assert len(results.records) == 6 and results.model == "from scratch"
    shown = {(row.task, row.split, row.metric) for row in experiment_rows(results)}
    assert shown == {
        ("ewtrelations", "test", "accuracy"),
        ("choralesquarter", "test", "bits_per_token"),
        ("tinyshakespeare", "", "bits_per_character"),  # its only dev set
    }
    text = (tmp_path / "mine.md").read_text(encoding="utf-8")
    assert "Small models from scratch, of 1 layer, 64 features and 4 heads, data folder" in text
    stones = results.of("ewtrelations", "stones")[0]
    assert stones.heads is not None and stones.heads["graph"] == "stones"
    assert stones.strengths and set(stones.answers) == {"test"}
    assert set(stones.scores) == {"validation", "test"}
    assert not list(tmp_path.rglob("*.safetensors"))

    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(scratch.Scratch, "run_cell", refuse)
    assert run_experiment(mine, tmp_path, progress=False) == results


def test_a_cell_that_was_interrupted_goes_on(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, cell = plan(tiny_data), Cell("ewtrelations", "stones", 0)
    whole = KIND.run_cell(cell, mine, tmp_path / "whole", False)

    def kill(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(scratch, "write_model", kill)
        KIND.run_cell(cell, mine, tmp_path / "cut", False)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(scratch, "train", kill)
        KIND.run_cell(cell, mine, tmp_path / "cut", False)
    assert (tmp_path / "cut" / scratch.START_FOLDER).is_dir()
    again = KIND.run_cell(cell, mine, tmp_path / "cut", False)
    assert replace(again, seconds=whole.seconds) == whole


def test_arms_begin_alike_and_seeds_do_not(tiny_data: Path, tmp_path: Path) -> None:
    fixed = {"name": "no jumps", "heads": "stones", "settings": {"strength": 0.0}}
    mine = plan(tiny_data, arms=[{"name": "plain"}, fixed], seeds=2)
    cells = [("plain", 0), ("no jumps", 0), ("plain", 1)]
    plain, same, other = (
        KIND.run_cell(Cell("choralesquarter", arm, seed), mine, tmp_path / f"{arm}{seed}", False)
        for arm, seed in cells
    )
    first = plain.scores["test"]["perplexity"]
    assert same.scores["test"]["perplexity"] == pytest.approx(first, rel=1e-5)
    assert other.scores["test"]["perplexity"] != pytest.approx(first, rel=1e-5)


@pytest.mark.parametrize(
    ("task", "kind", "known"),
    [
        ("ewtrelations", "bert", {"cat", "dog", "runs"}),
        ("tinyshakespeare", "llama", set("Speak, s.\nWnow't")),
        ("choralesquarter", "llama", None),
    ],
)
def test_a_model_is_made_for_its_task(
    task: str, kind: str, known: set[str] | None, tiny_data: Path, tmp_path: Path
) -> None:
    mine = plan(tiny_data)
    options = mine.options(Cell(task, "plain", 0), tmp_path, model=str(tmp_path / "start"))
    scratch.prepare_start(options, scratch.Sizes(layers=3))
    config = AutoConfig.from_pretrained(tmp_path / "start")
    assert (config.model_type, config.num_hidden_layers) == (kind, 3)
    if known is None:
        assert not list((tmp_path / "start").glob("tokenizer*"))
    else:
        vocabulary = AutoTokenizer.from_pretrained(tmp_path / "start").get_vocab()
        assert {word for word in vocabulary if word[0] != "["} == known


def test_expressions_are_known_whole(tmp_path: Path) -> None:
    mine = Plan(grid(tasks=["listops"], columns=[]), device="cpu")
    options = mine.options(Cell("listops", "plain", 0), tmp_path, model=str(tmp_path / "start"))
    scratch.prepare_start(options, scratch.Sizes())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "start")
    texts = list(get_task("listops").load(None, ["test"])["test"]["expression"])
    found = tokenizer(texts)["input_ids"]
    assert [len(ids) - 2 for ids in found] == [len(text.split()) for text in texts]
    assert all(tokenizer.unk_token_id not in ids for ids in found)


def test_an_estimate_writes_nothing_and_reads_no_more_than_it_times(
    tiny_data: Path, tmp_path: Path
) -> None:
    found = estimate_cells(plan(tiny_data), tmp_path / "none")
    assert len(found) == 6 and all(entry.seconds is not None for entry in found)
    assert not (tmp_path / "none").exists()


def test_the_grid_is_what_the_questions_page_asks() -> None:
    found = load_grid("scratch")
    assert found.kind == "scratch" and found.seeds == 3
    assert sorted(found.tasks) == ["choralesquarter", "ewtrelations", "listops", "tinyshakespeare"]
    plain, pairs, stones = (build_heads(arm, layers=2, heads=HEADS) for arm in found.arms)
    assert plain is None and stones == JatConfig.stones()
    assert isinstance(pairs, JatConfig) and pairs.graph == "pairs"
    assert set(pairs.strengths()[0]) == {"learned"} and pairs.soft_temperature == 1.0
    cells = [found.options(task, arm) for task in found.tasks for arm in found.arms]
    assert len({options["learning_rate"] for options in cells}) == 1


# --- wrong inputs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tasks": ["squad"]}, "tasks must be of classes, of tagged words or of language, got 's"),
        ({"tasks": ["ewt-pos"]}, "task must be written 'ewtpos', got 'ewt-pos'"),
        ({"scratch": {"layer": 1}}, "unknown 'layer', wanted one of layers"),
        ({"scratch": {"layers": 0}}, r"\[scratch\]: layers must be at least 1, got 0"),
        ({"scratch": {"seen": 0}}, r"\[scratch\]: seen must be at least 1, got 0"),
        ({"training": {"depth": 3}}, r"\[training\] must have no depth, which \[scratch\] decides"),
        ({"training": {"from_scratch": False}}, "must have no from_scratch"),
        ({"columns": ["f1"]}, "columns must be among accuracy, .*got 'f1'"),
        ({"arms": [{"name": "x", "options": {"epochs": 3}}]}, "arm 'x' must have no options"),
        (
            {"arms": [{"name": "x", "heads": "paper", "density": 0.1}]},
            "arm 'x' must have no density",
        ),
    ],
)
def test_what_cannot_be_run_is_no_grid(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        grid(**changes)
    assert str(caught.value).startswith("grid 'mine'") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        (
            {"heads": "efficient"},
            "tinyshakespeare, arm 'x': .*='significance' looks at",
        ),
        ({"heads": "paper", "settings": {"heads": 5}}, "tinyshakespeare, arm 'x': heads=5 needs"),
        ({"heads": "triplet"}, "tinyshakespeare, arm 'x': "),
    ],
)
def test_heads_that_do_not_fit_are_refused_before_anything_is_run(
    arm: dict[str, Any], words: str, tiny_data: Path, tmp_path: Path
) -> None:
    arms = [{"name": "x", **arm}]
    wrong = plan(tiny_data, tasks=["tinyshakespeare"], arms=arms, columns=[])
    with pytest.raises(ValueError, match=words) as caught:
        run_experiment(wrong, tmp_path / "none", progress=False)
    assert "\n" not in str(caught.value) and not (tmp_path / "none").exists()


def test_a_model_and_missing_data_are_refused(tiny_data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="so that it takes no model, got 'bert'"):
        run_experiment(replace(plan(tiny_data), model="bert"), tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"task ewtrelations needs en_ewt-ud-train.conllu"):
        run_experiment(plan(tmp_path), tmp_path / "none")
    with pytest.raises(ValueError, match="cannot be loaded by name"):
        run_experiment(replace(plan(tiny_data), data_dir=None), tmp_path / "none")
    assert not (tmp_path / "none").exists()


# --- real data -----------------------------------------------------------------------------------


def test_a_small_model_learns_relations(data_dir: Path, tmp_path: Path) -> None:
    few = {"max_train_samples": 400, "max_eval_samples": 50, "max_length": 24}
    mine = plan(data_dir, training={**few, "epochs": 2, "learning_rate": 3e-3, "batch_size": 16})
    record = KIND.run_cell(Cell("ewtrelations", "plain", 0), mine, tmp_path, False)
    found = record.scores["test"]["accuracy"]
    assert found is not None and found > 0.25  # every tenth word is the commonest, punct
