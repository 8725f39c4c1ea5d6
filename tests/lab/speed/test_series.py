"""How a benchmark runs."""

import pytest
import torch

from jat_graph.lab.speed.series import Outcome, Settings


def test_the_dtype_follows_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings("cpu", 3).to_dict() == {"device": "cpu", "repeats": 3, "dtype": "float32"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Settings("cuda", 3).to_dict()["dtype"] == "bfloat16"


def test_a_missing_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device 'cuda' needs a GPU that torch can use, got none"):
        Settings("cuda", 3)


def test_an_outcome_may_be_a_note_alone() -> None:
    outcome = Outcome(note="not measured: no compiler")
    assert outcome.ratio is None
    assert outcome.facts == {}
