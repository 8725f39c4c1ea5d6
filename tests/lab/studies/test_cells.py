"""The cells of a grid: their order, their parts, and what each is run with."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import TripletConfig
from jat_graph.lab.studies import Cell, Grid, Plan
from jat_graph.lab.studies.cells import cell_folder, output_of
from tests.lab.studies.conftest import Plans
from tests.lab.studies.support import small_grid


def test_all_arms_of_a_seed_come_before_the_next_seed() -> None:
    cells = Plan(small_grid(tasks=["cola", "rte"]), "model").cells
    assert cells[0] == Cell("cola", "base", 0)
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4
    assert [cell.arm for cell in cells] == ["base", "JAT"] * 4


@given(st.lists(st.integers(0, 9998), min_size=1, max_size=4, unique=True))
def test_seeds_may_be_named(seeds: list[int]) -> None:
    grid = small_grid(seeds=seeds)
    assert [cell.seed for cell in Plan(grid, "model").cells[:: len(grid.arms)]] == seeds
    assert Grid.from_dict(grid.to_dict()) == grid


@given(st.integers(1, 12), st.integers(1, 5))
def test_parts_hold_every_cell_once(count: int, seeds: int) -> None:
    plan = Plan(small_grid(seeds=seeds), "model")
    parts = [plan.choose((index, count)) for index in range(1, count + 1)]
    assert sorted(map(str, plan.cells)) == sorted(str(cell) for part in parts for cell in part)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(("index", "count"), [(0, 2), (3, 2), (1, 0)])
def test_there_is_no_other_part(index: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"part must be I/N .* got {index}/{count}"):
        Plan(small_grid(), "model").choose((index, count))


@given(
    st.tuples(st.integers(1, 3), st.just(3)),
    st.sets(st.sampled_from(["cola", "rte"])),
    st.sets(st.sampled_from(["base", "JAT"])),
)
def test_some_tasks_and_arms_are_cells_of_all(
    part: tuple[int, int], tasks: set[str], arms: set[str]
) -> None:
    plan = Plan(small_grid(tasks=["cola", "rte"]), "model")
    chosen = plan.choose((1, 1), sorted(tasks), sorted(arms))
    wanted = [
        cell
        for cell in plan.cells
        if (not tasks or cell.task in tasks) and (not arms or cell.arm in arms)
    ]
    assert list(chosen) == wanted
    assert set(plan.choose(part, sorted(tasks), sorted(arms))) <= set(wanted)


def test_there_is_no_other_task_and_arm() -> None:
    plan = Plan(small_grid(), "model")
    with pytest.raises(ValueError, match="task must be one of 'cola', got 'rte'"):
        plan.choose(tasks=["rte"])
    with pytest.raises(ValueError, match="arm must be one of 'base', 'JAT', got 'jat'"):
        plan.choose(arms=["base", "jat"])


def test_a_cells_folder_and_name() -> None:
    cell = Cell("cola", "layers 1–4", 2)
    assert cell_folder(Path("out"), cell) == Path("out/runs/cola/layers-1-4/seed-2")
    assert output_of(cell_folder(Path("out"), replace(cell, arm="runs"))) == Path("out")
    assert str(cell) == "cola, layers 1–4, seed 2"


def test_models_and_data_are_named_without_the_way_to_them(tmp_path: Path) -> None:
    model = tmp_path / "minilm" / "model"
    model.mkdir(parents=True)
    plan = Plan(small_grid(), str(model), tmp_path)
    assert plan.model_name == "minilm/model"
    assert plan.data_name == tmp_path.name
    plan = Plan(small_grid(), "google-bert/bert-base-uncased")
    assert plan.model_name == "google-bert/bert-base-uncased"
    assert plan.data_name is None


def test_options_and_heads_of_a_cell(plans: Plans, tmp_path: Path) -> None:
    arms = [
        {"name": "base"},
        {
            "name": "JAT",
            "heads": "paper",
            "settings": {"heads": "6/12", "layers": "7-12/12"},
            "options": {"depth": "+2", "epochs": 7},
        },
    ]
    plan = plans(arms=arms)
    assert plan.shape == (2, 4)
    cell = Cell("cola", "JAT", 1)
    options = plan.options(cell, tmp_path)
    assert (options.seed, options.epochs, options.depth, options.resume) == (1, 7, 4, True)
    assert (options.batch_size, options.device, options.select_best) == (16, "cpu", False)
    assert plan.options(cell, tmp_path, held_out=0.5).held_out == 0.5
    assert plan.heads(cell) == JatConfig(heads=2, layers=(2, 3))
    assert plan.heads(cell, 4.0) == JatConfig(PairGraph(threshold=4.0), heads=2, layers=(2, 3))
    assert plan.heads(Cell("cola", "base", 0)) is None


def test_arms_that_do_not_fit_the_model(plans: Plans) -> None:
    deep = [{"name": "base"}, {"name": "low", "options": {"depth": "-2"}}]
    with pytest.raises(ValueError, match="cola, arm 'low': depth must leave a layer"):
        plans(arms=deep).check()
    high = [{"name": "base"}, {"name": "JAT", "heads": "paper", "settings": {"layers": [2]}}]
    with pytest.raises(ValueError, match=r"cola, arm 'JAT': .*needs layer 2"):
        plans(arms=high).check()
    wide = [{"name": "base"}, {"name": "JAT", "heads": "paper", "settings": {"heads": 5}}]
    with pytest.raises(ValueError, match=r"cola, arm 'JAT': .*needs head 4"):
        plans(arms=wide).check()
    triplets = [{"name": "base"}, {"name": "A³", "heads": "triplet", "settings": {"heads": 6}}]
    with pytest.raises(ValueError, match="cola, arm 'A³': heads must be at most 4"):
        plans(arms=triplets).check()
    both = {"name": "both", "heads": "released", "settings": {"heads": 2}, "triplets": {}}
    with pytest.raises(ValueError, match="arm 'both': head 1 of layer 0 must be a jump or a trip"):
        plans(arms=[{"name": "base"}, both]).check()
    plans(arms=[{"name": "base"}, both | {"settings": {"heads": 1}}]).check()
    apart = {"settings": {"heads": 2, "layers": [0]}, "triplets": {"layers": [1]}}
    plans(arms=[{"name": "base"}, both | apart]).check()
    plans(arms=[{"name": "base"}, {"name": "A³", "heads": "triplet"}]).check()
    assert plans(arms=[{"name": "A³", "heads": "triplet"}]).heads(
        Cell("cola", "A³", 0)
    ) == TripletConfig(heads=3)


def test_arms_that_agree_on_a_small_model_are_named(
    plans: Plans, caplog: pytest.LogCaptureFixture
) -> None:
    arms = [
        {"name": "base"},
        {"name": "2 heads", "heads": "paper", "settings": {"heads": "2/12"}},
        {"name": "4 heads", "heads": "paper", "settings": {"heads": "4/12"}},
        {"name": "6 heads", "heads": "paper", "settings": {"heads": "6/12"}},
    ]
    with caplog.at_level(logging.WARNING, logger="jat_graph"):
        plans(arms=arms).check()
    assert caplog.messages == ["cola: arms 2 heads and 4 heads are one on this model"]


@pytest.mark.parametrize("tune", [True, "layers 1–4"])
def test_tuned_arms_that_agree_are_named(
    plans: Plans, caplog: pytest.LogCaptureFixture, tune: bool | str
) -> None:
    tuned = {"heads": "paper", "tune": True}
    arms = [
        {"name": "base"},
        {"name": "layers 1–4", **tuned, "settings": {"layers": "1-4/12", "heads": 2}},
        {"name": "layers 1–6", **tuned, "settings": {"layers": "1-6/12", "heads": 2}, "tune": tune},
        {"name": "other ρ", "heads": "paper", "settings": {"layers": [0], "heads": 2}},
    ]
    with caplog.at_level(logging.WARNING, logger="jat_graph"):
        plans(arms=arms, tuning={"thresholds": [4.0]}).check()
    assert caplog.messages == ["cola: arms layers 1–4 and layers 1–6 are one on this model"]


def test_there_must_be_a_model_without_jump_heads(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="model must be a folder or a Hub name to load"):
        Plan(small_grid(), str(tmp_path / "none" / "at" / "all")).check()
    (tmp_path / "config.json").write_text('{"model_type": "bert", "jat": {"heads": 2}}')
    with pytest.raises(ValueError, match="must have no jump heads to be the base"):
        Plan(small_grid(), str(tmp_path)).check()
