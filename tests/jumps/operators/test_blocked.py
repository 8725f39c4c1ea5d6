import pytest
import torch

import jat_graph.jumps.operators.threshold
from jat_graph import JatConfig, PairGraph, jump_operator
from jat_graph.core.masks import TokenMask, resolve_mask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from jat_graph.operators import BlockedOperator, DenseOperator
from jat_graph.testing import OperatorContract
from tests.inputs import random_heads, random_padding_mask
from tests.oracles import reference_graph


class TestBlockedOperator(OperatorContract):
    def create_inputs(self):
        return random_heads(2, 3, 12, 8, is_causal=True)[:2]

    def create_operator(self, query, key):
        source = QueryKeyScores(query, key, 8**-0.5)
        return BlockedOperator(PairAdjacency.of_scores(JatConfig(), source, TokenMask(causal=True)))

    def dense_truth(self, query, key):
        return reference_graph(query, key, is_causal=True).adjacency


class TestSmallBlocks(TestBlockedOperator):
    """A few queries at a time, and scores that are computed again, a few keys at a time."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch):
        monkeypatch.setattr(jat_graph.jumps.operators.threshold, "KEPT_KEYS", 4)
        monkeypatch.setattr(jat_graph.jumps.operators.threshold, "BLOCK", 400)


STRIDED = {"key_selection": "strided", "key_step": 2, "threshold": 2.0, "inclusive": True}


class TestStridedKeysUnderPadding(OperatorContract):
    def create_inputs(self):
        mask = random_padding_mask(2, 12, side="left", min_valid=9)
        heads = random_heads(2, 3, 12, 8, attention_mask=mask, is_causal=True)
        return heads.query, heads.key, mask

    def create_operator(self, query, key, mask):
        source = QueryKeyScores(query, key, 8**-0.5)
        adjacency = PairAdjacency.of_scores(
            JatConfig.paper(**STRIDED), source, resolve_mask(mask, True, query)
        )
        return BlockedOperator(adjacency)

    def dense_truth(self, query, key, mask):
        return reference_graph(query, key, attention_mask=mask, is_causal=True, **STRIDED).adjacency


@pytest.mark.parametrize("num_tokens", [1, 2, 33])
def test_it_is_the_dense_matrix(num_tokens):
    query, key, _, _ = random_heads(1, 2, num_tokens, 8, is_causal=True, dtype=torch.float32)
    operators = [
        jump_operator(query, key, config=JatConfig(PairGraph(backend=backend)), is_causal=True).base
        for backend in ("dense", "threshold")
    ]
    assert isinstance(operators[0], DenseOperator) and isinstance(operators[1], BlockedOperator)
    assert torch.equal(operators[0].to_dense(), operators[1].to_dense())
    torch.testing.assert_close(operators[0].degree, operators[1].degree, rtol=1e-6, atol=0)


def test_later_tokens_change_no_earlier_row():
    query, key, _, density = random_heads(1, 2, 20, 8, is_causal=True)
    assert 0.1 <= density <= 0.9
    x = torch.randn(1, 2, 20, 3, dtype=torch.float64)
    config = JatConfig(PairGraph(backend="threshold"))
    whole = jump_operator(query, key, config=config, is_causal=True)
    query, key, x = query.clone(), key.clone(), x.clone()
    query[:, :, 11:], key[:, :, 11:], x[:, :, 11:] = 3.0, -2.0, 5.0
    before = whole.matmul(torch.cat([x[:, :, :11], torch.zeros(1, 2, 9, 3)], dim=2).double())
    changed = jump_operator(query, key, config=config, is_causal=True).matmul(x)
    assert torch.equal(before[:, :, :11], changed[:, :, :11])
