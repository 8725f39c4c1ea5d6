from typing import ClassVar

import pytest

import jat_graph.jumps.operators.threshold
from jat_graph.operators import BlockedOperator
from tests.jumps.operators.support import PairsContract


class TestBlockedOperator(PairsContract):
    causal = True

    def create(self, adjacency):
        return BlockedOperator(adjacency)


class TestSmallBlocks(TestBlockedOperator):
    """A few queries at a time, and scores that are computed again, a few keys at a time."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch):
        monkeypatch.setattr(jat_graph.jumps.operators.threshold, "KEPT_KEYS", 4)
        monkeypatch.setattr(jat_graph.jumps.operators.threshold, "BLOCK", 400)


class TestStridedKeysUnderPadding(TestBlockedOperator):
    side = "left"
    settings: ClassVar = {
        "key_selection": "strided",
        "key_step": 2,
        "threshold": 2.0,
        "inclusive": True,
    }
