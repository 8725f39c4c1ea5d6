"""Benchmarks on inputs so short that they take no time."""

import logging
from collections.abc import Iterator

import pytest

from jat_graph.lab.speed import kernels, long, long_models, model, timing
from jat_graph.lab.speed.series import Settings

TINY = {
    "vocab_size": 60,
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 32,
}


@pytest.fixture
def settings() -> Settings:
    return Settings("cpu", 1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call each side once a sample, compile nothing, train tiny models, start no process."""
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(kernels, "compile_formula", kernels.FORMULATIONS.__getitem__)
    monkeypatch.setattr(model, "SHAPE", TINY)
    monkeypatch.setattr(long_models, "SHAPE", TINY | {"num_hidden_layers": 2})
    monkeypatch.setattr(long, "peak", lambda side, length, device: length * len(side))
    monkeypatch.setattr(model, "TOKENS", {"cpu": 64})


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Record what is printed while a benchmark runs."""
    with caplog.at_level(logging.INFO, "jat_graph"):
        yield caplog
