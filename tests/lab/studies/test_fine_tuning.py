"""One cell: what is measured before it is trained, and what is counted after."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import TripletConfig
from jat_graph.lab.studies import Cell, fine_tuning
from jat_graph.lab.studies.cells import cell_folder
from jat_graph.lab.studies.fine_tuning import choose_heads
from jat_graph.lab.studies.kinds import KINDS
from jat_graph.training import BothHeads, measuring
from tests.lab.studies.conftest import Plans
from tests.lab.studies.support import CONTENT

CELL = Cell("cola", "density", 0)


def measured(**changes: Any) -> list[dict[str, Any]]:
    settings = {"settings": {"heads": "6/12"}, "density": 0.3} | changes
    return [{"name": "base"}, {"name": "density", "heads": "paper", **settings}]


def test_thresholds_are_measured_anew_for_anything_else(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []
    besides: TripletConfig | None = None

    def measure(
        options: Any, heads: JatConfig, density: float, batches: int, beside: Any
    ) -> JatConfig:
        assert beside == besides
        calls.append(density)
        return replace(heads, threshold=1 / 3 + len(calls))

    monkeypatch.setattr(measuring, "_measure", measure)

    def choose(**changes: Any) -> Any:
        plan = plans(**({"arms": measured()} | changes))
        return choose_heads(CELL, plan, cell_folder(tmp_path, CELL), False).heads

    first = choose()
    assert choose() == first and calls == [0.3]
    assert choose(arms=measured(density=0.1)).threshold != first.threshold
    heads = choose(arms=measured(settings={"heads": 1}))
    assert heads == JatConfig(PairGraph(threshold=1 / 3 + 3), heads=1)
    choose(training={**CONTENT["training"], "max_length": 8})
    assert calls == [0.3, 0.1, 0.3, 0.3]
    besides = TripletConfig(layers=(1,))
    both = measured(settings={"heads": 1}, triplets={"layers": [1]})
    heads = choose(arms=both)
    assert heads == BothHeads(JatConfig(PairGraph(threshold=1 / 3 + 5), heads=1), besides)
    assert choose(arms=both) == heads and len(calls) == 5


def test_a_timed_run_begins_anew_and_warm(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cell = plans(columns=["seconds"], seeds=1), Cell("cola", "base", 0)
    folder, steps = cell_folder(tmp_path, cell), []
    checkpoint = folder / "checkpoints" / "checkpoint-2"
    checkpoint.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    original = fine_tuning.train

    def train(*arguments: Any, **options: Any) -> Any:
        assert not checkpoint.exists() and not (folder / "run.json").exists()
        steps.append("train")
        return original(*arguments, **options)

    monkeypatch.setattr(fine_tuning, "train", train)
    warm = fine_tuning.warm_up
    monkeypatch.setattr(fine_tuning, "warm_up", lambda *a: (warm(*a), steps.append("warm")))
    record = KINDS["train"].run_cell(cell, plan, folder, False)
    assert steps == ["warm", "train"] and record.seconds > 0
    assert KINDS["train"].run_cell(cell, plan, folder, False).seconds == record.seconds
    assert steps == ["warm", "train", "train"]  # which reads what is there


def test_a_share_of_the_data_is_counted(plans: Plans, tmp_path: Path) -> None:
    limits = {"max_train_samples": 20, "max_eval_samples": 5}
    plan, cell = plans(training=CONTENT["training"] | limits), Cell("cola", "base", 0)
    record = KINDS["train"].run_cell(cell, plan, cell_folder(tmp_path, cell), False)
    assert record.examples == {"train": 20, "validation": 5}
    assert record.all_examples == {"train": 48, "validation": 24}
