import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph, jump_operator
from jat_graph.operators import DenseOperator, NormalizedOperator
from jat_graph.testing import OperatorContract
from tests.oracles import reference_graph, reference_normalize
from tests.support import (
    PADDING_MASKS,
    PAIR_MASKS,
    assert_equal,
    configs,
    heads_and_masks,
    with_half_joined,
)


class NormalizedContract(OperatorContract):
    """Â from queries and keys, through one backend."""

    config = JatConfig()

    def create_operator(self, query, key):
        return jump_operator(query, key, config=self.config)

    def dense_truth(self, query, key):
        return reference_graph(query, key).adj_norm

    def test_the_base_is_the_adjacency(self):
        inputs = self.create_inputs()
        adjacency = reference_graph(*inputs).adjacency
        operator = self.create_operator(*inputs)
        assert_equal(operator.base.to_dense(), adjacency)
        assert_equal(operator.base.degree, adjacency.sum(-1))


def test_rows_that_sum_to_nothing_send_and_get_nothing():
    below = DenseOperator(-torch.ones(1, 1, 3, 3).triu(1))  # whose rows sum to -1, 0 and 1
    assert torch.equal(NormalizedOperator(below).to_dense()[0, 0], torch.tensor([0.0, 0, 1]).diag())


class TestNormalizedDense(NormalizedContract):
    config = JatConfig(PairGraph(backend="dense"))


class TestNormalizedSparse(NormalizedContract):
    config = JatConfig(PairGraph(backend="sparse"))


class TestNormalizedThreshold(NormalizedContract):
    config = JatConfig(PairGraph(backend="threshold"))


class TestSoftNormalized(OperatorContract):
    """Gradients flow through the degrees, too."""

    def create_operator(self, query, key):
        return jump_operator(
            query,
            key,
            config=JatConfig(
                PairGraph(
                    soft_temperature=0.5, same_sign_only=True, key_selection="strided", num_keys=1
                )
            ),
        )

    def dense_truth(self, query, key):
        return reference_graph(
            query,
            key,
            soft_temperature=0.5,
            same_sign_only=True,
            key_selection="strided",
            num_keys=1,
        ).adj_norm


def test_rows_not_columns_are_summed():
    adjacency = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])[None, None]
    found = NormalizedOperator(DenseOperator(adjacency)).to_dense()[0, 0]
    root = torch.tensor([1.0, 2.0, 3.0]).rsqrt()
    wanted = root[:, None] * (adjacency[0, 0] + torch.eye(3)) * root[None, :]
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(reference_normalize(adjacency)[0, 0], wanted)


def test_an_empty_graph_is_the_identity_to_the_bit():
    operator = NormalizedOperator(DenseOperator(torch.zeros(2, 3, 5, 5)))
    x = torch.randn(2, 3, 5, 4)
    assert torch.equal(operator.matmul(x), x)


@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
@given(data=st.data())
def test_symmetric_with_eigenvalues_between_minus_one_and_one(backend, data):
    case = data.draw(heads_and_masks(PADDING_MASKS))
    config = data.draw(configs(backend, PADDING_MASKS, case.query.size(1)))
    config = with_half_joined(config, case)
    operator = jump_operator(case.query, case.key, config=config, **case.options)
    matrix = operator.to_dense()
    assert_equal(matrix, matrix.mT)
    values = torch.linalg.eigvalsh(matrix)
    assert values.abs().max() <= 1 + 1e-10


@given(data=st.data(), thresholds=st.tuples(st.floats(0, 20), st.floats(0, 20)))
def test_edges_at_a_larger_threshold_are_a_subset(data, thresholds):
    masks = data.draw(st.sampled_from((PADDING_MASKS, PAIR_MASKS)))
    case = data.draw(heads_and_masks(masks))
    config = data.draw(configs("sparse", masks, case.query.size(1)))
    low, high = (
        jump_operator(
            case.query, case.key, config=config.replace(threshold=threshold), **case.options
        ).base.to_dense()
        for threshold in sorted(thresholds)
    )
    assert (high <= low).all()
