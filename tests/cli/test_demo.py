"""The demonstration: both of its outcomes on a tiny model, and its budget on the real one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jat_graph.cli import demo
from jat_graph.cli.demo import (
    PAIR,
    WANTED_ACCURACY,
    accuracy_split,
    default_options,
    demonstrate,
    look_at_pair,
)
from jat_graph.config import JatConfig
from jat_graph.training import Arm, Comparison, TrainingOptions, compare, train
from tests.cli.conftest import run
from tests.training.conftest import tiny_model
from tests.training.support import result

__all__ = ["run", "tiny_model"]

QUICK = {"epochs": 1, "max_train_samples": 48, "max_eval_samples": 24, "device": "cpu"}


def made_up_comparison(base: float, jump: tuple[float, float]) -> Comparison:
    """Return a comparison in which the base model reached ``base`` on one attractor."""
    splits = [accuracy_split(count) for count in (1, 2, 3)]

    def run_of(score: float):
        return replace(
            result(), task="agreement", metrics={split: {"accuracy": score} for split in splits}
        )

    return Comparison(
        task="agreement",
        primary_metric="accuracy",
        seeds=(0, 1),
        arms={"base": Arm(), "jump": Arm(JatConfig())},
        runs={
            "base": (run_of(base), run_of(base)),
            "jump": tuple(run_of(score) for score in jump),
        },
    )


def test_a_base_model_that_learns_nothing_is_not_compared(
    tiny_model: str, tmp_path: Path, run
) -> None:
    folder = tmp_path / "demo"
    found = demonstrate(tiny_model, folder, density=0.2, seeds=(0, 1), options=QUICK)
    assert found.base_accuracy is not None
    assert found.base_accuracy < WANTED_ACCURACY
    assert not found.compared
    assert len(found.verdicts) == 1
    assert found.verdicts[0].startswith("Nothing was compared: the base model reached")
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert content["compared"] is False
    assert content["text"] == PAIR
    assert content["jumps"][0]["gain"] == found.jumps[0].jump.gain
    assert list(content["comparison"]["arms"]) == ["base", "jump"]
    assert (folder / content["picture"]).read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in folder.iterdir()) == ["head.png", "results.json"]


@pytest.mark.parametrize(
    ("jump", "words"),
    [
        ((0.9, 0.9), "No difference: jump and base have the same accuracy on 2 attractors"),
        ((0.95, 0.86), "No difference shown between jump and base"),
        ((0.95, 0.951), "jump is better than base"),
    ],
)
def test_a_base_model_that_learns_is_compared(
    tiny_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jump: tuple[float, float],
    words: str,
    run,
) -> None:
    monkeypatch.setattr(demo, "compare", lambda *_, **__: made_up_comparison(0.9, jump))
    shown = run("demo", "--model", tiny_model, "--output", tmp_path / "demo").output
    content = json.loads((tmp_path / "demo" / "results.json").read_text(encoding="utf-8"))
    assert content["compared"] is True
    assert len(content["verdicts"]) == 3
    assert words in content["verdicts"][1]
    flat = " ".join(shown.split())
    assert all(verdict in flat for verdict in content["verdicts"])
    assert "90.0%" in flat
    assert str(tmp_path / "demo") in shown.replace("\n", "")
    assert "heads join computer and pencil" in flat


def test_comparison_runs_in_pairs(tiny_model: str, tmp_path: Path, monkeypatch) -> None:
    seen = {}

    def spy(
        options: TrainingOptions, arm: JatConfig, seeds: tuple[int, ...], *, progress: bool
    ) -> Comparison:
        seen.update(options=options, arm=arm, seeds=seeds, progress=progress)
        return compare(options, arm, seeds, progress=progress)

    monkeypatch.setattr(demo, "compare", spy)
    found = demonstrate(
        tiny_model, tmp_path, density=0.2, seeds=(3, 4), options=QUICK, progress=False
    )
    assert seen["progress"] is False
    assert seen["seeds"] == (3, 4)
    assert found.comparison.seeds == (3, 4)
    assert isinstance(seen["arm"].threshold, tuple)  # calibrated
    assert seen["options"].task == "agreement"


def test_jumps_of_the_pair_are_the_words_asked_for(tiny_model: str, tmp_path: Path) -> None:
    jumps, picture = look_at_pair(
        tiny_model, JatConfig(threshold=4.0, heads=4), tmp_path / "head.png"
    )
    assert jumps
    for pair in jumps:
        assert {pair.jump.query.text, pair.jump.key.text} == {"computer", "pencil"}
        assert pair.jump.stones
    gains = [pair.jump.gain for pair in jumps]
    assert gains == sorted(gains, reverse=True)
    assert picture.exists()


def test_it_says_so_if_no_head_joins_the_words(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run
) -> None:
    strict = JatConfig(threshold=1e9, heads=4)
    assert look_at_pair(tiny_model, strict, tmp_path / "head.png")[0] == ()
    monkeypatch.setattr(demo, "calibrate_on_task", lambda *_, **__: strict)
    monkeypatch.setattr(demo, "compare", lambda *_, **__: made_up_comparison(0.5, (0.5, 0.5)))
    shown = run("demo", "--model", tiny_model, "--output", tmp_path / "demo").output
    assert "No head joins computer and pencil" in shown
    assert "Nothing was compared" in shown


def test_minilm_joins_computer_and_pencil(minilm_path: str, tmp_path: Path) -> None:
    """At ρ = 14 without calibration: a few heads, each through a stepping stone."""
    config = JatConfig(threshold=14.0, heads=12)
    jumps, _ = look_at_pair(minilm_path, config, tmp_path / "head.png")
    heads = {(pair.layer, pair.head) for pair in jumps}
    assert 3 < len(heads) < 60
    assert all(pair.jump.stones for pair in jumps)


def test_the_budget_teaches_the_base_model(minilm_path: str, tmp_path: Path) -> None:
    """Without this the demonstration would compare nothing."""
    trained = train(default_options(minilm_path, tmp_path), progress=False)
    accuracy = trained.metrics[accuracy_split(1)]["accuracy"]
    assert accuracy is not None
    assert accuracy >= WANTED_ACCURACY
