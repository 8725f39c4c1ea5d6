import torch

from jat_graph import JatConfig, jump_operator
from jat_graph.operators import DenseOperator, NormalizedOperator
from tests.jumps.operators.support import SOFT, PairsContract
from tests.oracles import reference_graph
from tests.support import assert_equal


class TestNormalizedDense(PairsContract):
    """Â, through one backend."""

    backend = "dense"

    def create_operator(self, query, key):
        config = JatConfig.paper(**self.settings, backend=self.backend)
        return jump_operator(query, key, config=config)

    def dense_truth(self, query, key):
        return reference_graph(query, key, **self.settings).adj_norm

    def test_the_base_is_the_adjacency(self):
        inputs = self.create_inputs()
        adjacency = reference_graph(*inputs, **self.settings).adjacency
        operator = self.create_operator(*inputs)
        assert_equal(operator.base.to_dense(), adjacency)
        assert_equal(operator.base.degree, adjacency.sum(-1))


class TestNormalizedSparse(TestNormalizedDense):
    backend = "sparse"


class TestNormalizedThreshold(TestNormalizedDense):
    backend = "threshold"


class TestSoftNormalized(TestNormalizedDense):
    """Gradients flow through the degrees, too."""

    settings = SOFT


def test_rows_that_sum_to_nothing_send_and_get_nothing():
    below = DenseOperator(-torch.ones(1, 1, 3, 3).triu(1))  # whose rows sum to -1, 0 and 1
    assert torch.equal(NormalizedOperator(below).to_dense()[0, 0], torch.tensor([0.0, 0, 1]).diag())


def test_an_empty_graph_is_the_identity_to_the_bit():
    operator = NormalizedOperator(DenseOperator(torch.zeros(2, 3, 5, 5)))
    x = torch.randn(2, 3, 5, 4)
    assert torch.equal(operator.matmul(x), x)
