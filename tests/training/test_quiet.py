"""Noise is hidden, news is not."""

import logging

import pytest
from transformers.utils import logging as bars

from jat_graph.training.quiet import quiet


def test_only_known_noise_is_hidden(caplog: pytest.LogCaptureFixture) -> None:
    loader = logging.getLogger("transformers.modeling_utils")
    enabled = bars.is_progress_bar_enabled()
    bars.enable_progress_bar()
    with quiet():
        loader.warning("BertModel LOAD REPORT from: x")
        loader.warning("something else")
        assert not bars.is_progress_bar_enabled()
    assert bars.is_progress_bar_enabled()
    loader.warning("BertModel LOAD REPORT from: y")
    if not enabled:
        bars.disable_progress_bar()
    assert [r.getMessage()[-1] for r in caplog.records] == ["e", "y"]
