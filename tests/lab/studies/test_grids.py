"""The grids that come with the library: the paper's arms, tasks and numbers."""

from pathlib import Path
from typing import Any

import pytest

from jat_graph import JatConfig
from jat_graph.lab.studies import Cell, Grid, Plan, load_grid
from jat_graph.lab.studies.arms import build_heads
from jat_graph.lab.studies.cells import cell_folder
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.report import ORDER
from jat_graph.lab.studies.rows import reference_arm
from jat_graph.tasks import get_task
from jat_graph.training import BothHeads

ABLATIONS = ("layers", "heads", "order")
TRAINED = ("glue", "superglue", "squad", *ABLATIONS, "depth", "runtime")


@pytest.fixture(params=TRAINED)
def grid(request: pytest.FixtureRequest) -> Grid:
    return load_grid(request.param)


def test_a_grid_is_named_after_its_file(grid: Grid) -> None:
    assert grid.name in ORDER
    assert grid.kind == "train"
    assert grid.seeds >= 3
    assert grid.budget and grid.source
    assert grid.base.heads == "none"


def test_the_dev_set_decides_nothing(grid: Grid) -> None:
    assert all(
        not grid.options(task, arm)["select_best"] for task in grid.tasks for arm in grid.arms
    )
    assert (grid.tuning is not None) == any(arm.tune for arm in grid.arms)


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_are_on_the_papers_tasks(name: str) -> None:
    grid = load_grid(name)
    assert grid.tasks == ("cola", "mrpc", "rte", "stsb")
    assert grid.paper.model == "RoBERTa-base"
    assert grid.paper.scores["base"] == {"cola": 63.6, "mrpc": 90.2, "rte": 78.7, "stsb": 91.2}
    assert set(grid.paper.scores) == {arm.name for arm in grid.arms}
    assert all(set(row) == set(grid.tasks) for row in grid.paper.scores.values())


@pytest.mark.parametrize("name", [*ABLATIONS, "depth"])
def test_ablations_choose_rho_once_for_each_task(name: str) -> None:
    grid = load_grid(name)
    (chooser,) = (arm for arm in grid.arms if arm.tune is True)
    jumping = [arm for arm in grid.arms if arm.heads != "none" and arm is not chooser]
    assert jumping and all(arm.tune == chooser.name for arm in jumping)
    assert grid.tuning is not None and grid.tuning.thresholds == (4.0, 6.0, 8.0, 10.0)


def test_tables_of_the_paper_are_whole() -> None:
    glue = load_grid("glue").paper
    scores = glue.scores
    assert glue.quoted == ("ELMo",)
    assert set(scores) == {"ELMo", "base", "A³", "JAT", "JAT†"}
    assert {name: sum(row.values()) / len(row) for name, row in scores.items()} == pytest.approx(
        {"ELMo": 68.7, "base": 79.7, "A³": 81.5, "JAT": 81.7, "JAT†": 81.6}, abs=0.06
    )
    scores = load_grid("superglue").paper.scores
    assert [len(scores[name]) for name in ("base", "JAT", "JAT†")] == [7, 4, 7]
    assert [len(scores[name]) for name in ("CBOW", "most frequent class")] == [7, 7]
    assert scores["JAT†"]["superrte"] == 80.9


def test_layers_are_thirds_and_halves() -> None:
    grid = load_grid("layers")
    found = {arm.name: build_heads(arm, layers=6, heads=12) for arm in grid.arms[1:]}
    assert {name: config.layers for name, config in found.items() if config} == {
        "layers 1–4": (0, 1),
        "layers 5–8": (2, 3),
        "layers 9–12": (4, 5),
        "layers 1–6": (0, 1, 2),
        "layers 7–12": (3, 4, 5),
    }
    assert grid.paper.scores["layers 1–6"]["rte"] == 79.4


def test_heads_go_from_two_to_twelve() -> None:
    grid = load_grid("heads")
    found = [build_heads(arm, layers=6, heads=12) for arm in grid.arms[1:]]
    assert [config.heads for config in found if config] == [2, 4, 6, 8, 10, 12]
    assert [arm.x for arm in grid.arms[1:]] == [2, 4, 6, 8, 10, 12]
    assert grid.paper.scores["2 heads"] == {"cola": 63.7, "mrpc": 91.4, "rte": 80.2, "stsb": 91.1}


def test_order_one_of_the_table_is_one_hop() -> None:
    grid = load_grid("order")
    found = [build_heads(arm, layers=6, heads=12) for arm in grid.arms[1:]]
    assert [getattr(config, "hop_weights", None) for config in found] == [
        *((0.0, 1.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0))
    ]
    assert grid.paper.scores["1 hop"] == {"cola": 65.4, "mrpc": 91.4, "rte": 79.9, "stsb": 91.3}


