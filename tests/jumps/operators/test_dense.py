import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from jat_graph.operators import DenseOperator
from jat_graph.testing import OperatorContract
from tests.inputs import random_heads
from tests.oracles import reference_graph


class TestDenseOperator(OperatorContract):
    def create_operator(self, query, key):
        source = QueryKeyScores(query, key, 8**-0.5)
        return DenseOperator.of_pairs(PairAdjacency.of_scores(JatConfig(), source, TokenMask()))

    def dense_truth(self, query, key):
        return reference_graph(query, key).adjacency


class TestCausalDenseOperator(OperatorContract):
    def create_inputs(self):
        return random_heads(2, 3, 12, 8, is_causal=True)[:2]

    def create_operator(self, query, key):
        source = QueryKeyScores(query, key, 8**-0.5)
        return DenseOperator.of_pairs(
            PairAdjacency.of_scores(JatConfig(), source, TokenMask(causal=True))
        )

    def dense_truth(self, query, key):
        return reference_graph(query, key, is_causal=True).adjacency


class TestSoftDenseOperator(OperatorContract):
    """Gradients reach queries and keys; the sign gate keeps the graph from being complete."""

    def create_operator(self, query, key):
        config = JatConfig(
            PairGraph(
                soft_temperature=0.7, same_sign_only=True, key_selection="strided", num_keys=1
            )
        )
        source = QueryKeyScores(query, key, 8**-0.5)
        return DenseOperator.of_pairs(PairAdjacency.of_scores(config, source, TokenMask()))

    def dense_truth(self, query, key):
        return reference_graph(
            query,
            key,
            soft_temperature=0.7,
            same_sign_only=True,
            key_selection="strided",
            num_keys=1,
        ).adjacency


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
