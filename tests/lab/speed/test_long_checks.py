"""What is wrong with a long encoder shows before anything is timed."""

from dataclasses import replace

import pytest
import torch

from jat_graph.lab.speed import long_checks
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.long_checks import allowed_keys, check_side, dense_mask
from jat_graph.lab.speed.long_models import CONFIGS, JUMPS, build_side
from jat_graph.lab.speed.series import Settings

pytestmark = pytest.mark.usefixtures("quick")


def test_the_dense_mask_is_that_of_the_claim() -> None:
    place = torch.arange(600)
    apart = (place[:, None] - place).abs()
    wanted = (apart < 256) | (place == 0) | (place[:, None] == 0)
    assert torch.equal(dense_mask(600, torch.device("cpu"))[0, 0], wanted)
    assert torch.equal(allowed_keys(place[[3, 500]], 600), wanted[[3, 500]])


def test_right_sides_pass(settings: Settings) -> None:
    work = check_side("step", build_side(JUMPS, 300, settings), CONFIGS[JUMPS])
    assert work.joined >= 0.6


def test_another_pattern_is_refused(settings: Settings, monkeypatch) -> None:
    step = build_side(JUMPS, 64, settings)
    monkeypatch.setattr(long_checks, "PATTERN", "window:8+global:1")
    with pytest.raises(CheckError, match=r"^step, outputs with an infinite threshold: "):
        check_side("step", step, CONFIGS[JUMPS])


def test_jumps_that_change_nothing_are_refused(settings: Settings) -> None:
    step = build_side(JUMPS, 64, settings)
    with pytest.raises(CheckError, match="the loss with jump heads must be finite and differ"):
        check_side("step", step, replace(CONFIGS[JUMPS], hop_weights=(1.0,)))
