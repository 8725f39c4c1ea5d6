"""ρ is chosen on held-out training data, once for all seeds."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.lab.store import locked
from jat_graph.lab.studies import Cell, Plan, running
from jat_graph.lab.studies import fine_tuning as module
from jat_graph.lab.studies.fine_tuning import best_threshold, choose_threshold, trials_of
from jat_graph.lab.studies.grid import TUNING_SEED
from jat_graph.lab.studies.kinds import KINDS
from tests.lab.studies.conftest import Plans

TUNED: dict[str, Any] = {
    "tuning": {"thresholds": [4, 0.5], "held_out": 0.25},
    "arms": [
        {"name": "base"},
        {"name": "JAT", "heads": "paper", "settings": {"heads": "6/12"}, "tune": True},
        {"name": "JAT†", "heads": "efficient", "settings": {"heads": "6/12"}, "tune": "JAT"},
    ],
}


@given(st.dictionaries(st.floats(0, 10), st.one_of(st.none(), st.floats(-1, 1)), min_size=1))
def test_the_best_score_wins_and_the_first_of_equal_ones(scores: dict[float, float | None]) -> None:
    best = best_threshold(scores, greater_is_better=True)
    defined = [score for score in scores.values() if score is not None]
    if not defined:
        assert best == next(iter(scores))
        return
    assert scores[best] == max(defined)
    before = list(scores.values())[: list(scores).index(best)]
    assert all(score is None or score < max(defined) for score in before)
    worst = best_threshold(scores, greater_is_better=False)
    assert scores[worst] == min(defined)


def test_no_score_at_all_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="jat_graph"):
        assert best_threshold({4.0: None, 6.0: None}, greater_is_better=True) == 4.0
    assert "no score of any threshold is defined" in caplog.text


def test_thresholds_are_tried_on_held_out_data_once(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, runs, out = plans(**TUNED), [], tmp_path / "out"
    original = module.train

    def train(options: Any, config: Any, *, progress: bool) -> Any:
        runs.append((options, config))
        return original(options, config, progress=progress)

    monkeypatch.setattr(module, "train", train)
    best, scores = choose_threshold(plan, Cell("cola", "JAT", 0), out, progress=False)
    assert list(scores) == ["4", "0.5"]
    assert [config.graph.threshold for _, config in runs] == [4.0, 0.5]
    assert {options.seed for options, _ in runs} == {TUNING_SEED}
    assert {options.held_out for options, _ in runs} == {0.25}
    trial = out / "runs" / "cola" / "jat" / "tuning" / "threshold-0.5"
    result = json.loads((trial / "results.json").read_text(encoding="utf-8"))
    assert result["metrics"] == {"held_out": {"matthews": scores["0.5"]}}
    assert not (trial / "model").exists()
    expected = {4.0: scores["4"], 0.5: scores["0.5"]}
    assert best == best_threshold(expected, greater_is_better=True)

    files = {path: path.read_bytes() for path in out.rglob("*.json")}
    for cell in (Cell("cola", "JAT", 1), Cell("cola", "JAT†", 0)):
        assert choose_threshold(plan, cell, out, progress=False) == (best, scores)
    assert {path: path.read_bytes() for path in out.rglob("*.json")} == files
    shutil.copytree(out, tmp_path / "moved")
    model = tmp_path / "other place" / Path(plan.model).name
    data = tmp_path / "other place" / plan.data_name
    shutil.copytree(plan.model, model)
    shutil.copytree(plan.data_dir, data, dirs_exist_ok=True)
    elsewhere = replace(plan, device="auto", model=str(model), data_dir=data)
    found = choose_threshold(elsewhere, Cell("cola", "JAT", 0), tmp_path / "moved", progress=False)
    assert found == (best, scores) and len(runs) == 2
    other = replace(plan, grid=plans(**TUNED, training={"epochs": 2}).grid)
    with pytest.raises(ValueError, match=r"trial.json holds results with .* another folder"):
        choose_threshold(other, Cell("cola", "JAT", 0), out, progress=False)


def test_processes_share_the_trials(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, cell, order = plans(**TUNED), Cell("cola", "JAT", 0), []
    first = trials_of(plan, cell, tmp_path)[4.0]
    theirs = locked(Path(first.output_dir), wait=False)

    def score(plan: Plan, trial: Any, threshold: float, *rest: object) -> float:
        order.append(threshold)
        if threshold == 0.5:
            theirs.__exit__(None, None, None)  # the other process is through with 4
        return threshold

    monkeypatch.setattr(module, "_score", score)
    assert theirs.__enter__()
    assert choose_threshold(plan, cell, tmp_path, progress=False) == (4.0, {"4": 4.0, "0.5": 0.5})
    assert order == [0.5, 4.0]


def test_cells_wait_for_trials_that_are_not_finished(plans: Plans, tmp_path: Path) -> None:
    plan, kind = plans(**TUNED), KINDS["train"]
    cells = [Cell("cola", arm, seed) for arm in ("JAT", "JAT†") for seed in (0, 1)]
    both = list(trials_of(plan, cells[0], tmp_path).values())
    assert len(both) == 2 and kind.lessons(Cell("cola", "base", 0), plan, tmp_path) == []
    assert all(kind.lessons(cell, plan, tmp_path) == both for cell in cells)
    base = Cell("cola", "base", 1)  # need not wait
    assert running._choose([*cells[1:], base], cells[:1], plan, tmp_path) == base
    assert running._choose(cells[1:], cells[:1], plan, tmp_path) == cells[1]  # shares the trials
    done = Path(both[0].output_dir) / module.TRIAL_FILE
    done.parent.mkdir(parents=True)
    done.touch()
    assert all(kind.lessons(cell, plan, tmp_path) == both[1:] for cell in cells)


def test_other_arms_are_not_tuned(plans: Plans, tmp_path: Path) -> None:
    plan, cell = plans(**TUNED), Cell("cola", "base", 0)
    assert trials_of(plan, cell, tmp_path) == {}
    with pytest.raises(ValueError, match="tune must be set to choose a threshold for cola, base"):
        choose_threshold(plan, cell, tmp_path, progress=False)
