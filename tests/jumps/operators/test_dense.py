"""A as a matrix or in blocks of rows, and Â of each backend."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.jumps.operators.threshold
from jat_graph import JatConfig, jump_operator
from jat_graph.operators import BlockedOperator, DenseOperator, NormalizedOperator, Operator
from jat_graph.testing import OperatorContract
from tests.inputs import random_heads
from tests.jumps.operators.support import SOFT, PairsContract
from tests.oracles import reference_graph


class TestDenseOperator(PairsContract):
    def create(self, adjacency):
        return DenseOperator.of_pairs(adjacency)


class TestSoftDenseOperator(TestDenseOperator):
    settings = SOFT


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


def test_rows_that_sum_to_nothing_send_and_get_nothing():
    below = DenseOperator(-torch.ones(1, 1, 3, 3).triu(1))  # whose rows sum to -1, 0 and 1
    assert torch.equal(NormalizedOperator(below).to_dense()[0, 0], torch.tensor([0.0, 0, 1]).diag())


@pytest.mark.parametrize("soft_temperature", [None, 0.5])
@given(seed=st.integers(0, 999))
def test_an_adjacency_is_symmetric_to_the_bit(soft_temperature, seed):
    query, key, _, _ = random_heads(2, 2, 9, 4, dtype=torch.float32, seed=seed)
    config = JatConfig.paper(backend="dense", soft_temperature=soft_temperature)
    matrix = jump_operator(query, key, config=config).base.to_dense()
    assert matrix.count_nonzero() > 0
    assert torch.equal(matrix, matrix.mT)
    assert matrix.diagonal(dim1=-2, dim2=-1).count_nonzero() == 0


class Bare(Operator):
    """A new structure: one method, everything else inherited."""

    def __init__(self, matrix):
        self.matrix, self.shape = matrix, matrix.shape
        self.dtype, self.device = matrix.dtype, matrix.device

    def _matmul(self, x, diagonal):
        return self.matrix @ x + diagonal * x


class TestBareOperator(OperatorContract):
    def create_operator(self, query, key):
        return Bare(self.dense_truth(query, key))

    def dense_truth(self, query, key):
        return reference_graph(query, key, is_causal=True, threshold=2.0).adjacency


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (3, 2, 4, 4), (2, 4, 4), (2, 3, 4)])
def test_features_of_another_shape_are_named(shape):
    operator = Bare(torch.zeros(2, 3, 4, 4))
    with pytest.raises(ValueError, match=r"x must be \[2, 3, 4, D\], got"):
        operator.matmul(torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_accumulate_in_the_operators_dtype(dtype):
    operator = Bare(torch.ones(1, 1, 300, 300))
    x = torch.full((1, 1, 300, 1), 0.1).to(dtype)
    result = operator.matmul(x)
    assert result.dtype == dtype
    wanted = (300 * x[0, 0, 0, 0].double()).to(dtype)
    assert (result == wanted).all()


def test_autocast_is_off(device):
    operator = Bare(torch.rand(1, 1, 16, 16, device=device))
    x = torch.rand(1, 1, 16, 4, device=device)
    plain = operator.matmul(x)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert torch.equal(operator.matmul(x), plain)
