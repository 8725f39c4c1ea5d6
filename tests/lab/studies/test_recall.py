"""Cells of small models from scratch: run, timed, resumed, shown, and refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jat_graph.cli import main
from jat_graph.lab.studies import estimate_cells, load_grid, results_frame, run_experiment
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.costs import draw_costs
from jat_graph.lab.studies.curves import Curves, draw_curves
from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.kinds import KINDS
from jat_graph.lab.studies.recall import Recall
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.rows import experiment_rows
from jat_graph.lab.studies.small_reader import SmallReader
from jat_graph.tasks import PartnersTask, get_task
from jat_graph.training import TrainingOptions
from jat_graph.training.objectives import objective_for

Grids = Callable[..., Grid]

SHORT = {"steps": 4, "every": 2, "batch_size": 8}
CONTENT: dict[str, Any] = {
    "name": "mine",
    "title": "Two steps away",
    "kind": "partners",
    "tasks": ["1 layer, 1 pairs", "2 layers, 2 pairs"],
    "seeds": 2,
    "x_label": "pairs",
    "partners": SHORT,
    "arms": [
        {"name": "plain"},
        {"name": "pairs", "heads": "paper", "settings": {"heads": "1/1", "threshold": 1.0}},
    ],
}


def grid(**changes: Any) -> Grid:
    """Return a grid of cells that take a moment, with any key replaced."""
    return Grid.from_dict(CONTENT | changes)


def test_a_cell_says_how_a_model_did_on_the_way(tmp_path: Path) -> None:
    cell = Cell("2 layers, 2 pairs", "pairs", 1)
    record = KINDS["partners"].run_cell(cell, Plan(grid()), tmp_path, False)
    assert record.cell == cell and record.steps == 4 and record.device in ("cpu", "cuda")
    assert list(record.scores) == ["test", "step 2", "step 4"]
    assert record.scores["test"] == record.scores["step 4"]
    assert set(record.scores["test"]) == {"accuracy", "accuracy_1", "accuracy_2"}
    assert record.heads is not None and record.heads["heads"] == 4
    assert record.examples == {"train": 32, "test": PartnersTask().test_size}
    again = KINDS["partners"].run_cell(cell, Plan(grid()), tmp_path, False)
    assert replace(again, seconds=record.seconds) == record


def test_far_recall_has_its_own_grids(tmp_path: Path) -> None:
    window = {"hop_weights": [1.0], "pattern": "window:3", "heads": "1/1"}
    arms = [{"name": "window", "heads": "paper", "settings": window}, {"name": "everywhere"}]
    changes = {"kind": "far-recall", "tasks": ["1 layer, 5 filler"], "far-recall": SHORT}
    content = {name: value for name, value in CONTENT.items() if name != "partners"}
    far = Grid.from_dict(content | changes | {"arms": arms})
    record = KINDS["far-recall"].run_cell(
        Cell("1 layer, 5 filler", "window", 0), Plan(far), tmp_path, False
    )
    assert set(record.scores["test"]) == {"accuracy", "accuracy_8"}


def test_an_experiment_without_a_model_is_run_once_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(grid(), device="cpu")
    results = run_experiment(plan, tmp_path, progress=False)
    assert len(results.records) == 8 and results.model == "from scratch"
    text = (tmp_path / "mine.md").read_text(encoding="utf-8")
    assert "Small models from scratch, sequences made by the library, 2 seeds." in text
    assert "right once in 8 times" in text and "100.0% with 1, 45.3% with 2" in text
    weights = sum(p.numel() for p in SmallReader(PartnersTask(pairs=2), 2, None).parameters())
    assert f"learned with 2 layers, 2 pairs: {weights:,} (plain, pairs)." in text
    assert "pairs 2" in text and (tmp_path / "mine.png").exists()
    assert (tmp_path / "mine-steps.png").stat().st_size > 1000
    shown = [row for row in experiment_rows(results) if row.number is not None]
    assert {(row.stem, row.number) for row in shown} == {
        ("2 layers, 2 pairs, test, accuracy", 1),
        ("2 layers, 2 pairs, test, accuracy", 2),
    }
    assert set(results_frame(results)["split"]) == {"test"}

    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(Recall, "run_cell", refuse)
    assert run_experiment(plan, tmp_path, progress=False) == results
    more = Plan(grid(seeds=3), device="cpu")
    assert [entry.seeds for entry in estimate_cells(more, tmp_path)] == [(2,)] * 4


def test_curves_show_the_largest_size_by_seeds_and_their_means() -> None:
    def record(arm: str, seed: int, *shares: float) -> Record:
        scores = {f"step {2 * n}": {"accuracy_2": share} for n, share in enumerate(shares, 1)}
        return Record("2 layers, 2 pairs", arm, seed, {"test": {"accuracy_2": 1.0}} | scores)

    records = (record("plain", 0, 0.2, 0.4), record("plain", 1, 0.4, 0.8), record("pairs", 0, 0.5))
    results = Results(grid(), "", "from scratch", None, {}, {}, records)
    curves = KINDS["partners"].curves(results)
    assert curves == {
        "2 layers, 2 pairs": Curves(
            {"plain": [[(2, 0.2), (4, 0.4)], [(2, 0.4), (4, 0.8)]], "pairs": [[(2, 0.5)]]},
            PartnersTask().chance(2),
        )
    }
    assert KINDS["train"].curves(results) == {}
    (axis,) = draw_curves(curves, "Mine").axes
    lines = axis.get_lines()
    named = {line.get_label(): line for line in lines if not line.get_label().startswith("_")}
    assert list(named) == ["plain", "pairs", "the commonest value"]
    assert list(named["plain"].get_ydata()) == pytest.approx([30, 60])
    faint = [line for line in lines if line not in named.values()]
    assert [list(line.get_ydata()) for line in faint] == [[20, 40], [40, 80], [50]]
    assert len({line.get_color() for line in faint}) == 2


def test_where_all_sequences_are_of_one_size_their_accuracy_is_shown_once() -> None:
    task, scores = "1 layer, 48 filler", {"accuracy": 0.5, "accuracy_8": 0.5}
    record = Record(task, "window", 0, scores={"test": scores, "step 50": scores})
    found = Results(load_grid("far-recall"), "", "", None, {}, {}, (record,))
    assert [row.metric for row in experiment_rows(found)] == ["accuracy"]
    assert KINDS["far-recall"].asked(found.grid, task) == "accuracy"
    assert KINDS["far-recall"].curves(found)[task].lines == {"window": [[(50, 0.5)]]}


def test_chance_is_told_of_the_sizes_that_are_shown() -> None:
    record = Record("2 layers, 2 pairs", "plain", 0, scores={"test": {"accuracy": 0.5}})

    def told(of: Grid) -> str:
        caption = KINDS["partners"].caption(Results(of, "", "", None, {}, {}, (record,)))
        return caption.remarks[0].partition("is right ")[2]

    one, two = (f"{PartnersTask(pairs=2).chance(size):.1%} with {size}" for size in (1, 2))
    assert told(grid()).endswith(f"{one}, {two}.")
    assert told(grid(columns=["accuracy_2"])).endswith(f"right {two}.")


def test_costs_are_of_settings_that_differ_in_their_layers_alone() -> None:
    def cell(task: str, arm: str, seed: int, share: float, seconds: float) -> Record:
        scores = {"test": {"accuracy": 0.9, "accuracy_2": share}}
        return Record(task, arm, seed, scores=scores, seconds=seconds, steps=4, device="cpu")

    of = grid(tasks=["1 layer, 2 pairs", "2 layers, 2 pairs", "1 layer, 4 pairs"])
    records = [
        cell("1 layer, 2 pairs", "plain", 0, 0.25, 9.0),
        cell("1 layer, 2 pairs", "plain", 1, 0.75, 7.0),
        cell("2 layers, 2 pairs", "plain", 0, 1.0, 20.0),
        cell("1 layer, 2 pairs", "pairs", 0, 0.5, 8.0),
    ]
    whole = Results(of, "", "from scratch", None, {}, {}, tuple(records))
    found = KINDS["partners"].costs(whole)
    assert list(found) == ["2 pairs"] and list(found["2 pairs"]) == ["plain", "pairs"]
    shallow, deep = found["2 pairs"]["plain"]
    assert (shallow.seconds, shallow.share) == (7.0, 0.5)
    assert (deep.seconds, deep.share) == (20.0, 1.0)
    assert 1.8 * shallow.weights < deep.weights < 2 * shallow.weights
    (pairs,) = found["2 pairs"]["pairs"]
    assert pairs.weights == shallow.weights  # these pairs have no strengths
    figure = draw_costs(found, of.title)
    assert [axis.get_title() for axis in figure.axes] == ["2 pairs", "2 pairs"]
    drawn = [[list(line.get_xdata()) for line in axis.get_lines()] for axis in figure.axes]
    assert drawn[1] == [[7.0, 20.0], [8.0]]
    assert KINDS["partners"].costs(replace(whole, records=tuple(records[:2]))) == {}


def test_a_step_of_a_small_model_says_what_it_takes(tmp_path: Path) -> None:
    plan = Plan(grid(partners={"steps": 1000, "every": 100}))
    job = KINDS["partners"].job(plan.cells[0], plan, tmp_path)
    assert job is not None and job.size == 1
    for patience in (0.0, 60.0):
        cost = job.time(patience)
        assert cost.seconds > 0 and cost.memory is None


def test_an_estimate_writes_nothing_and_knows_a_time(tmp_path: Path) -> None:
    found = estimate_cells(Plan(grid()), tmp_path / "none")
    assert [(entry.seeds, entry.source) for entry in found] == [((0, 1), "timed steps")] * 4
    assert all(entry.total is not None for entry in found)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tasks": ["cola"]}, "tasks must be '1 layer, 5 pairs' …, got 'cola'"),
        ({"tasks": ["0 layers, 5 pairs"]}, "tasks must be '1 layer, 5 pairs' …"),
        ({"partners": {"step": 3}}, "unknown 'step', wanted one of steps"),
        ({"partners": {"steps": 0}}, "steps must be at least 1, got 0"),
        ({"training": {"epochs": 1}}, r"must have no \[training\]"),
        ({"columns": ["accuracy_3"]}, "columns must be among accuracy, accuracy_1, accuracy_2"),
        ({"tasks": ["1 layer, 5 pairs, 6 features"]}, "channels must be a multiple of heads=4"),
        ({"tasks": ["1 layer, 5 pairs, wide"]}, "tasks must be '1 layer, 5 pairs' …"),
        (
            {"arms": [{"name": "both", "heads": "stones", "triplets": {}}]},
            "arm 'both' must have heads of one kind, got triplet heads beside others",
        ),
        (
            {"arms": [{"name": "x", "options": {"epochs": 3}}]},
            "arm 'x' must have no options",
        ),
        (
            {"arms": [{"name": "x", "heads": "paper", "density": 0.1}]},
            "arm 'x' must have no density",
        ),
        (
            {"arms": [{"name": "x", "heads": "paper", "settings": {"heads": 5}}]},
            "arm 'x': heads=5 needs head 4",
        ),
    ],
)
def test_what_cannot_be_run_is_no_grid(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        grid(**changes)
    assert str(caught.value).startswith("grid 'mine'") and "\n" not in str(caught.value)


def test_a_model_and_an_unknown_device_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="so that it takes no model, got 'bert'"):
        run_experiment(Plan(grid(), "bert"), tmp_path / "none")
    with pytest.raises(ValueError, match="device must be one of auto, cpu, got 'tpu'"):
        estimate_cells(Plan(grid(), device="tpu"), tmp_path / "none")
    with pytest.raises(ValueError, match="experiment layers needs a model"):
        run_experiment(Plan(load_grid("layers")), tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["partners", "far-recall"])
def test_the_grids_are_what_their_names_say(name: str) -> None:
    found = load_grid(name)
    kind = KINDS[name]
    assert found.kind == name and found.seeds == 3 and isinstance(kind, Recall)
    settings = [kind.setting(task, name) for task in found.tasks]
    assert {setting.layers for setting in settings} == {1, 2, 3}
    if name == "partners":
        assert {max(setting.task.sizes) for setting in settings} == {*range(3, 9), 12, 16}


def test_the_command_asks_for_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ['kind = "partners"', 'name = "mine"', 'title = "Mine"', 'tasks = ["1 layer, 1 pairs"]']
    table = ["seeds = 1", "[partners]", "steps = 2", "[[arms]]", 'name = "plain"']
    path = tmp_path / "mine.toml"
    path.write_text("\n".join([*lines, *table]), encoding="utf-8")
    common = ["jat-graph", "experiment", str(path), "--output", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", [*common, "--device", "cpu"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    assert "the table is mine.md" in capsys.readouterr().out


def test_no_model_of_texts_is_trained_for_such_a_task() -> None:
    options = TrainingOptions("a-model", "partners", "unused")
    with pytest.raises(ValueError, match="task partners has ids that no model of texts reads"):
        objective_for(get_task("partners"), options)
