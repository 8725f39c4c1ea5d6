"""The rows of whole training steps, and the two copies of a model, equal but for the jumps."""

from dataclasses import replace

import pytest
import torch

from jat_graph.config import JatConfig
from jat_graph.lab.speed import model
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.model import EFFICIENT, JAT, MODEL, build_steps, check_steps, step_name
from jat_graph.lab.speed.series import Series, Settings

pytestmark = pytest.mark.usefixtures("quick")

SERIES = MODEL.series(Settings("cpu", 1))
LENGTH = 32
ALL = JatConfig(heads=4, layers=tuple(range(6)))


@pytest.mark.parametrize("series", SERIES, ids=lambda series: series.what)
def test_a_step_is_measured_after_its_figures_are_printed(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    outcome = series.measure(32, settings)
    assert outcome.ratio is not None
    assert outcome.facts["sequences"] == 2
    assert outcome.facts["joined"] >= 0.6
    assert f"{series.what}, L=32: results agree; " in said.text
    # With dropout the other side is slow on the CPU, and the ratio proves nothing.
    assert ("not meaningful" in outcome.note) == ("dropout 0.1" in series.what)


def test_wrong_losses_are_refused(
    settings: Settings, said: pytest.LogCaptureFixture, monkeypatch
) -> None:
    right = model.attach

    def always_jumping(model, config):
        return right(model, replace(config, hop_weights=(0.0, 1.0), threshold=1.0))

    monkeypatch.setattr(model, "attach", always_jumping)
    with pytest.raises(CheckError, match="nothing was timed"):
        SERIES[0].measure(32, settings)
    assert not said.messages


def test_lengths_are_those_of_the_claims() -> None:
    lengths = {series.what: series.lengths for series in SERIES}
    assert lengths[step_name(JAT)] == (128, 512)
    assert lengths[step_name(EFFICIENT)] == (512, 4096)
    assert lengths[step_name(JAT, 0.1)] == (128,)


@pytest.mark.parametrize("selection", ["all", "significance"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_copies_have_equal_weights_and_the_graphs_real_work(
    selection: str, dropout: float, settings: Settings
) -> None:
    config = replace(ALL, key_selection=selection)
    jump, stock = build_steps(LENGTH, settings, config, dropout)
    weights = zip(jump.model.parameters(), stock.model.parameters(), strict=True)
    assert all(torch.equal(a, b) and a is not b for a, b in weights)
    assert stock.model.config._attn_implementation == "sdpa"
    assert stock.model.training and jump.model.training
    assert jump.batch is stock.batch
    work = check_steps("step", jump, stock, config)
    assert work.joined >= 0.6
    assert work.taking_part >= 0.5


def test_a_step_changes_the_weights(settings: Settings) -> None:
    for step in build_steps(LENGTH, settings, ALL, 0.0):
        before = [weight.detach().clone() for weight in step.model.parameters()]
        step.run()
        after = list(step.model.parameters())
        changed = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
        assert sum(changed) > 0.9 * len(changed)


def test_a_batch_holds_so_many_tokens(settings: Settings) -> None:
    jump, _ = build_steps(16, settings, ALL, 0.0)
    assert jump.batch["input_ids"].shape == (4, 16)
    jump, _ = build_steps(100, settings, ALL, 0.0)
    assert jump.batch["input_ids"].shape == (1, 100)


def test_models_that_differ_are_refused(settings: Settings) -> None:
    jump, stock = build_steps(LENGTH, settings, ALL, 0.0)
    with torch.no_grad():
        stock.model.classifier.out_proj.bias[0] += 1.0
    with pytest.raises(CheckError, match=r"^step, loss with one hop of weight 1 at index 0: "):
        check_steps("step", jump, stock, ALL)


def test_jumps_that_change_nothing_are_refused(settings: Settings) -> None:
    jump, stock = build_steps(LENGTH, settings, ALL, 0.0)
    ordinary = replace(ALL, hop_weights=(1.0,))
    with pytest.raises(CheckError, match="the loss with jump heads must be finite and differ"):
        check_steps("step", jump, stock, ordinary)


def test_graphs_with_too_little_to_do_are_refused(settings: Settings, monkeypatch) -> None:
    jump, stock = build_steps(LENGTH, settings, ALL, 0.0)
    monkeypatch.setattr(model, "THRESHOLD", 60.0)
    with pytest.raises(CheckError, match=r"^step: the inputs must join 60%"):
        check_steps("step", jump, stock, ALL)
