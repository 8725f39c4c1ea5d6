"""Comparisons: pairing, resuming, what is written down, and their tables."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from jat_graph.config import JatConfig
from jat_graph.hf import TripletConfig
from jat_graph.lab.studies import Plan
from jat_graph.lab.studies.rows import experiment_rows
from jat_graph.training import (
    Arm,
    BothHeads,
    compare,
    comparison_markdown,
    comparison_table,
    runner,
    train,
)
from tests.lab.studies.support import narrow
from tests.training.support import JUMP, Options, made_up


def test_statistics_agree_with_scipy() -> None:
    base, jump = [0.5, 0.55, 0.52], [0.53, 0.6, 0.54]
    comparison = made_up(base=base, jump=jump)
    found = comparison.difference("jump", "dev", "accuracy")
    assert found is not None
    test = stats.ttest_rel(jump, base)
    interval = test.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    summary = comparison.summary("jump", "dev", "accuracy")
    assert summary is not None and summary.std == pytest.approx(np.std(jump, ddof=1))
    assert comparison.measures == (("dev", "accuracy"), ("dev", "f1"))


def test_undefined_scores_are_said_and_written_as_null() -> None:
    comparison = made_up(base=[0.5, 0.6], jump=[None, 0.6])
    assert comparison.verdicts == (
        "Nothing can be said about jump: accuracy on dev is undefined in at least one run.",
    )
    text = json.dumps(comparison.to_dict(), allow_nan=False)
    accuracy = json.loads(text)["arms"]["jump"]["statistics"]["dev"]["accuracy"]
    assert accuracy == {"summary": None, "difference_to_base": None}


def test_a_comparison_is_written_and_resumed(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = options(epochs=1)
    calls: list[str] = []

    def stop_at_third(run: Any, config: Any, *, progress: bool) -> Any:
        calls.append(Path(run.output_dir).parent.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return train(run, config, progress=progress)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("jat_graph.lab.studies.fine_tuning.train", stop_at_third)
        compare(chosen, JUMP, [1, 2], progress=False)
    assert calls == ["base", "jump", "base"]
    folder = Path(chosen.output_dir)
    before = (folder / "base" / "seed-1" / "results.json").read_text()
    comparison = compare(chosen, JUMP, [1, 2], progress=False)
    examples = [len(said["validation"]["right"]) for said in comparison.answers["jump"]]
    assert examples == [24, 24]
    assert (folder / "base" / "seed-1" / "results.json").read_text() == before
    stored = json.loads((folder / "results.json").read_text())
    assert stored == json.loads(json.dumps(comparison.to_dict()))
    assert stored["arms"]["jump"]["config"] == JUMP.to_dict()
    assert [run.options["seed"] for run in comparison.runs["jump"]] == [1, 2]
    assert comparison.runs["base"][0].config is None
    assert not list(folder.rglob("model")) and not list(folder.rglob("checkpoints"))
    with pytest.raises(ValueError, match=r"threshold=4\.0, not 2\.0"):
        compare(chosen, replace(JUMP, threshold=2.0), [1, 2], progress=False)


def test_a_comparison_of_an_older_version_goes_on(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, arms = options(epochs=1), {"base": None, "Jump": JUMP}
    folder = Path(chosen.output_dir)
    for arm, config in arms.items():  # which left runs and nothing else
        run = replace(chosen, seed=4, output_dir=str(folder / arm / "seed-4"))
        train(run, config, progress=False)
    (folder / "results.json").write_text('{"version": 1, "arms": {}}')
    before = {path: path.read_bytes() for path in folder.rglob("seed-4/*.json")}
    assert len(before) == 4
    fitted: list[str] = []
    original = runner._fit

    def fit(trainer: Any, place: Path, *arguments: Any, **settings: Any) -> None:
        fitted.append(str(place.relative_to(folder)))
        original(trainer, place, *arguments, **settings)

    monkeypatch.setattr(runner, "_fit", fit)
    comparison = compare(chosen, arms, [9, 4], progress=False)
    assert fitted == ["base/seed-9", "Jump/seed-9"]
    assert {path: path.read_bytes() for path in before} == before
    assert [run.options["seed"] for run in comparison.runs["Jump"]] == [9, 4]
    assert compare(chosen, arms, [4], progress=False).runs["base"] == comparison.runs["base"][1:]
    assert len(fitted) == 2


def test_a_model_need_not_say_its_size(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "shape", None)  # what grids are scaled to
    both = BothHeads(replace(JUMP, layers=(0,)), TripletConfig(layers=(1,)))
    arms = {"base": None, "triplet": TripletConfig(), "both": both, "deep": Arm(JUMP, {"depth": 3})}
    comparison = compare(options(epochs=1), arms, [0], progress=False)
    configs = {arm: run.config for arm, (run,) in comparison.runs.items()}
    assert configs == {
        "base": None,
        "triplet": TripletConfig().to_dict(),
        "both": both.to_dict(),
        "deep": JUMP.to_dict(),
    }


def test_wrong_options_of_an_arm_are_refused_before_any_training(options: Options) -> None:
    arms = {"base": None, "long": Arm(options={"max_length": -1})}
    with pytest.raises(ValueError, match="max_length must be a positive integer, got -1"):
        compare(options(), arms, [0], progress=False)
    assert not Path(options().output_dir).exists()


def test_one_seed_says_nothing(options: Options) -> None:
    arms = {"base": None, "paper": JatConfig.paper(heads=2)}
    comparison = compare(options(epochs=1), arms, [0], keep_models=True, progress=False)
    assert comparison.verdicts[0].startswith("Nothing can be said about paper against base")
    assert len(list(Path(options().output_dir).rglob("model.safetensors"))) == 2


def test_arms_may_differ_in_options(options: Options) -> None:
    arms = {"base": None, "long": Arm(options={"max_length": 80}), "jump": Arm(JUMP)}
    comparison = compare(options(epochs=1), arms, [0], progress=False)
    lengths = {arm: run.options["max_length"] for arm, (run,) in comparison.runs.items()}
    assert lengths == {"base": 16, "long": 80, "jump": 16}
    stored = json.loads(Path(options().output_dir, "results.json").read_text())
    assert stored["arms"]["long"]["options"] == {"max_length": 80}


@pytest.mark.parametrize("name", ["seed", "task", "output_dir", "fully_sharded", "widht"])
def test_what_arms_cannot_change(name: str) -> None:
    with pytest.raises(ValueError, match=f"an arm's option must be one of its own, got '{name}'"):
        Arm(options={name: 1})


def test_the_interval_is_that_of_new_seeds_and_new_examples() -> None:
    right = [i % 2 for i in range(100)]
    wrong_at = {"base": (30, 34, 32), "jump": (30, 30, 30)}  # of three seeds, the first are wrong
    said = {
        arm: [
            {"dev": {"said": [1 - r if i < n else r for i, r in enumerate(right)], "right": right}}
            for n in counts
        ]
        for arm, counts in wrong_at.items()
    }
    bare = made_up(base=[0.7, 0.66, 0.68], jump=[0.7, 0.7, 0.7])
    comparison = replace(bare, answers=said)
    found = comparison.difference("jump", "dev", "accuracy")
    alone = bare.difference("jump", "dev", "accuracy")
    assert found is not None and found.draws is not None and found.interval is not None
    assert alone is not None and alone.draws is None and alone.interval is not None
    assert found.values == alone.values
    width, of_seeds = (one.high - one.low for one in (found.interval, alone.interval))
    assert width > of_seeds
    (row,) = [
        r
        for r in experiment_rows(comparison.results)
        if (r.arm.name, r.metric) == ("jump", "accuracy")
    ]
    assert row.change == found  # as an experiment has it


def test_arms_that_were_asked_other_examples_are_compared_by_their_scores() -> None:
    bare = made_up(base=[0.5, 0.6], jump=[0.6, 0.9])
    said = {
        "base": [{"dev": {"said": [1, 1], "right": [1, 0]}}] * 2,
        "jump": [{"dev": {"said": [1, 1, 0], "right": [1, 0, 0]}}] * 2,
    }
    found = replace(bare, answers=said).difference("jump", "dev", "accuracy")
    assert found is not None and found.draws is None
    assert found == bare.difference("jump", "dev", "accuracy")


def test_one_seed_has_the_interval_of_its_examples() -> None:
    right = [i % 2 for i in range(50)]
    said = {
        "base": [{"dev": {"said": [1] * 50, "right": right}}],
        "jump": [{"dev": {"said": right, "right": right}}],
    }
    comparison = replace(made_up(base=[0.5], jump=[1.0]), answers=said)
    (sentence,) = comparison.verdicts
    assert sentence.startswith(
        "Nothing can be said about jump against base: one seed gives +50.0 accuracy on dev "
        "(95 % interval of new examples alone +3"
    )
    assert sentence.endswith("and no measure of what other seeds do; use at least two.")


def test_any_two_arms_can_be_compared() -> None:
    comparison = made_up(base=[0.5, 0.6], one=[0.6, 0.71], two=[0.7, 0.8])
    found = comparison.difference("two", "dev", "accuracy", base="one")
    assert found is not None and found.mean == pytest.approx(0.095)
    assert "two is better than one" in comparison.verdict("two", "dev", base="one")


def test_a_lower_perplexity_is_better() -> None:
    comparison = made_up(base=[50.0, 51.0], one=[40.0, 40.9])
    music = replace(comparison, task="chorales")
    assert comparison.verdict("one", "dev").startswith("one is worse than base")
    assert music.verdict("one", "dev").startswith("one is better than base")


@pytest.mark.parametrize(
    ("arms", "seeds", "words"),
    [
        ({"jump": JUMP}, [0], "arms must start with 'base': None"),
        ({"base": JUMP, "jump": JUMP}, [0], "arms must start with 'base': None"),
        ({"base": None}, [0], "something to compare"),
        ({"base": None, "../x": JUMP}, [0], "usable as a folder, got '../x'"),
        (JUMP, [], "one or more different numbers"),
        (JUMP, [1, 1], "one or more different numbers"),
        (JUMP, [-1], "seed must be an integer from 0"),
    ],
)
def test_bad_arms_and_seeds(options: Options, arms: Any, seeds: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        compare(options(), arms, seeds, progress=False)


def test_single_runs_and_models_with_jump_heads_are_no_base(options: Options) -> None:
    train(options(epochs=1), JUMP, progress=False)
    with pytest.raises(ValueError, match="holds a single run: name another folder"):
        compare(options(), JUMP, [0], progress=False)
    jumping = options(model=str(Path(options().output_dir, "model")))
    with pytest.raises(ValueError, match="must have no jump heads to be the base"):
        compare(jumping, JUMP, [0], progress=False)


def test_markdown() -> None:
    text = comparison_markdown(made_up(base=[0.5, 0.6], jump=[0.6, 0.9]))
    lines = narrow(text).splitlines()
    assert lines[0] == "| measure | arm | score | change | 95 % interval |"
    assert lines[2] == "| mrpc, accuracy | base | 55.0 ± 7.1 | - | - |"
    assert lines[3] == "| mrpc, accuracy | jump | 75.0 ± 21.2 | +20.0 | -107.1 to +147.1 |"
    assert lines[-1].startswith("- No difference shown between jump and base: +20.0")


def test_table() -> None:
    comparison = made_up(base=[0.5, 0.6], calibrated=[0.6, 0.9], other=[None, 0.5])
    out = io.StringIO()
    Console(file=out, width=80).print(comparison_table(comparison))
    text = " ".join(out.getvalue().split())
    assert "mrpc, 2 seeds" in text
    assert "undefined" in text
    assert "…" not in text
    for sentence in comparison.verdicts:
        assert sentence in text
