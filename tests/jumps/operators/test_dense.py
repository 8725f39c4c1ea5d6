import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from jat_graph.operators import DenseOperator
from tests.inputs import random_heads
from tests.jumps.operators.support import SOFT, PairsContract


class TestDenseOperator(PairsContract):
    def create(self, adjacency):
        return DenseOperator.of_pairs(adjacency)


class TestCausalDenseOperator(TestDenseOperator):
    causal = True


class TestSoftDenseOperator(TestDenseOperator):
    settings = SOFT


@pytest.mark.parametrize("soft_temperature", [None, 0.5])
@given(seed=st.integers(0, 999))
def test_an_adjacency_is_symmetric_to_the_bit(soft_temperature, seed):
    query, key, _, _ = random_heads(2, 2, 9, 4, dtype=torch.float32, seed=seed)
    source = QueryKeyScores(query, key, 0.5)
    config = JatConfig(PairGraph(soft_temperature=soft_temperature))
    matrix = DenseOperator.of_pairs(PairAdjacency.of_scores(config, source, TokenMask())).to_dense()
    assert matrix.count_nonzero() > 0
    assert torch.equal(matrix, matrix.mT)
    assert matrix.diagonal(dim1=-2, dim2=-1).count_nonzero() == 0
