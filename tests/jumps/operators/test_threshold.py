import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import jat_graph.jumps.operators.threshold
from jat_graph import JatConfig, PairGraph, jump_operator
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import MapScores
from jat_graph.operators import ThresholdOperator
from tests.inputs import random_heads
from tests.jumps.operators.support import PairsContract
from tests.oracles import reference_adjacency, reference_graph


class TestThresholdOperator(PairsContract):
    def create(self, adjacency):
        return ThresholdOperator(adjacency)


class TestManyKeys(TestThresholdOperator):
    """Scores that are computed again for each product, a few keys at a time."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch):
        monkeypatch.setattr(jat_graph.jumps.operators.threshold, "KEPT_KEYS", 4)
        monkeypatch.setattr(jat_graph.jumps.operators.threshold, "BLOCK", 200)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**20),
    inclusive=st.booleans(),
    same_sign_only=st.booleans(),
    zeros=st.sampled_from((0.0, -0.0)),
)
def test_a_threshold_of_zero(seed, inclusive, same_sign_only, zeros):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-1, 2, (1, 1, 6, 6), generator=generator).double()
    scores = scores.masked_fill(scores == 0, zeros)
    config = JatConfig(PairGraph(threshold=0.0, inclusive=inclusive, same_sign_only=same_sign_only))
    mask = TokenMask(valid=torch.rand(1, 1, 6, generator=generator) < 0.7)
    operator = ThresholdOperator(PairAdjacency.of_scores(config, MapScores(scores), mask))
    truth = reference_adjacency(
        scores,
        0.0,
        pairs=mask.valid[..., None, :] & mask.valid[..., None],
        inclusive=inclusive,
        same_sign_only=same_sign_only,
    )
    torch.testing.assert_close(operator.to_dense(), truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
@pytest.mark.parametrize("threshold", [0.0, 1e-46, 1e-30])
def test_tiny_thresholds_of_one_sign(backend, threshold):
    settings_ = {"inclusive": True, "same_sign_only": True, "threshold": threshold}
    query, key, _, _ = random_heads(1, 1, 6, 4, dtype=torch.float32)
    query[:, :, 2] = 0.0  # all its products are zero
    config = JatConfig.paper(backend=backend, **settings_)
    found = jump_operator(query, key, config=config).base.to_dense()
    wanted = reference_graph(query, key, **settings_).adjacency
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
