"""What heads have learned is read from the saved weights, and shown arm by arm."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from jat_graph.lab.studies import Cell, Record
from jat_graph.lab.studies.cells import cell_folder
from jat_graph.lab.studies.kinds import KINDS
from jat_graph.lab.studies.rows import experiment_rows
from jat_graph.lab.studies.strengths import (
    STRENGTHS_LINE,
    can_draw_strengths,
    draw_strengths,
    saved_strengths,
    strengths_frame,
)
from jat_graph.lab.studies.tables import experiment_markdown
from tests.lab.studies.conftest import Plans
from tests.lab.studies.made_up import results
from tests.lab.studies.support import made_up, narrow, small_grid

ARMS = [{"name": "base"}, {"name": "stones", "heads": "stones"}]


def test_strengths_of_all_files_are_read(tmp_path: Path) -> None:
    theta = torch.tensor([[[0.5, -1]], [[0, 0.1]], [[2, 3]]], dtype=torch.bfloat16)
    save_file(
        {"layer.0.strength.theta": theta, "weight": torch.ones(2)}, tmp_path / "a.safetensors"
    )
    save_file({"layer.1.strength.theta": theta}, tmp_path / "b.safetensors")
    found = saved_strengths(tmp_path)
    assert list(found) == ["layer.0", "layer.1"]
    assert found["layer.0"] == [[[0.5, -1.0]], [[0.0, 0.1001]], [[2.0, 3.0]]]
    assert saved_strengths(tmp_path / "nothing") == {}


def test_a_cell_says_what_its_heads_have_learned(plans: Plans, tmp_path: Path) -> None:
    plan = plans(arms=ARMS, seeds=1)
    base, stones = (
        KINDS["train"].run_cell(cell, plan, cell_folder(tmp_path, cell), False)
        for cell in (Cell("cola", "base", 0), Cell("cola", "stones", 0))
    )
    assert base.strengths == {}
    assert len(stones.strengths) == plan.shape[0]
    for theta in stones.strengths.values():
        assert torch.tensor(theta).shape == (3, 1, plan.shape[1])
        assert torch.tensor(theta).any()


def test_the_table_by_hand() -> None:
    def cell(seed: int, *numbers: float) -> Record:
        one, two = numbers[:3], numbers[3:]
        strengths = {
            f"encoder.layer.{layer}.attention": [[[number]] for number in triple]
            for layer, triple in ((10, one), (2, two))
        }
        return made_up(arm="stones", seed=seed, strengths=strengths)

    found = results(
        small_grid(arms=ARMS),
        [
            made_up(),
            made_up(seed=1),
            cell(0, 0.1, -0.2, 0, 0.3, 0.4, 0),
            cell(1, 0.1, -0.4, 0, 0.5, 0.6, 0),
        ],
    )
    assert narrow(strengths_frame(found).to_csv(index=False)).splitlines() == [
        "task,arm,queries,keys,values,layer 2,layer 10,alike,sizes alike",
        "cola,stones,0.250 (0.50),0.400 (0.60),0.000 (0.00),0.300 (0.60),0.133 (0.40),+1.00,+0.96",
    ]
    text = narrow(experiment_markdown(found, experiment_rows(found)))
    assert "| cola | stones | 0.250 (0.50) |" in text and STRENGTHS_LINE in text


def test_the_picture_has_a_row_for_who_has_learned() -> None:
    def cell(seed: int, size: float) -> Record:
        strengths = {
            f"layer.{layer}": [[[size, -size]], [[0.0, size * layer]], [[0.0, 0.0]]]
            for layer in (2, 5)
        }
        return made_up(arm="stones", seed=seed, strengths=strengths)

    found = results(small_grid(arms=ARMS), [made_up(), cell(0, 0.1), cell(1, 0.3)])
    assert can_draw_strengths(found)
    figure = draw_strengths(found)
    titles = [axis.get_title(loc="left") for axis in figure.axes[:3]]
    assert titles == ["cola, stones\nqueries", "\nkeys", "\nvalues"]
    drawn = [axis.get_images()[0].get_array() for axis in figure.axes[:3]]
    torch.testing.assert_close(torch.tensor(drawn[0]), torch.full((2, 2), 0.2).double())
    wanted = torch.tensor([[0.0, 0.4], [0.0, 1.0]]).double()
    torch.testing.assert_close(torch.tensor(drawn[1]), wanted)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["2", "5"]
    one_layer = made_up(arm="stones", strengths={"layer.0": [[[1.0]], [[2.0]], [[3.0]]]})
    assert not can_draw_strengths(results(small_grid(arms=ARMS), [made_up(), one_layer]))


def test_nothing_learned_is_no_table() -> None:
    found = results(small_grid(arms=ARMS), [made_up(), made_up(arm="stones")])
    assert strengths_frame(found).empty
    assert STRENGTHS_LINE not in experiment_markdown(found, experiment_rows(found))


def test_one_seed_is_like_no_other() -> None:
    record = made_up(arm="stones", strengths={"attention": [[[1.0]], [[2.0]], [[3.0]]]})
    frame = strengths_frame(results(small_grid(arms=ARMS), [record]))
    assert frame["alike"].tolist() == ["-"] and frame["layer 0"].tolist() == ["2.000 (3.00)"]