def test_every_depth_has_its_own_base() -> None:
    grid = load_grid("depth")
    for arm in grid.arms:
        base = reference_arm(grid, arm)
        assert (base.heads, base.x) == ("none", arm.x)
        assert arm.options.get("depth") == base.options.get("depth")
    assert grid.base.x == 0 and not grid.base.options
    assert {arm.x for arm in grid.arms} == set(range(-4, 4))


@pytest.mark.parametrize("name", ["glue", "superglue", "squad"])
def test_tables_have_the_papers_arms(name: str) -> None:
    grid = load_grid(name)
    kinds = {arm.name: arm.heads for arm in grid.arms}
    wanted = {"base": "none", "A³": "triplet", "JAT": "paper", "JAT†": "efficient"}
    assert wanted.items() <= kinds.items()


def test_jat_and_triplet_heads_stand_in_one_model() -> None:
    found = build_heads(load_grid("glue").arm("JAT, released code, with A³"), layers=6, heads=12)
    assert isinstance(found, BothHeads)
    assert found.jump == JatConfig.released(heads=6, layers=(0, 1, 3, 5))
    assert (found.triplet.heads, found.triplet.layers) == (3, None)


def test_the_efficient_heads_are_cheaper_in_the_paper_by_eq_8() -> None:
    config = build_heads(load_grid("glue").arm("JAT†"), layers=12, heads=12)
    assert getattr(config, "key_selection", None) == "significance"


def test_runs_that_are_timed_do_little_else() -> None:
    grid = load_grid("runtime")
    assert grid.columns == ("seconds",)
    assert not any(arm.tune for arm in grid.arms)
    assert grid.training["max_eval_samples"] <= 16


# --- long texts ----------------------------------------------------------------------------------

LONG = load_grid("long")
SMALLER = sorted((Path(__file__).parents[3] / "docs" / "experiments").glob("long-*.toml"))
LONG_GRIDS = [LONG, *(load_grid(str(path)) for path in SMALLER)]


@pytest.mark.parametrize("grid", LONG_GRIDS, ids=[grid.name for grid in LONG_GRIDS])
def test_arms_of_long_texts_share_a_window(grid: Grid) -> None:
    window, short, stones, tokens = grid.arms
    assert short.heads == "none"
    assert short.options in ({}, {"max_length": 512})  # nothing but its length
    found = [build_heads(arm, layers=6, heads=12) for arm in (window, stones, tokens)]
    alone, jumping, reading = (config for config in found if isinstance(config, JatConfig))
    assert alone.hop_weights == reading.hop_weights == (1.0,)
    assert jumping.graph == "stones" and jumping.strength == "learned"  # values, too
    assert jumping.key_selection == "sampled"
    assert alone.pattern == jumping.pattern
    assert reading.pattern == f"{alone.pattern}+global:16"
    for arm in grid.arms:
        for task in grid.tasks:
            options = grid.options(task, arm)
            assert options["attention_dropout"] == 0 and not options["select_best"]
            assert options["max_length"] == 512 or arm is not short


@pytest.mark.parametrize("arm", [arm.name for arm in LONG.arms])
@pytest.mark.parametrize("task", ["covidqafarhalf", "qmsum"])
def test_a_cell_of_long_texts_runs(
    task: str, arm: str, tiny_model: str, data_dir: Path, tmp_path: Path
) -> None:
    tiny: dict[str, Any] = {"epochs": 1, "max_train_samples": 2, "max_eval_samples": 2}
    training = LONG.to_dict()["training"] | tiny | {"max_length": 640}
    content = LONG.to_dict() | {"tasks": [task], "training": training}
    del content["training"]["imdb"]
    plan = Plan(Grid.from_dict(content), tiny_model, data_dir, "cpu")
    plan.check()
    cell = Cell(task, arm, 0)
    record = kind_of(plan.grid).run_cell(cell, plan, cell_folder(tmp_path, cell), False)
    assert record.examples == {"train": 2, "validation": 2, "test": 2}
    assert all(0 <= scores[name] <= 1 for scores in record.scores.values() for name in scores)
    assert set(record.scores["test"]) == (
        {"accuracy"} if task == "qmsum" else {"f1", "exact_match"}
    )


def test_the_tasks_of_a_grid_read_one_folder(data_dir: Path) -> None:
    grid = load_grid("pretrained")
    for task in map(get_task, grid.tasks):
        assert len(task.load(data_dir, ["validation"])["validation"]) > 200
