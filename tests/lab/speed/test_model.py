"""The rows of whole training steps."""

from dataclasses import replace

import pytest

from jat_graph.lab.speed import training_step
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.model import EFFICIENT, JAT, MODEL, step_name
from jat_graph.lab.speed.series import Series, Settings

pytestmark = pytest.mark.usefixtures("quick")

SERIES = MODEL.series(Settings("cpu", 1))


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
    right = training_step.attach

    def always_jumping(model, config):
        return right(model, replace(config, hop_weights=(0.0, 1.0), threshold=1.0))

    monkeypatch.setattr(training_step, "attach", always_jumping)
    with pytest.raises(CheckError, match="nothing was timed"):
        SERIES[0].measure(32, settings)
    assert not said.messages


def test_lengths_are_those_of_the_claims() -> None:
    lengths = {series.what: series.lengths for series in SERIES}
    assert lengths[step_name(JAT)] == (128, 512)
    assert lengths[step_name(EFFICIENT)] == (512, 4096)
    assert lengths[step_name(JAT, 0.1)] == (128,)
